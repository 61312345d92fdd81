"""Directory to tree: every name is looked at once, through its folder's descriptor."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from operator import attrgetter
from pathlib import Path

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.globs import covers
from pytest_evo.artifact.links import link_problem
from pytest_evo.artifact.naming import Facts
from pytest_evo.artifact.naming import facts_of
from pytest_evo.artifact.naming import is_left_out
from pytest_evo.artifact.naming import Known
from pytest_evo.artifact.naming import Look
from pytest_evo.artifact.naming import make_tree
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

_BY_DIRECTORY = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_READ = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_READ |= getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_KINDS = {stat.S_IFREG: "file", stat.S_IFDIR: "dir", stat.S_IFLNK: "link"}
_DEEPEST = 100
_NAME = attrgetter("name")


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
    reader.read(directory)
    return reader.tree()


@dataclass(frozen=True, slots=True)
class Seen:
    """A version that was read, and what its names were when they were read.

    ``look`` is None where the directory holds more than the version, or something
    that can be changed from elsewhere: a second name of a file, a locked folder.
    """

    tree: Tree
    look: Look | None


def see(
    directory: Path,
    blobs: BlobStore,
    *,
    max_bytes: int,
    max_files: int,
    known: Mapping[str, Known] | None = None,
) -> Seen:
    """As :func:`snapshot`, with the facts of all names.

    They are older than what was read, so that no later change can hide behind them.
    """
    reader = _Reader(blobs, (), max_bytes, max_files, known or {})
    reader.read(directory)
    return Seen(reader.tree(), reader.look if reader.whole else None)


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
    look: dict[str, Facts] = field(default_factory=dict)
    whole: bool = True
    total: int = 0
    folders: int = 0

    def read(self, directory: Path) -> None:
        """Read a directory that nothing was read of yet.

        Raises:
            ArtifactProblem: something in it can be no part of a version.
        """
        try:
            handle = None
            if _BY_DIRECTORY:
                handle = os.open(directory, _READ | os.O_DIRECTORY)
            own = directory.stat() if handle is None else os.fstat(handle)
        except OSError as error:
            raise _unreadable(str(directory), error) from error
        self._note("", own)
        self.folder(handle, directory, "")

    def tree(self) -> Tree:
        """The tree of what was read; its contents are stored.

        Raises:
            ArtifactProblem: a link leads out.
        """
        problem = link_problem(self.links)
        if problem:
            raise ArtifactProblem(problem)
        self._store()
        entries = self.entries
        return make_tree(_narrowed(entries, self.include) if self.include else entries)

    def folder(self, handle: int | None, directory: Path, prefix: str) -> None:
        """Read a folder through its descriptor, which is closed afterwards.

        Raises:
            ArtifactProblem: something in it can be no part of a version.
        """
        try:
            with os.scandir(directory if handle is None else handle) as found:
                entries = sorted(found, key=_NAME)
            for entry in entries:
                self._name(
                    handle, directory, prefix + _checked(entry.name, prefix), entry
                )
        except OSError as error:
            raise _unreadable(prefix or str(directory), error) from error
        finally:
            if handle is not None:
                os.close(handle)

    def _name(
        self, handle: int | None, directory: Path, path: str, found: os.DirEntry[str]
    ) -> None:
        name = found.name
        where: str | Path = name
        if handle is None:  # where a listing knows less of a file than a look at it
            where = directory / name
            facts = where.lstat()
        else:
            facts = found.stat(follow_symlinks=False)
        known = None if self.include else self.known.get(path)
        if known is not None and known.facts == facts_of(facts):
            self._check_bytes(path, facts.st_size)
            self.total += facts.st_size
            self._note(path, facts)
            self._add(known.entry)
            return
        kind = _KINDS.get(stat.S_IFMT(facts.st_mode))
        if kind and is_left_out(name, kind):
            self.whole = False
            return
        self._note(path, facts)
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

    def _note(self, path: str, facts: os.stat_result) -> None:
        self.look[path] = facts_of(facts)
        if stat.S_ISDIR(facts.st_mode):
            self.whole = self.whole and facts.st_mode & 0o700 == 0o700
        elif facts.st_nlink != 1:
            self.whole = False

    def _add(self, entry: TreeEntry) -> None:
        self.entries.append(entry)
        folder = entry.kind == "dir"
        if folder:
            self.folders += 1
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
