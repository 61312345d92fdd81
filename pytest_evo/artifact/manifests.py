"""Trees by their hash, so that a version can be had again after a restart."""

from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path
from secrets import token_hex
from typing import Protocol

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import ValidationError

from pytest_evo.artifact.trees import make_tree
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry
from pytest_evo.models import TreeHash

_MOST_KEPT = 64


class Manifests(Protocol):
    """Keeps the text of each tree under the tree's hash."""

    def save(self, tree: TreeHash, text: str) -> None:
        """Keep a text; durable on return. Twice is the same as once."""

    def load(self, tree: TreeHash) -> str | None:
        """Give a text back, or None."""


class MemoryManifests:
    """Manifests that end with the process."""

    def __init__(self) -> None:
        self._texts: dict[TreeHash, str] = {}

    def save(self, tree: TreeHash, text: str) -> None:
        """Keep a text."""
        self._texts[tree] = text

    def load(self, tree: TreeHash) -> str | None:
        """Give a text back, or None."""
        return self._texts.get(tree)


class DirectoryManifests:
    """One JSON file a tree, in a directory of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        root.mkdir(parents=True, exist_ok=True)

    def save(self, tree: TreeHash, text: str) -> None:
        """Keep a text; written whole or not at all."""
        path = self._root / f"{tree}.json"
        if path.exists():
            return
        fresh = self._root / f".{tree}-{token_hex(4)}.new"
        with fresh.open("x", encoding="utf-8", newline="") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)

    def load(self, tree: TreeHash) -> str | None:
        """Give a text back, or None."""
        try:
            return (self._root / f"{tree}.json").read_text("utf-8")
        except FileNotFoundError:
            return None


class TreeRegistry:
    """All trees of a run, the latest of them in memory."""

    def __init__(self, manifests: Manifests) -> None:
        self._manifests = manifests
        self._latest: OrderedDict[TreeHash, Tree] = OrderedDict()

    def put(self, tree: Tree) -> TreeHash:
        """Keep a tree for ever; return its hash."""
        if tree.hash not in self._latest:
            self._manifests.save(tree.hash, manifest_text(tree))
            self._remember(tree)
        return tree.hash

    def get(self, name: TreeHash) -> Tree:
        """A tree by its hash.

        Raises:
            ArtifactProblem: it was never registered, or its manifest was changed.
        """
        known = self._latest.get(name)
        if known is not None:
            self._latest.move_to_end(name)
            return known
        text = self._manifests.load(name)
        if text is None:
            raise ArtifactProblem(
                f"The version {name[:12]} is not in this run. Type pytest-evo runs to "
                "see what is, or start a new run."
            )
        tree = tree_of(text)
        if tree.hash != name:
            raise ArtifactProblem(
                f"The manifest of version {name[:12]} was changed: it now describes "
                f"{tree.hash[:12]}. Restore the run directory, or start a new run."
            )
        self._remember(tree)
        return tree

    def _remember(self, tree: Tree) -> None:
        self._latest[tree.hash] = tree
        if len(self._latest) > _MOST_KEPT:
            self._latest.popitem(last=False)


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    path: str
    kind: str
    mode: int
    blob: str = ""
    size: int = 0
    target: str = ""


class _Manifest(BaseModel):
    model_config = ConfigDict(extra="forbid")

    entries: list[_Entry]


def manifest_text(tree: Tree) -> str:
    """A tree as JSON, one entry a line."""
    lines = []
    for entry in tree.entries:
        facts: dict[str, str | int] = {"path": entry.path, "kind": entry.kind}
        facts["mode"] = entry.mode
        if entry.kind == "file":
            facts.update(blob=entry.blob, size=entry.size)
        elif entry.kind == "link":
            facts["target"] = entry.target
        lines.append(json.dumps(facts, ensure_ascii=False))
    return '{"entries": [\n' + ",\n".join(lines) + "\n]}\n"


def tree_of(text: str) -> Tree:
    """A tree from its JSON; the hash is computed, not read.

    Raises:
        ArtifactProblem: this is no manifest.
    """
    try:
        manifest = _Manifest.model_validate_json(text)
    except ValidationError as error:
        raise ArtifactProblem(
            f"A manifest of a version is damaged ({error.error_count()} problems). "
            "Restore the run directory, or start a new run."
        ) from error
    return make_tree(
        TreeEntry(e.path, e.kind, e.mode, e.blob, e.size, e.target)
        for e in manifest.entries
    )
