"""The schema of the artifact: where it is, what may change, what each file is for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from pathlib import PurePosixPath

from pytest_evo.artifact.globs import covers
from pytest_evo.artifact.globs import is_plain
from pytest_evo.artifact.globs import matches
from pytest_evo.artifact.trees import is_left_out
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import FileRule
from pytest_evo.models import Kind
from pytest_evo.models import Knob
from pytest_evo.settings import FileSettings
from pytest_evo.settings import KnobSettings
from pytest_evo.settings import Settings


def schema_of(settings: Settings) -> ArtifactSchema:
    """The artifact that the settings declare.

    Raises:
        ArtifactProblem: none is declared.
    """
    if settings.artifact is None:
        names = ", ".join(target.name for target in settings.targets)
        if names:
            raise ArtifactProblem(
                f"Several artifacts are declared ({names}) and none is chosen. "
                f"Type --evo-target={settings.targets[0].name}."
            )
        raise ArtifactProblem(
            "No artifact is declared: nothing may change. Write artifact = "
            '"DIRECTORY" below [tool.pytest_evo] in pyproject.toml, or type '
            "--evo-artifact=DIRECTORY."
        )
    return ArtifactSchema(
        directory=str(PurePosixPath(settings.artifact)),
        files=tuple(_rule(file) for file in settings.file),
        include=settings.include,
        max_bytes=settings.max_bytes,
        max_files=settings.max_files,
    )


def rule_for(schema: ArtifactSchema, path: str) -> FileRule | None:
    """What is declared of a path: by its own name, else by the first glob that fits."""
    fits = [rule for rule in schema.files if matches(rule.path, path)]
    own = [rule for rule in fits if is_plain(rule.path)]
    return next(iter(own or fits), None)


def kind_of(schema: ArtifactSchema, path: str) -> Kind:
    """How reliably a file takes effect: as declared, else by its suffix."""
    rule = rule_for(schema, path)
    if rule is not None:
        return rule.kind
    return _KINDS.get(PurePosixPath(path).suffix.lower(), Kind.PROSE)


_KINDS = {
    **dict.fromkeys((".toml", ".yaml", ".yml", ".json", ".ini", ".cfg"), Kind.CONFIG),
    **dict.fromkeys((".py", ".sh", ".js", ".ts", ".rb", ".pl"), Kind.SCRIPT),
}


def included(schema: ArtifactSchema, path: str) -> bool:
    """Whether a path belongs to the artifact at all."""
    return not schema.include or any(covers(glob, path) for glob in schema.include)


def editable(schema: ArtifactSchema, path: str) -> bool:
    """Whether a proposal may add, change or delete this path.

    Where files are declared, only they may change (a new file that fits a declared
    glob is one of them); otherwise everything in the artifact may.
    """
    if not included(schema, path):
        return False
    rule = rule_for(schema, path)
    return rule.edit if rule else not schema.files


def locate(rootdir: Path, schema: ArtifactSchema, *, typed: bool = False) -> Path:
    """The artifact directory of a project.

    Args:
        rootdir: of the project.
        schema: names the directory.
        typed: it was named on the command line, not in the settings.

    Raises:
        ArtifactProblem: it is missing, empty, a file, a link, reached through a link,
            the rootdir itself, or outside of it.
    """
    root = Path(os.path.abspath(rootdir))  # noqa: PTH100, resolve() would follow links
    path = Path(os.path.abspath(root / schema.directory))  # noqa: PTH100
    said = f"The artifact {schema.directory!r} ({path})"
    write = "Type --evo-artifact=DIRECTORY" if typed else 'Write artifact = "DIRECTORY"'
    todo = f"{write} with a directory below the rootdir"
    if path == root or not path.is_relative_to(root):
        where = "is the rootdir itself" if path == root else "is outside the rootdir"
        raise ArtifactProblem(f"{said} {where}, {root}. {todo}.")
    for part in (path, *path.parents):
        if part == root:
            break
        if part.is_symlink():
            raise ArtifactProblem(
                f"{said} is a link or behind one: {part} -> {part.readlink()}. "
                "Write the real directory instead."
            )
    if not path.exists():
        raise ArtifactProblem(f"{said} does not exist. {todo}, or create it.")
    if not path.is_dir():
        raise ArtifactProblem(
            f"{said} is a file, not a directory. Put it into a directory of its own. "
            f"{write} with that one."
        )
    if next(_files(path, schema), None) is None:
        narrowed = f" that include = {list(schema.include)} covers"
        raise ArtifactProblem(
            f"{said} has no file{narrowed if schema.include else ''}. Put the files "
            "that may change into it."
        )
    return path


def refuse_own_files_inside(rootdir: Path, artifact: Path, settings: Settings) -> None:
    """Keep what we write out of what is measured.

    Raises:
        ArtifactProblem: runs or reports would be written into the artifact.
    """
    for name in ("run_dir", "reports"):
        place = (rootdir / getattr(settings, name)).resolve()
        if place.is_relative_to(artifact.resolve()):
            raise ArtifactProblem(
                f"{name} = {getattr(settings, name)!r} is inside the artifact "
                f"{settings.artifact!r}, so every run would change what it optimises. "
                f"Type --evo-{name.replace('_', '-')}=DIR with a directory outside it."
            )


def _files(directory: Path, schema: ArtifactSchema) -> Iterator[str]:
    for folder, folders, files in os.walk(directory):
        folders[:] = [name for name in folders if not is_left_out(name, "dir")]
        for name in files:
            path = Path(folder, name).relative_to(directory).as_posix()
            if not is_left_out(name, "file") and included(schema, path):
                yield path


def _rule(file: FileSettings) -> FileRule:
    path = str(PurePosixPath(file.path))
    return FileRule(
        path=path,
        about=file.about,
        kind=file.kind,
        edit=file.edit,
        max_bytes=file.max_bytes,
        knobs=tuple(_knob(path, knob) for knob in file.knob),
    )


def _knob(path: str, knob: KnobSettings) -> Knob:
    return Knob(
        file=path,
        key=knob.key,
        type=knob.type,
        low=knob.low,
        high=knob.high,
        log=knob.log,
        step=knob.step,
        choices=knob.choices,
    )
