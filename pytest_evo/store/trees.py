"""Manifests of artifact versions by their hash; contents are in the blobs."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

from pydantic import ValidationError

from pytest_evo.artifact.trees import make_tree
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash
from pytest_evo.store.disk import write_once
from pytest_evo.store.records import adapter_for
from pytest_evo.store.records import to_json

_AT_HAND = 128
_HEXADECIMAL = frozenset("0123456789abcdef")


class TreeFiles:
    """Trees in a directory, one file each; a tree read back is the one put in."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._trees: OrderedDict[TreeHash, Tree] = OrderedDict()

    def put(self, tree: Tree) -> TreeHash:
        """Keep a tree for good; return its hash.

        Raises:
            RunDirectoryProblem: the disk refuses.
        """
        if tree.hash in self._trees:
            return tree.hash
        path = self._file(tree.hash)
        data = to_json(adapter_for(Tree), tree) + b"\n"
        write_once(path, data, lambda: self._is_whole(tree.hash))
        self._remember(tree)
        return tree.hash

    def get(self, tree_hash: TreeHash) -> Tree:
        """Read a tree.

        Raises:
            RunDirectoryProblem: it is missing or was altered.
        """
        known = self._trees.get(tree_hash)
        if known is None:
            known = self._read(tree_hash)
        self._remember(known)
        return known

    def _remember(self, tree: Tree) -> None:
        """Keep the latest trees at hand; all of them would be too many."""
        self._trees[tree.hash] = tree
        self._trees.move_to_end(tree.hash)
        while len(self._trees) > _AT_HAND:
            self._trees.popitem(last=False)

    def has(self, tree_hash: TreeHash) -> bool:
        """Whether there is a tree of this hash."""
        return tree_hash in self._trees or self._file(tree_hash).exists()

    def _read(self, tree_hash: TreeHash) -> Tree:
        path = self._file(tree_hash)
        try:
            tree: Tree = adapter_for(Tree).validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            missing = isinstance(error, FileNotFoundError)
            raise RunDirectoryProblem(
                f"{path} is {'missing' if missing else 'cut or altered'}: the files of "
                f"version {tree_hash[:12]} are not known. Restore it from a copy of "
                "the run directory, or start a new run: pytest --evolve"
            ) from error
        if tree.hash != tree_hash or make_tree(tree.entries).hash != tree_hash:
            raise RunDirectoryProblem(
                f"{path} was altered: its entries are not those of version "
                f"{tree_hash[:12]}. Restore it from a copy of the run directory, or "
                "start a new run: pytest --evolve"
            )
        return tree

    def _is_whole(self, tree_hash: TreeHash) -> bool:
        try:
            self._read(tree_hash)
        except RunDirectoryProblem as problem:
            why = problem.__cause__
            if isinstance(why, OSError) and not isinstance(why, FileNotFoundError):
                raise  # who knows what is in it
            return False  # written again: the tree at hand is the right one
        return True

    def _file(self, tree_hash: TreeHash) -> Path:
        if not tree_hash or not set(tree_hash) <= _HEXADECIMAL:
            raise ValueError(f"{tree_hash!r} is not the hash of a tree")
        return self._path / f"{tree_hash}.json"
