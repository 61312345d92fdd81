"""Tree to directory: names of their own, nothing outside, nothing half."""

from __future__ import annotations

import os
from pathlib import Path

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.links import leads_out
from pytest_evo.artifact.removal import remove
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
_WRITE |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_BIG = 1 << 18


def restore(tree: Tree, blobs: BlobStore, destination: Path) -> None:
    """Write a tree into a directory that is missing or empty.

    Every file is a copy of its own. Nothing stays behind when it fails.

    Raises:
        ArtifactProblem: the directory is not empty, or the tree is not sound.
        OSError: the disk is full, or like this.
    """
    try:
        destination.mkdir(parents=True)
    except FileExistsError:
        if destination.is_symlink() or any(destination.iterdir()):
            raise ArtifactProblem(
                f"{destination} is not empty; a version is written into a new place."
            ) from None
    _check_entries(tree)
    base = str(destination)
    try:
        for entry in tree.entries:
            write_entry(entry, blobs, f"{base}/{entry.path}")
        for entry in reversed(tree.entries):
            if entry.kind == "dir" and entry.mode != 0o700:
                os.chmod(f"{base}/{entry.path}", entry.mode)  # noqa: PTH101, speed
    except BaseException:
        remove(destination)
        raise


def write_entry(entry: TreeEntry, blobs: BlobStore, path: str) -> None:
    """Write one name of a tree to a path that does not exist yet.

    Raises:
        ArtifactProblem: two names of the tree are one on this file system.
        OSError: the disk is full, or like this.
    """
    try:
        if entry.kind == "dir":
            os.mkdir(path, 0o700)  # noqa: PTH102, speed
        elif entry.kind == "link":
            os.symlink(entry.target, path)  # noqa: PTH211, speed
        else:
            handle = os.open(path, _WRITE, 0o600)
            try:
                _write_content(handle, blobs.get(entry.blob))
                os.chmod(path if os.name == "nt" else handle, entry.mode)  # noqa: PTH101
            finally:
                os.close(handle)
    except FileExistsError as error:
        raise ArtifactProblem(
            f"{entry.path!r} and another name of this version are the same on this "
            "file system (upper and lower case, or the form of accents). Rename one."
        ) from error


def write_all(handle: int, data: bytes) -> None:
    """Write every byte; one system call unless the kernel takes fewer.

    Raises:
        OSError: the disk refuses; some bytes may have been written.
    """
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]


def _write_content(handle: int, data: bytes) -> None:
    """Write bytes; long stretches of zeros in big files become holes again."""
    if len(data) <= _BIG:
        write_all(handle, data)
        return
    for start in range(0, len(data), _BIG):
        chunk = data[start : start + _BIG]
        if chunk.count(0) == len(chunk):
            os.lseek(handle, len(chunk), os.SEEK_CUR)
        else:
            write_all(handle, chunk)
    os.ftruncate(handle, len(data))


def _check_entries(tree: Tree) -> None:
    """A tree may come from another machine: no name may lead out of its directory."""
    links = {entry.path: entry.target for entry in tree.entries if entry.kind == "link"}
    seen: set[str] = set()
    folders = {""}  # that are written before what is in them
    for entry in tree.entries:
        parts = entry.path.split("/")
        sound = (
            entry.kind in ("file", "dir", "link")
            and not {"", ".", ".."} & set(parts)
            and "\0" not in entry.path + entry.target
            and entry.path not in seen
            and (os.name != "nt" or not set(entry.path) & set("\\:"))
            and entry.path.rpartition("/")[0] in folders
        )
        if entry.kind == "link":
            absolute = os.path.isabs(entry.target)  # noqa: PTH117
            sound = sound and entry.target != "" and not absolute
            sound = sound and not leads_out(entry.path, links)
        if not sound:
            raise ArtifactProblem(
                f"The version {tree.hash[:12]} holds {entry.path!r} ({entry.kind} "
                f"{entry.target!r}), which is no place inside an artifact, or not in "
                "its order. Remove the run, it was tampered with."
            )
        seen.add(entry.path)
        if entry.kind == "dir":
            folders.add(entry.path)
