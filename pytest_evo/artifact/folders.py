"""Folders that hold a version already, kept to save writing most of the next one.

One edit changes a file or two of many, so the folder of a proposal that is over becomes
that of the next one by replacing what differs. A folder is used again only while it
holds exactly what it was left with: the same names, each the same file (device, inode,
size, times, mode) under no second name.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.removal import remove
from pytest_evo.artifact.trees import facts_of
from pytest_evo.artifact.trees import Known
from pytest_evo.artifact.trees import Look
from pytest_evo.artifact.trees import restore
from pytest_evo.artifact.trees import write_entry
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

_MOST_CHANGED = 0.5  # of the files: beyond that, writing all of them is as fast

_GRAIN = 50_000_000  # ns: no clock of a file system is coarser by default


@dataclass(frozen=True, slots=True)
class _Left:
    """A folder as it was left."""

    folder: Path
    tree: Tree
    look: Look


class Folders:
    """A few folders below ``root``, each with a version in it.

    Args:
        root: a directory of its own, on the file system of the workspaces.
        blobs: holds the contents of all versions.
        most: folders that are kept.
    """

    def __init__(self, root: Path, blobs: BlobStore, most: int = 4) -> None:
        self._root = root
        self._blobs = blobs
        self._most = most
        self._left: list[_Left] = []
        self._count = 0
        remove(root)  # of a session that was killed

    def fill(self, destination: Path, tree: Tree) -> Mapping[str, Known]:
        """Make ``destination``, which must not exist, with the files of a version.

        Returns:
            The files that have been there long enough for any later change to show in
            their times.

        Raises:
            ArtifactProblem: the version is not sound.
            OSError: the disk is full, or like this.
        """
        for left in sorted(self._left, key=lambda one: one.tree.hash != tree.hash):
            differing = _differing(left.tree, tree)
            if differing is None:
                continue
            self._left.remove(left)
            if self._use_again(left, destination, differing):
                return _settled(left.look, tree, differing)
        restore(tree, self._blobs, destination)
        return {}

    def take(self, folder: Path, tree: Tree, seen: Look | None) -> None:
        """Keep a folder by moving it away; leave it where it cannot be used again.

        Args:
            folder: of which a version was read.
            tree: that version.
            seen: what was seen of its names when it was read, or None.
        """
        names = {"", *(entry.path for entry in tree.entries)}
        if seen is None or seen.keys() != names:
            return  # it holds something that is no part of a version
        if not self._count:
            self._root.mkdir(mode=0o700, exist_ok=True)
        self._count += 1
        kept = self._root / str(self._count)
        try:
            os.rename(folder, kept)  # noqa: PTH104, speed
        except FileNotFoundError:
            return  # whoever wrote the version is still at work on it
        self._left.append(_Left(kept, tree, seen))
        if len(self._left) > self._most:
            remove(self._left.pop(0).folder)

    def _use_again(
        self, left: _Left, destination: Path, differing: list[TreeEntry]
    ) -> bool:
        """Whether ``destination`` is now the folder with the differing files written.

        Where it is not, nothing is left of the folder: one that was changed, or that a
        process which outlived its proposal changes under our hands.
        """
        if look(left.folder) != left.look:
            remove(left.folder)
            return False
        try:
            os.rename(left.folder, destination)  # noqa: PTH104, speed
            for entry in differing:
                path = f"{destination}/{entry.path}"
                os.unlink(path)  # noqa: PTH108, speed
                write_entry(entry, self._blobs, path)
        except (OSError, ArtifactProblem):
            remove(destination)
            return False
        except BaseException:
            remove(destination)
            raise
        return True


def _differing(old: Tree, new: Tree) -> list[TreeEntry] | None:
    """The files of ``new`` to write over ``old``; None where that is not enough."""
    if len(old.entries) != len(new.entries):
        return None
    found = []
    for before, after in zip(old.entries, new.entries, strict=True):
        if before is after or before == after:
            continue
        if before.path != after.path or {before.kind, after.kind} != {"file"}:
            return None
        found.append(after)
    return found if len(found) <= _MOST_CHANGED * len(new.entries) else None


def _settled(seen: Look, tree: Tree, written: list[TreeEntry]) -> dict[str, Known]:
    """The files of a version, less those just written, that were ``seen`` before."""
    latest = time.time_ns() - _GRAIN
    new = {entry.path for entry in written}
    return {
        entry.path: Known(seen[entry.path], entry)
        for entry in tree.entries
        if entry.kind == "file"
        and entry.path not in new
        and seen[entry.path][-1] < latest
    }


def look(folder: Path) -> Look | None:
    """What is in a folder.

    None where it cannot be used again: a pipe, a second name, a folder that is locked,
    a name that went away while it was looked at.
    """
    try:
        return _look(folder)
    except OSError:
        return None


def _look(folder: Path) -> Look | None:
    top = folder.lstat()
    found = {"": facts_of(top)}
    waiting = [("", str(folder), top)]
    while waiting:
        prefix, path, own = waiting.pop()
        if own.st_mode & 0o700 != 0o700:
            return None
        with os.scandir(path) as names:
            for name in names:
                status = name.stat(follow_symlinks=False)
                found[prefix + name.name] = facts_of(status)
                if stat.S_ISDIR(status.st_mode):
                    waiting.append((f"{prefix}{name.name}/", name.path, status))
                elif status.st_nlink != 1 or not (
                    stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode)
                ):
                    return None
    return found
