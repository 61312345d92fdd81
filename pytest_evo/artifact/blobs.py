"""Contents and versions by their hash: what stores have to do, and some in memory."""

from __future__ import annotations

import hashlib
from typing import Protocol

from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash


class BlobStore(Protocol):
    """Keeps contents for ever under the sha256 of their bytes."""

    def put(self, data: bytes) -> str:
        """Keep some bytes; return their sha256 in hex. Twice is the same as once."""

    def get(self, sha256: str) -> bytes:
        """Give the bytes back.

        Raises:
            KeyError: they were never put here.
        """

    def has(self, sha256: str) -> bool:
        """Whether the bytes are here."""


class TreeStore(Protocol):
    """Keeps versions of the artifact for ever under their hash."""

    def put(self, tree: Tree) -> TreeHash:
        """Keep a version; return its hash. Twice is the same as once."""

    def get(self, tree_hash: TreeHash) -> Tree:
        """Give a version back.

        Raises:
            EvoError: it was never put here, or is lost.
        """


class MemoryBlobs:
    """A store that ends with the process."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """Keep some bytes."""
        name = hashlib.sha256(data).hexdigest()
        self._blobs[name] = data
        return name

    def get(self, sha256: str) -> bytes:
        """Give the bytes back."""
        return self._blobs[sha256]

    def has(self, sha256: str) -> bool:
        """Whether the bytes are here."""
        return sha256 in self._blobs


class MemoryTrees:
    """A store of versions that ends with the process."""

    def __init__(self) -> None:
        self._trees: dict[TreeHash, Tree] = {}

    def put(self, tree: Tree) -> TreeHash:
        """Keep a version; of two with the same hash the first stays."""
        self._trees.setdefault(tree.hash, tree)
        return tree.hash

    def get(self, tree_hash: TreeHash) -> Tree:
        """Give a version back.

        Raises:
            ArtifactProblem: it was never put here.
        """
        if tree_hash not in self._trees:
            raise ArtifactProblem(
                f"The version {tree_hash[:12]} is not in this run. Type pytest-evo "
                "runs to see what is, or start a new run."
            )
        return self._trees[tree_hash]
