"""Versions of the artifact, named by their content: directory to tree and back.

A tree keeps names, bytes, permission bits, empty folders and links that stay inside.
Names are kept as they are on disk; nothing is normalised. Byte code (``__pycache__``,
``*.pyc``), and ``.git`` are left out. No link is ever followed.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import TypeAlias

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.globs import covers
from pytest_evo.artifact.links import leads_out
from pytest_evo.artifact.links import link_problem
from pytest_evo.artifact.patches import Change
from pytest_evo.artifact.patches import changes
from pytest_evo.artifact.patches import diff
from pytest_evo.artifact.removal import remove
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

__all__ = [
    "Change",
    "changes",
    "diff",
    "Facts",
    "facts_of",
    "is_left_out",
    "Known",
    "left_out",
    "make_tree",
    "remove",
    "restore",
    "snapshot",
    "write_entry",
]

_BY_DIRECTORY = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_READ = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)
_READ |= getattr(os, "O_BINARY", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW | getattr(os, "O_BINARY", 0)
_DEEPEST = 100
_BIG = 1 << 18


# -- naming --------------------------------------------------------------------------


def make_tree(entries: Iterable[TreeEntry]) -> Tree:
    """Sort the entries and name the tree.

    The hash covers path, kind, content, execute bit and link target. Other permission
    bits are kept and restored but do not make another version.
    """
    ordered = tuple(sorted(entries, key=lambda entry: entry.path))
    digest = hashlib.sha256(b"pytest-evo tree 1\0")
    for entry in ordered:
        runs = "x" if entry.kind == "file" and entry.mode & 0o100 else "-"
        line = (entry.kind, entry.path, entry.blob or entry.target, runs, "")
        digest.update("\0".join(line).encode())
    return Tree(digest.hexdigest(), ordered)


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


@dataclass(frozen=True, slots=True)
class Known:
    """A file whose content was read, with its facts at that time."""

    facts: Facts
    entry: TreeEntry


def facts_of(status: os.stat_result) -> Facts:
    """Facts of a name on disk; of a folder, those that tell it from another folder."""
    facts = (status.st_mode, status.st_ino, status.st_dev)
    if stat.S_ISDIR(status.st_mode):
        return facts
    return (*facts, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


# -- directory to tree ---------------------------------------------------------------


def snapshot(
    directory: Path,
    blobs: BlobStore,
    *,
    include: Sequence[str] = (),
    max_bytes: int | None = None,
    max_files: int | None = None,
    known: Mapping[str, Known] | None = None,
) -> Tree:
    """Read a directory as a tree; with limits, nothing is stored before they hold.

    Args:
        directory: a real directory, not a link to one.
        blobs: gets the contents that it does not have.
        include: globs that narrow the tree; empty means everything.
        max_bytes: of all files together.
        max_files: files, folders and links together.
        known: files that need not be read where their facts are still these.

    Raises:
        ArtifactProblem: a limit, a link that leads out, a pipe, socket or device, a
            name that is not UTF-8, or something that cannot be read.
    """
    reader = _Reader(blobs, tuple(include), max_bytes, max_files, known or {})
    try:
        handle = os.open(directory, _READ | os.O_DIRECTORY) if _BY_DIRECTORY else None
    except OSError as error:
        raise _unreadable(str(directory), error) from error
    reader.folder(handle, directory, "")
    return reader.tree()


@dataclass(slots=True)
class _Reader:
    """One pass over a directory that trusts no name twice."""

    blobs: BlobStore
    include: tuple[str, ...]
    max_bytes: int | None
    max_files: int | None
    known: Mapping[str, Known]
    entries: list[TreeEntry] = field(default_factory=list)
    pending: dict[str, bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    total: int = 0
    folders: int = 0

    def tree(self) -> Tree:
        problem = link_problem(self.links)
        if problem:
            raise ArtifactProblem(problem)
        self._store()
        entries = self.entries
        return make_tree(_narrowed(entries, self.include) if self.include else entries)

    def folder(self, handle: int | None, directory: Path, prefix: str) -> None:
        """Read a folder through its descriptor, which is closed afterwards."""
        try:
            with os.scandir(directory if handle is None else handle) as found:
                names = sorted(entry.name for entry in found)
            for name in names:
                self._name(handle, directory, prefix + _checked(name, prefix))
        except OSError as error:
            raise _unreadable(prefix or str(directory), error) from error
        finally:
            if handle is not None:
                os.close(handle)

    def _name(self, handle: int | None, directory: Path, path: str) -> None:
        name = path.rpartition("/")[2]
        where: str | Path = directory / name if handle is None else name
        facts = os.stat(where, dir_fd=handle, follow_symlinks=False)
        kind = _KINDS.get(stat.S_IFMT(facts.st_mode))
        if kind and is_left_out(name, kind):
            return
        if kind == "dir":
            self._check_mode(path, facts.st_mode, 0o500)
            if path.count("/") >= _DEEPEST:
                raise ArtifactProblem(
                    f"{path[:80]!r}... has more than {_DEEPEST} folders in each other. "
                    "Make it flatter."
                )
            self._add(TreeEntry(path, "dir", stat.S_IMODE(facts.st_mode) & 0o777))
            inner = None
            if handle is not None:
                inner = os.open(name, _READ | os.O_DIRECTORY, dir_fd=handle)
            self.folder(inner, directory / name, f"{path}/")
        elif self.include and not any(covers(glob, path) for glob in self.include):
            return
        elif kind == "link":
            self._link(path, os.readlink(where, dir_fd=handle))
        elif kind == "file":
            self._check_mode(path, facts.st_mode, 0o400)
            self._check_bytes(path, facts.st_size)
            if path in self.known and self.known[path].facts == facts_of(facts):
                self.total += facts.st_size
                self._add(self.known[path].entry)
                return
            self._file(path, os.open(where, _READ, dir_fd=handle))
        else:
            raise ArtifactProblem(
                f"{path!r} is a pipe, a socket or a device. Only files, folders and "
                "links can be versions of something: remove it."
            )

    def _file(self, path: str, handle: int) -> None:
        try:
            facts = os.fstat(handle)
            if not stat.S_ISREG(facts.st_mode):
                raise ArtifactProblem(f"{path!r} changed while it was read. Try again.")
            data = self._all_of(handle, facts.st_size)
        finally:
            os.close(handle)
        self._check_bytes(path, len(data))
        self.total += len(data)
        blob = hashlib.sha256(data).hexdigest()
        self.pending[blob] = data
        if self.max_bytes is None and self.max_files is None:
            self._store()  # without limits, memory is one
        mode = stat.S_IMODE(facts.st_mode) & 0o777
        self._add(TreeEntry(path, "file", mode, blob, len(data)))

    def _all_of(self, handle: int, size: int) -> bytes:
        """Read to the end, or one byte more than may be."""
        left = size + 1  # a file that grows meanwhile is read on
        if self.max_bytes is not None:
            left = min(left, self.max_bytes - self.total + 1)
        data = os.read(handle, left)
        while more := os.read(handle, left):
            data += more
            self._check_bytes("a growing file", len(data))
        return data

    def _link(self, path: str, target: str) -> None:
        _checked(target, f"the link {path} to ")
        self.links[path] = target
        self._add(TreeEntry(path, "link", 0o777, target=target))

    def _add(self, entry: TreeEntry) -> None:
        self.entries.append(entry)
        folder = entry.kind == "dir"
        self.folders += folder
        count = self.folders if folder else len(self.entries) - self.folders
        if self.max_files is not None and count > self.max_files:
            raise ArtifactProblem(
                f"The artifact has more than {self.max_files} "
                f"{'folders' if folder else 'files'} (setting max_files). Remove "
                "some, or write a higher max_files."
            )

    def _check_bytes(self, path: str, size: int) -> None:
        if self.max_bytes is not None and self.total + size > self.max_bytes:
            raise ArtifactProblem(
                f"The artifact has more than {self.max_bytes} bytes (setting "
                f"max_bytes); {path!r} alone has {size} or more. Make it smaller, or "
                "write a higher max_bytes."
            )

    def _check_mode(self, path: str, mode: int, needed: int) -> None:
        # root could read it and a user could not: the answer is the same for both
        if mode & needed != needed:
            raise ArtifactProblem(
                f"{path!r} cannot be read by its owner (mode {mode & 0o777:04o}). "
                "Type chmod u+r (a folder: u+rx)."
            )

    def _store(self) -> None:
        for name, data in self.pending.items():
            if not self.blobs.has(name):
                self.blobs.put(data)
        self.pending.clear()


_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}


def _checked(name: str, prefix: str) -> str:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ArtifactProblem(
            f"{prefix}{os.fsencode(name)!r} is not UTF-8. Rename it."
        ) from None
    return name


def _narrowed(entries: list[TreeEntry], include: Sequence[str]) -> list[TreeEntry]:
    """Drop the folders that neither fit themselves nor hold anything kept."""
    needed: set[str] = set()
    for entry in entries:
        if entry.kind != "dir" or any(covers(glob, entry.path) for glob in include):
            parts = entry.path.split("/")
            needed.update("/".join(parts[:n]) for n in range(1, len(parts) + 1))
    return [entry for entry in entries if entry.path in needed]


def _unreadable(path: str, error: OSError) -> ArtifactProblem:
    return ArtifactProblem(
        f"{error.filename or path!r} cannot be read ({error.strerror}). Make it a "
        "readable part of the artifact, or remove it."
    )


# -- tree to directory ---------------------------------------------------------------


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
    """Write one name of a tree to a path that does not exist yet."""
    try:
        if entry.kind == "dir":
            os.mkdir(path, 0o700)  # noqa: PTH102, speed
        elif entry.kind == "link":
            os.symlink(entry.target, path)  # noqa: PTH211, speed
        else:
            handle = os.open(path, _WRITE, 0o600)
            with open(handle, "wb", buffering=0) as file:  # noqa: PTH123
                _write_all(file, blobs.get(entry.blob))
                os.chmod(path if os.name == "nt" else handle, entry.mode)  # noqa: PTH101
    except FileExistsError as error:
        raise ArtifactProblem(
            f"{entry.path!r} and another name of this version are the same on this "
            "file system (upper and lower case, or the form of accents). Rename one."
        ) from error


def _write_all(file: io.FileIO, data: bytes) -> None:
    """Write bytes; long stretches of zeros in big files become holes again."""
    if len(data) <= _BIG:
        left = memoryview(data)
        while left:
            left = left[file.write(left) :]
        return
    for start in range(0, len(data), _BIG):
        chunk = data[start : start + _BIG]
        if chunk.count(0) == len(chunk):
            file.seek(len(chunk), os.SEEK_CUR)
        else:
            _write_all(file, chunk)
    file.truncate(len(data))


def _check_entries(tree: Tree) -> None:
    """A tree may come from another machine: no name may lead out of its directory."""
    links = {entry.path: entry.target for entry in tree.entries if entry.kind == "link"}
    folders = {"", *(entry.path for entry in tree.entries if entry.kind == "dir")}
    for entry in tree.entries:
        parts = entry.path.split("/")
        sound = (
            entry.kind in ("file", "dir", "link")
            and not {"", ".", ".."} & set(parts)
            and "\0" not in entry.path
            and (os.name != "nt" or not set(entry.path) & set("\\:"))
            and entry.path.rpartition("/")[0] in folders
        )
        if entry.kind == "link":
            absolute = os.path.isabs(entry.target)  # noqa: PTH117
            sound = sound and not absolute and not leads_out(entry.path, links)
        if not sound:
            raise ArtifactProblem(
                f"The version {tree.hash[:12]} holds {entry.path!r} ({entry.kind} "
                f"{entry.target!r}), which is no place inside an artifact. Remove the "
                "run, it was tampered with."
            )
