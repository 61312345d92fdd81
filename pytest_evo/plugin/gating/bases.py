"""What the gate compares with: a commit, or a file that holds what was measured."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from pytest_evo.artifact.base import artifact_at
from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.repository import Repository
from pytest_evo.errors import BaselineProblem
from pytest_evo.gate.baseline import Baseline
from pytest_evo.gate.baseline import read_baseline
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Tree
from pytest_evo.settings import Settings
from pytest_evo.settings_files import OWN_FILE
from pytest_evo.settings_files import PYPROJECT

GIT = "git:"
COMMITTED = "baseline"


@dataclass(frozen=True, slots=True)
class Base:
    """One side of the comparison.

    ``tree`` is None where a file stands for rollouts; ``known`` is what that file, or
    the one that is committed at the ref, says of cases.
    """

    name: str  # as it was typed
    blobs: MemoryBlobs
    tree: Tree | None = None
    known: Baseline | None = None
    repository: Repository | None = None
    commit: str = ""
    settings: Mapping[str, object] = field(default_factory=dict)  # at the commit
    notes: tuple[str, ...] = ()


def find_base(
    rootdir: Path,
    settings: Settings,
    schema: ArtifactSchema,
    artifact: Path,
    committed: Path,
) -> Base:
    """Find what ``--evo-gate`` names.

    Raises:
        BaselineProblem: it is not there; the message says how to get it.
    """
    name = settings.gate or COMMITTED
    if name.startswith(GIT):
        return _from_git(rootdir, name, settings, schema, artifact, committed)
    path = committed if name == COMMITTED else rootdir / name
    known = _read(path, name)
    if known.artifact != schema.directory:
        raise BaselineProblem(
            f"{path.name} is of the artifact {known.artifact!r}, this session is about "
            f"{schema.directory!r}. Name its own file, or write one: "
            "pytest --evo-baseline-update"
        )
    return Base(name, MemoryBlobs(), known=known)


def _read(path: Path, name: str) -> Baseline:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or error
        refs = "" if name == COMMITTED else ", or type --evo-gate=git:REF for a ref"
        raise BaselineProblem(
            f"{path}, the baseline to compare with, cannot be read: {why}. Write it on "
            f"the branch to compare with: pytest --evo-baseline-update{refs}."
        ) from error
    return read_baseline(text, path.name)


def _from_git(
    rootdir: Path,
    name: str,
    settings: Settings,
    schema: ArtifactSchema,
    artifact: Path,
    committed: Path,
) -> Base:
    repository = Repository(rootdir)
    conflicts = repository.unmerged(schema.directory)
    if conflicts:
        raise BaselineProblem(
            f"{conflicts[0]} has merge conflicts, so there is no version to judge. "
            "Resolve them and type git add."
        )
    commit = repository.commit(name.removeprefix(GIT))
    blobs = MemoryBlobs()
    tree = artifact_at(repository, commit, schema, artifact, blobs)
    notes: list[str] = []
    known = _committed(repository, commit, rootdir, committed, schema, notes)
    left = repository.left_at(commit)
    if left is not None:
        notes.append(
            f"{name.removeprefix(GIT)} has moved on since this branch left it, and "
            "what it gained counts as lost here; to compare with where the branch "
            f"left: --evo-gate=git:{left[:12]}"
        )
    untracked = repository.untracked(schema.directory)
    if untracked:
        notes.append(
            f"{len(untracked)} files of the artifact are not in git, so only the head "
            f"has them: {', '.join(untracked[:5])}"
        )
    return Base(
        name,
        blobs,
        tree=tree,
        known=known,
        repository=repository,
        commit=commit,
        settings=_settings_at(repository, commit),
        notes=tuple(notes),
    )


def _committed(
    repository: Repository,
    commit: str,
    rootdir: Path,
    path: Path,
    schema: ArtifactSchema,
    notes: list[str],
) -> Baseline | None:
    """The baseline at the ref: which cases there were, and what each one reached."""
    if not path.is_relative_to(rootdir):
        return None
    data = repository.file(commit, path.relative_to(rootdir).as_posix())
    if data is None:
        return None
    try:
        known = read_baseline(data.decode(errors="replace"), path.name)
    except BaselineProblem as problem:
        notes.append(f"the baseline at {commit[:12]} is not used: {problem}")
        return None
    return known if known.artifact == schema.directory else None


def _settings_at(repository: Repository, commit: str) -> Mapping[str, object]:
    """The raw table of settings at a commit; what cannot be read is empty."""
    for name in (OWN_FILE, PYPROJECT):
        data = repository.file(commit, name)
        if data is None:
            continue
        try:
            table: object = tomllib.loads(data.decode())
        except (tomllib.TOMLDecodeError, UnicodeDecodeError):
            continue
        for key in ("tool", "pytest_evo"):
            inner = table.get(key) if isinstance(table, dict) else None
            if name == OWN_FILE and inner is None:
                continue
            table = inner
        if isinstance(table, dict):
            return table
    return {}
