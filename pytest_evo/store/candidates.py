"""Candidates for people: their files, what changed and why."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.removal import remove
from pytest_evo.artifact.trees import diff
from pytest_evo.artifact.trees import restore
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import CandidateId
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import TreeHash
from pytest_evo.store.disk import failed
from pytest_evo.store.disk import write_atomic
from pytest_evo.store.records import adapter_for
from pytest_evo.store.records import to_json
from pytest_evo.store.trees import TreeFiles


class CandidateFiles:
    """Writes ``candidates/<id>/``; all of it can be made again at any time."""

    def __init__(self, run_dir: Path, blobs: BlobStore, trees: TreeFiles) -> None:
        self._folder = run_dir / "candidates"
        self._blobs = blobs
        self._trees = trees

    def write(
        self,
        candidate: CandidateId,
        tree: TreeHash,
        base: TreeHash | None,
        changelog: Sequence[ChangelogEntry] = (),
    ) -> Path:
        """Write changelog, diff against ``base`` and files; return the folder.

        Writing a candidate twice changes nothing.

        Raises:
            RunDirectoryProblem: the disk refuses, or a tree or content is lost.
            ArtifactProblem: the tree is not sound, or two of its names are one on this
                file system.
        """
        folder = self._folder / candidate
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise failed(error, folder) from error
        _replace(folder / "changelog.jsonl", changelog_lines(changelog))
        if base is not None:
            old, new = self._trees.get(base), self._trees.get(tree)
            patch = diff(old, new, self._blobs)
            _replace(folder / "diff.patch", patch.encode("utf-8", "surrogateescape"))
        self._materialise(folder / "artifact", tree)
        return folder

    def artifact(self, candidate: CandidateId) -> Path:
        """Where the files of a candidate are, once it was written."""
        return self._folder / candidate / "artifact"

    def _materialise(self, target: Path, tree: TreeHash) -> None:
        """Put the files in place at once; a folder with other files is replaced."""
        draft = target.with_name(f".artifact-{os.getpid()}")
        try:
            there = os.path.lexists(target)
            if there and _holds(target, tree):
                return
            remove(draft)
            restore(self._trees.get(tree), self._blobs, draft)
            if there:
                remove(target)
            draft.rename(target)
        except OSError as error:
            raise failed(error, target) from error


def _holds(folder: Path, tree: TreeHash) -> bool:
    try:
        return snapshot(folder, MemoryBlobs()).hash == tree
    except ArtifactProblem:
        return False


def changelog_lines(changelog: Sequence[ChangelogEntry]) -> bytes:
    """One JSON object a line, one line a changed file."""
    adapter: TypeAdapter[ChangelogEntry] = adapter_for(ChangelogEntry)
    return b"".join(to_json(adapter, entry) + b"\n" for entry in changelog)


def _replace(path: Path, data: bytes) -> None:
    """Write a file, unless it is there as it has to be."""
    try:
        if path.read_bytes() == data:
            return
    except FileNotFoundError:
        pass
    write_atomic(path, data, durable=False)
