"""Candidates on the worker's side: blobs by hash, throw-away copies, violations."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_evo.models import TreeEntry


def quiet_bytecode() -> None:
    """Let this process and its children read, but never write, byte code."""
    raise NotImplementedError


class CandidateCache:
    """Blobs of candidates below ``directory`` and throw-away copies made of them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def missing(self, manifest: Sequence[TreeEntry]) -> list[str]:
        """Hashes of blobs that ``copy`` would lack, each once."""
        raise NotImplementedError

    def add(self, sha: str, data: bytes) -> None:
        """Keep a blob.

        Raises:
            EvoError: the data has another hash.
        """
        raise NotImplementedError

    def copy(self, manifest: Sequence[TreeEntry], into: Path | None = None) -> Path:
        """Make a directory (``into``, or a new one) with exactly these files."""
        raise NotImplementedError

    def violation(self, path: Path, manifest: Sequence[TreeEntry]) -> str | None:
        """What a request added, changed or removed in its copy; None if nothing."""
        raise NotImplementedError

    def remove(self, path: Path) -> None:
        """Remove a copy, read-only directories too."""
        raise NotImplementedError
