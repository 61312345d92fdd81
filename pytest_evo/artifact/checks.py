"""Static checks of a version before any rollout is spent. Nothing is executed."""

from __future__ import annotations

import io
import json
import re
import tomllib
import unicodedata
import warnings
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.globs import is_plain
from pytest_evo.artifact.guard import forbidden
from pytest_evo.artifact.guard import holds_pytest_settings
from pytest_evo.artifact.knobs import knob_problem
from pytest_evo.artifact.knobs import read_knob
from pytest_evo.artifact.patches import Change
from pytest_evo.artifact.patches import changes
from pytest_evo.artifact.schema import editable
from pytest_evo.artifact.schema import rule_for
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import ProposalRefused
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Knob
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

Changes: TypeAlias = Sequence[tuple[str, Change]]
"""The paths that differ between two versions, each with what became of it."""
_MOST_TOLD = 20
_MOST_YAML = 300_000  # the parser takes seconds for more; that is no mistake of a file
# what a parser takes a square of its parts for
_LONG_KEY = re.compile(r"(?<![\w-])(?:[\w-]++[ \t]*+\.[ \t]*+){200}")
_QUOTED = re.compile(r"""["](?:[^"\\\n]|\\.)*+["]|'[^'\n]*+'""")


def check_tree(
    base: Tree,
    new: Tree,
    blobs: BlobStore,
    schema: ArtifactSchema,
    changed: Changes | None = None,
) -> None:
    """Check what a proposal made of its base.

    Args:
        base: the version that was edited.
        new: what it became.
        blobs: holds the contents of both.
        schema: what may change.
        changed: what :func:`changes` says of the two, where that is known already.

    Raises:
        ProposalRefused: the edit surface was left, a file that acts by itself, a size
            limit, something that does not parse or compile although it did before, or
            a knob outside its range. All problems are in one message.
    """
    if changed is None:
        changed = changes(base, new)
    broken = _broken(base, new, blobs, changed)
    refuse(
        [
            *_surface(changed, schema),
            *_forbidden(base, new, blobs, changed),
            *_sizes(new, schema),
            *_names(base, new),
            *(f"{path}: {problem}." for path, problem in broken.items()),
            *_knobs(base, new, blobs, schema, broken),
        ]
    )


def check_files(artifact: Path, schema: ArtifactSchema) -> None:
    """Look at the artifact as a run does when it begins; keep nothing.

    Raises:
        ArtifactProblem: something cannot be kept or does not fit the schema.
    """
    read_start(artifact, schema, MemoryBlobs())


def read_start(artifact: Path, schema: ArtifactSchema, blobs: BlobStore) -> Tree:
    """Read and check the artifact as a run begins with it.

    Raises:
        ArtifactProblem: something cannot be kept or does not fit the schema.
    """
    tree = read_artifact(artifact, schema, blobs)
    check_start(tree, blobs, schema)
    return tree


def read_artifact(artifact: Path, schema: ArtifactSchema, blobs: BlobStore) -> Tree:
    """Read the artifact as it is, what the schema includes and within its limits.

    Raises:
        ArtifactProblem: a limit, or something that can be no part of a version.
    """
    return snapshot(
        artifact,
        blobs,
        include=schema.include,
        max_bytes=schema.max_bytes,
        max_files=schema.max_files,
    )


def check_start(tree: Tree, blobs: BlobStore, schema: ArtifactSchema) -> None:
    """Check the artifact as it is, at the start of a run.

    Raises:
        ArtifactProblem: a size limit, a declared file or a knob that is not there, or
            a knob outside its range. All problems are in one message.
    """
    problems = [*_sizes(tree, schema)]
    paths = {entry.path for entry in tree.entries if entry.kind == "file"}
    for rule in schema.files:
        if is_plain(rule.path) and rule.path not in paths:
            problems.append(
                f"{rule.path}: declared in [[tool.pytest_evo.file]] and not there"
            )
    for knob in schema.knobs:
        if knob.file in paths:
            problems += _knob(knob, tree, blobs)
    if problems:
        told = "\n".join(f"- {problem}" for problem in problems[:_MOST_TOLD])
        raise ArtifactProblem(
            f"The artifact {schema.directory!r} does not fit its settings:\n{told}\n"
            "Correct the files, or [tool.pytest_evo]."
        )


def refuse(problems: list[str]) -> None:
    """Refuse a proposal with all problems in one message; none is fine.

    Raises:
        ProposalRefused: there is at least one.
    """
    if not problems:
        return
    told = [f"- {problem}" for problem in dict.fromkeys(problems)]
    if len(told) > _MOST_TOLD:
        told = [*told[:_MOST_TOLD], f"- and {len(told) - _MOST_TOLD} more"]
    raise ProposalRefused("The edit is not evaluated:\n" + "\n".join(told))


def knob_value(knob: Knob, tree: Tree, blobs: BlobStore) -> bool | int | float | str:
    """The value that a knob has in a tree.

    Raises:
        ArtifactProblem: the file or the key is not there, or is no plain value.
    """
    entry = _files(tree).get(knob.file)
    if entry is None:
        raise ArtifactProblem(
            f"{knob.file}: holds the knob {knob.key!r} and is not there. Add it."
        )
    suffix = "." + knob.file.rpartition(".")[2]
    try:
        return read_knob(blobs.get(entry.blob).decode(), suffix, knob.key)
    except UnicodeDecodeError:
        raise ArtifactProblem(f"{knob.file}: is not UTF-8. Save it as UTF-8.") from None
    except ArtifactProblem as error:
        raise ArtifactProblem(f"{knob.file}: {error}") from error


def _files(tree: Tree) -> Mapping[str, TreeEntry]:
    return {entry.path: entry for entry in tree.entries if entry.kind == "file"}


# -- the rules -----------------------------------------------------------------------


def _surface(changed: Changes, schema: ArtifactSchema) -> Iterator[str]:
    globs = ", ".join(rule.path for rule in schema.files if rule.edit)
    for path, change in changed:
        if editable(schema, path):
            continue
        rule = rule_for(schema, path)
        if rule is not None and not rule.edit:
            yield f"{path}: {change}, and it is read-only. Leave it as it was."
        elif schema.files:
            yield f"{path}: {change}, and only these may change: {globs or 'none'}."
        else:
            yield f"{path}: {change}, and it is outside of {', '.join(schema.include)}."


def _forbidden(
    base: Tree, new: Tree, blobs: BlobStore, changed: Changes
) -> Iterator[str]:
    for path, change in changed:
        reason = forbidden(path)
        if reason is None and any(
            holds_pytest_settings(path, blobs.get(entry.blob))
            for entry in (*base.entries, *new.entries)
            if path.endswith((".toml", ".cfg", ".ini"))
            and entry.path == path
            and entry.kind == "file"
        ):
            reason = "it holds settings of pytest"
        if reason:
            yield f"{path}: may not be {change}: {reason}."


def _sizes(tree: Tree, schema: ArtifactSchema) -> Iterator[str]:
    files = [entry for entry in tree.entries if entry.kind == "file"]
    total = sum(entry.size for entry in files)
    if total > schema.max_bytes:
        yield f"all files together have {total} bytes; max_bytes is {schema.max_bytes}."
    if len(files) > schema.max_files:
        yield f"there are {len(files)} files; max_files is {schema.max_files}."
    if all(rule.max_bytes is None for rule in schema.files):
        return
    for entry in files:
        rule = rule_for(schema, entry.path)
        most = rule.max_bytes if rule else None
        if most is not None and entry.size > most:
            yield f"{entry.path}: has {entry.size} bytes; its max_bytes is {most}."


def _names(base: Tree, new: Tree) -> Iterator[str]:
    """New names that are the same as others, or none, on some file systems."""
    old = {entry.path for entry in base.entries}
    if old.issuperset([entry.path for entry in new.entries]):
        return
    seen: dict[str, list[str]] = {}
    for entry in new.entries:
        folded = unicodedata.normalize("NFC", entry.path).casefold()
        seen.setdefault(folded, []).append(entry.path)
        if entry.path not in old and any(
            sign < " " or sign in "\x7f\\" for sign in entry.path
        ):
            yield f"{entry.path!r}: holds a control character or a backslash."
    for paths in seen.values():
        if len(paths) > 1 and not old.issuperset(paths):
            yield (
                f"{' and '.join(sorted(paths))}: are one name where upper and lower "
                "case or forms of accents are the same."
            )


def _broken(
    base: Tree, new: Tree, blobs: BlobStore, changed: Changes
) -> dict[str, str]:
    """Changed files that do not parse although they are new or did before."""
    found: dict[str, str] = {}
    parsers = {
        path: _PARSERS.get(path.rpartition(".")[2].lower()) for path, _ in changed
    }
    if not any(parsers.values()):
        return found
    before, after = _files(base), _files(new)
    for path, parse in parsers.items():
        was, entry = before.get(path), after.get(path)
        if parse is None or entry is None or (was and was.blob == entry.blob):
            continue
        problem = _tried(parse, blobs.get(entry.blob))
        # what never parsed (a template, say) need not parse now
        if problem and (was is None or not _tried(parse, blobs.get(was.blob))):
            found[path] = problem
    return found


def _knobs(
    base: Tree,
    new: Tree,
    blobs: BlobStore,
    schema: ArtifactSchema,
    broken: Collection[str],
) -> Iterator[str]:
    before, after = _files(base), _files(new)
    for knob in schema.knobs:
        was, now = before.get(knob.file), after.get(knob.file)
        same = was is None or (now is not None and now.blob == was.blob)
        if not same and knob.file not in broken:
            yield from _knob(knob, new, blobs)


def _knob(knob: Knob, tree: Tree, blobs: BlobStore) -> Iterator[str]:
    try:
        problem = knob_problem(knob, knob_value(knob, tree, blobs))
    except ArtifactProblem as error:
        problem = str(error)
    if problem:
        yield problem


# -- syntax --------------------------------------------------------------------------


def _tried(parse: Callable[[bytes], None], data: bytes) -> str | None:
    try:
        parse(data)
    except SyntaxError as error:
        return f"is no Python: {error.msg} (line {error.lineno})"
    except (ValueError, YAMLError, RecursionError, MemoryError, OverflowError) as error:
        told = " ".join(str(error).split())[:300] or type(error).__name__
        return f"cannot be parsed: {told}"
    return None


def _python(data: bytes) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning is the author's business
        compile(data, "<candidate>", "exec", dont_inherit=True)


def _json(data: bytes) -> None:
    json.loads(data)


def _toml(data: bytes) -> None:
    text = data.decode()
    if _LONG_KEY.search(_QUOTED.sub("q", text)):
        raise ValueError("a key has 200 parts or more")
    tomllib.loads(text)


def _yaml(data: bytes) -> None:
    if len(data) > _MOST_YAML:
        return
    # nodes only: values are never built, so tags of any application are fine
    for _ in YAML(typ="safe", pure=True).compose_all(io.StringIO(data.decode())):
        pass


_PARSERS: Mapping[str, Callable[[bytes], None]] = {
    "py": _python,
    "json": _json,
    "toml": _toml,
    "yaml": _yaml,
    "yml": _yaml,
}
