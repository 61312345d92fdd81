"""The artifact as it is at a commit, as a version like any other."""

from __future__ import annotations

from pathlib import Path

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.links import link_problem
from pytest_evo.artifact.patches import Change
from pytest_evo.artifact.patches import changes
from pytest_evo.artifact.repository import as_entry
from pytest_evo.artifact.repository import folders_of
from pytest_evo.artifact.repository import GitEntry
from pytest_evo.artifact.repository import Repository
from pytest_evo.artifact.schema import included
from pytest_evo.artifact.trees import is_left_out
from pytest_evo.artifact.trees import make_tree
from pytest_evo.errors import BaselineProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Tree
from pytest_evo.wording import count


def artifact_at(
    repository: Repository,
    commit: str,
    schema: ArtifactSchema,
    artifact: Path,
    blobs: BlobStore,
) -> Tree:
    """The artifact at a commit.

    Args:
        repository: that the project is in.
        commit: its id.
        schema: where the artifact is, and what of it counts.
        artifact: the working tree's; files of Git LFS may be found there.
        blobs: gets the contents.

    Raises:
        BaselineProblem: there is no artifact at the commit, it is over a limit, or it
            holds something that cannot be part of a version.
    """
    found = repository.entries(commit, schema.directory)
    wanted = [entry for entry in found or () if _counts(entry, schema)]
    if not wanted:
        raise BaselineProblem(
            f"the artifact {schema.directory!r} is not there at {commit[:12]}: nothing "
            "to compare with. If this change adds or moves it, compare with "
            "a commit that has it, or leave --evo-gate out of this one."
        )
    _check(wanted, schema, commit)
    entries = []
    for entry, data in zip(wanted, repository.contents(commit, wanted), strict=True):
        content: bytes | None = data
        if entry.kind == "file":
            content = repository.large_file(data, artifact / entry.path)
        if content is None:
            raise BaselineProblem(
                f"{entry.path!r} at {commit[:12]} is kept in Git LFS and is not here. "
                f"Type: git lfs fetch origin {commit}"
            )
        entries.append(as_entry(entry, content, blobs))
    problem = link_problem({e.path: e.target for e in entries if e.kind == "link"})
    if problem:
        raise BaselineProblem(f"the artifact at {commit[:12]}: {problem}")
    return make_tree([*entries, *folders_of([entry.path for entry in entries])])


def file_changes(old: Tree, new: Tree) -> tuple[tuple[str, Change], ...]:
    """The files and links that differ; git does not know empty folders."""
    folders = {
        entry.path
        for tree in (old, new)
        for entry in tree.entries
        if entry.kind == "dir"
    }
    return tuple(row for row in changes(old, new) if row[0] not in folders)


def _counts(entry: GitEntry, schema: ArtifactSchema) -> bool:
    if entry.kind == "dir" or not included(schema, entry.path):
        return False
    *above, name = entry.path.split("/")
    if any(is_left_out(folder, "dir") for folder in above):
        return False
    return not is_left_out(name, entry.kind)


def _check(entries: list[GitEntry], schema: ArtifactSchema, commit: str) -> None:
    modules = [entry.path for entry in entries if entry.kind == "submodule"]
    if modules:
        raise BaselineProblem(
            f"{modules[0]!r} at {commit[:12]} is a submodule. The gate compares files "
            "of one repository: leave it out with the setting include."
        )
    size = sum(entry.size for entry in entries)
    if size > schema.max_bytes or len(entries) > schema.max_files:
        raise BaselineProblem(
            f"the artifact at {commit[:12]} has {count(len(entries), 'file')} "
            f"and {count(size, 'byte')}; "
            f"max_files is {schema.max_files}, max_bytes {schema.max_bytes}. Write "
            "higher ones below [tool.pytest_evo]."
        )
