"""What versions of the artifact are called, and what of a directory is part of them."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry


def make_tree(entries: Iterable[TreeEntry]) -> Tree:
    """Sort the entries and name the tree.

    The hash covers path, kind, content, execute bit and link target. Other permission
    bits are kept and restored but do not make another version.
    """
    ordered = tuple(sorted(entries, key=lambda entry: entry.path))
    parts = ["pytest-evo tree 1\0"]
    for entry in ordered:
        runs = "x" if entry.kind == "file" and entry.mode & 0o100 else "-"
        content = entry.blob or entry.target
        parts.append(f"{entry.kind}\0{entry.path}\0{content}\0{runs}\0")
    return Tree(hashlib.sha256("".join(parts).encode()).hexdigest(), ordered)


def is_left_out(name: str, kind: str) -> bool:
    """Whether a name is no part of any version: byte code and version control."""
    if name.lower() == ".git" or (name == "__pycache__" and kind == "dir"):
        return True
    return kind != "dir" and name.lower().endswith((".pyc", ".pyo"))


def left_out(directory: Path) -> tuple[str, ...]:
    """The ``.git`` folders and files in a directory that its versions will not have.

    Byte code is not listed: python makes it again.
    """
    found = []
    for folder, folders, files in os.walk(directory):
        for name in (*folders, *files):
            if name.lower() == ".git":
                found.append(Path(folder, name).relative_to(directory).as_posix())
        folders[:] = [name for name in folders if not is_left_out(name, "dir")]
    return tuple(sorted(found))


# -- facts ---------------------------------------------------------------------------

Facts: TypeAlias = tuple[int, ...]
"""What tells one file from any other and from its own later content."""
Look: TypeAlias = Mapping[str, Facts]
"""Facts of every name in a folder, and of itself under the empty name."""


@dataclass(frozen=True, slots=True)
class Known:
    """A file whose content was read, with its facts at that time."""

    facts: Facts
    entry: TreeEntry


def facts_of(status: os.stat_result) -> Facts:
    """Facts of a name on disk; of a folder, those that tell it from another folder."""
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        return mode, status.st_ino, status.st_dev
    return (
        mode,
        status.st_ino,
        status.st_dev,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
