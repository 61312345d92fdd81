"""Candidates on the worker's side: blobs by hash, throw-away copies, violations."""

# Copies are made for every request: strings and descriptors, not Path objects.
# ruff: noqa: PTH101, PTH102, PTH103, PTH110, PTH115, PTH211

from __future__ import annotations

import hashlib
import os
import posixpath
import stat
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from pytest_evo.artifact.links import leads_out
from pytest_evo.artifact.removal import remove
from pytest_evo.artifact.writing import write_all
from pytest_evo.errors import EvoError
from pytest_evo.models import COPY_CHANGED
from pytest_evo.models import TreeEntry
from pytest_evo.plugin.environment import set_variable
from pytest_evo.plugin.room import is_full

_SMALL = 64 * 1024  # bytes of a blob that is kept in memory while there is room
_IN_MEMORY = 16_000_000  # bytes of all of these
_CHUNK = 1 << 20
_BYTECODE = (".pyc", ".pyo")


class ManifestRefused(EvoError):
    """A manifest names something outside of its own directory."""


def quiet_bytecode() -> None:
    """Let this process and its children read, but never write, byte code.

    Python believes byte code whose source has the same size and second; what is never
    written cannot be believed for the next candidate.
    """
    sys.dont_write_bytecode = True
    set_variable("PYTHONDONTWRITEBYTECODE", "1")


class CandidateCache:
    """Blobs of candidates below ``directory`` and throw-away copies made of them.

    The newest small blobs are in memory, all others are files: most candidates bring
    one new small file and are run once.
    """

    def __init__(
        self,
        directory: Path,
        copies: Path | None = None,
        *,
        in_memory: int = _IN_MEMORY,
    ) -> None:
        """Work below ``directory``.

        Args:
            directory: for blobs, and for copies unless they have a place of their own.
            copies: where copies are made for as long as there is room.
            in_memory: bytes of blobs that are kept in memory at most.
        """
        self._in_memory = in_memory
        self._blobs = directory / "blobs"
        self._beside = directory / "copies"
        self._copies = copies or self._beside
        self.folders = (directory, self._copies)
        """All that belongs to candidates."""
        self._blobs.mkdir(parents=True, exist_ok=True)
        for folder in (self._copies, self._beside):
            folder.mkdir(parents=True, exist_ok=True)
        self._small: OrderedDict[str, bytes] = OrderedDict()
        self._small_bytes = 0

    def missing(self, manifest: Sequence[TreeEntry]) -> list[str]:
        """Hashes of blobs that ``copy`` would lack, each once."""
        wanted = dict.fromkeys(entry.blob for entry in _files(manifest))
        return [sha for sha in wanted if not self._has(sha)]

    def add(self, sha: str, data: bytes) -> None:
        """Keep a blob.

        Raises:
            EvoError: the data has another hash.
        """
        found = hashlib.sha256(data).hexdigest()
        if found != sha:
            raise EvoError(
                f"a file of a candidate arrived damaged: {len(data)} bytes with sha256 "
                f"{found}, announced as {sha}"
            )
        if self._has(sha):
            return
        if len(data) > _SMALL:
            self._store(sha, data)
            return
        self._small[sha] = data
        self._small_bytes += len(data)
        while self._small_bytes > self._in_memory:
            oldest, content = next(iter(self._small.items()))
            self._store(oldest, content)
            del self._small[oldest]
            self._small_bytes -= len(content)

    def copy(self, manifest: Sequence[TreeEntry], into: Path | None = None) -> Path:
        """Make a directory (``into``, or a new one) with exactly these files.

        Contents are real copies (or reflinks), so nothing that is written into them
        reaches another copy. Byte code of the manifest is left out.

        Raises:
            ManifestRefused: a name or a link leads out of the directory.
        """
        check_manifest(manifest)
        if into is not None:
            os.makedirs(into, exist_ok=True)
            self._fill(os.fspath(into), manifest)
            return into
        try:
            return self._new_copy(self._copies, manifest)
        except OSError as error:
            if self._copies == self._beside or not is_full(error):
                raise
        return self._new_copy(self._beside, manifest)

    def _new_copy(self, parent: Path, manifest: Sequence[TreeEntry]) -> Path:
        top = tempfile.mkdtemp(dir=parent)
        try:
            os.chmod(top, 0o755)
            self._fill(top, manifest)
        except BaseException:
            remove_tree(Path(top))
            raise
        return Path(top)

    def _fill(self, top: str, manifest: Sequence[TreeEntry]) -> None:
        folders: list[tuple[str, int]] = []
        made = {""}
        for entry in manifest:
            if _is_bytecode(entry.path):
                continue
            folder = entry.path if entry.kind == "dir" else _parent(entry.path)
            if folder not in made:
                _make_folders(top, folder, made)
            target = f"{top}/{entry.path}"
            if entry.kind == "dir":
                folders.append((target, entry.mode | 0o500))
            elif entry.kind == "link":
                os.symlink(entry.target, target)
            else:
                self._write(entry, target)
        for target, mode in sorted(folders, reverse=True):  # inner ones first
            os.chmod(target, mode)

    def violation(
        self,
        path: Path,
        manifest: Sequence[TreeEntry],
        beside: Collection[str] = (),
    ) -> str | None:
        """What a request added, changed or removed in its copy; None if nothing.

        ``__pycache__`` is overlooked: imports make it. So are names in ``beside``.
        """
        top = os.fspath(path)
        expected = {
            entry.path: entry for entry in manifest if not _is_bytecode(entry.path)
        }
        implied = {folder for name in expected for folder in _folders_of(name)}
        added, changed = [], []
        met = set[str]()
        for name, status in _walk(top):
            met.add(name)
            entry = expected.get(name)
            if entry is None:
                if name in beside:
                    continue
                if name not in implied or not stat.S_ISDIR(status.st_mode):
                    added.append(name)
            elif _differs(entry, f"{top}/{name}", status):
                changed.append(name)
        removed = sorted(expected.keys() - met)
        return _tell({"added": added, "changed": changed, "removed": removed})

    def remove(self, path: Path) -> None:
        """Remove a copy, read-only directories too."""
        remove_tree(path)

    def close(self) -> None:
        """Remove all blobs and copies."""
        remove_tree(self._blobs)
        remove_tree(self._copies)

    def _has(self, sha: str) -> bool:
        return sha in self._small or os.path.exists(self._blobs / sha)

    def _store(self, sha: str, data: bytes) -> None:
        part = self._blobs / f"{sha}.{os.getpid()}.part"
        part.write_bytes(data)
        part.replace(self._blobs / sha)

    def _write(self, entry: TreeEntry, target: str) -> None:
        mode = stat.S_IMODE(entry.mode)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        out = os.open(target, flags, 0o600)
        try:
            small = self._small.get(entry.blob)
            if small is None:
                self._write_from_disk(entry.blob, out)
            elif small:
                self._small.move_to_end(entry.blob)
                write_all(out, small)
            os.fchmod(out, mode)
        finally:
            os.close(out)

    def _write_from_disk(self, sha: str, out: int) -> None:
        source = os.open(self._blobs / sha, os.O_RDONLY | os.O_CLOEXEC)
        try:
            if not _clone(source, out):
                while data := os.read(source, _CHUNK):
                    write_all(out, data)
        finally:
            os.close(source)


def check_manifest(manifest: Sequence[TreeEntry]) -> None:
    """Refuse names and links that lead out of the directory.

    Raises:
        ManifestRefused: with the name.
    """
    links = {entry.path: entry.target for entry in manifest if entry.kind == "link"}
    for entry in manifest:
        name = entry.path
        if not name or name != posixpath.normpath(name) or name[0] == "/":
            raise ManifestRefused(f"a candidate names a file {name!r}")
        if name == ".." or name.startswith("../") or "\0" in name:
            raise ManifestRefused(f"a candidate names a file {name!r}")
        if links and any(folder in links for folder in _folders_of(name)):
            raise ManifestRefused(f"a candidate has {name!r} below a link")
        if entry.kind == "link" and _leaves(name, links):
            raise ManifestRefused(
                f"the link {name!r} of a candidate leads out of it, to {entry.target!r}"
            )


def remove_tree(path: Path) -> None:
    """Remove a directory whatever its modes are; a missing one is fine.

    Raises:
        OSError: it is still there, with the reason.
    """
    for _ in range(2):
        with suppress(OSError):  # something may still be writing into it
            remove(path)
            return
    remove(path)


def _files(manifest: Sequence[TreeEntry]) -> Iterator[TreeEntry]:
    for entry in manifest:
        if entry.kind == "file" and not _is_bytecode(entry.path):
            yield entry


def _is_bytecode(name: str) -> bool:
    return name.endswith(_BYTECODE) or "__pycache__" in name.split("/")


def _parent(name: str) -> str:
    return name.rpartition("/")[0]


def _folders_of(name: str) -> Iterator[str]:
    while name := _parent(name):
        yield name


def _leaves(name: str, links: Mapping[str, str]) -> bool:
    target = links[name]
    return not target or target[0] == "/" or "\0" in target or leads_out(name, links)


def _make_folders(top: str, name: str, made: set[str]) -> None:
    for folder in [*reversed(list(_folders_of(name))), name]:
        if folder not in made:
            made.add(folder)
            with suppress(FileExistsError):  # beside files that include leaves alone
                os.mkdir(f"{top}/{folder}")
                os.chmod(f"{top}/{folder}", 0o755)


def _clone(source: int, target: int) -> bool:
    """Copy inside the kernel, as a reflink where the file system has them."""
    if not hasattr(os, "copy_file_range"):
        return False
    left = os.fstat(source).st_size
    try:
        while left > 0:
            done = os.copy_file_range(source, target, left)
            if done == 0:
                break
            left -= done
    except OSError:
        os.lseek(source, 0, os.SEEK_SET)
        os.lseek(target, 0, os.SEEK_SET)
        os.ftruncate(target, 0)
        return False
    return True


def _walk(top: str, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Names below a folder with their status; links are not followed."""
    try:
        found = list(os.scandir(f"{top}/{below}"))
    except OSError:  # removed, or made unreadable: told as changed or removed
        return
    for entry in found:
        name = below + entry.name
        status = entry.stat(follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            if entry.name == "__pycache__":
                continue
            yield name, status
            yield from _walk(top, f"{name}/")
        elif not entry.name.endswith(_BYTECODE):
            yield name, status


def _differs(entry: TreeEntry, path: str, status: os.stat_result) -> bool:
    mode = stat.S_IMODE(status.st_mode)
    if entry.kind == "link":
        return not stat.S_ISLNK(status.st_mode) or os.readlink(path) != entry.target
    if entry.kind == "dir":
        return not stat.S_ISDIR(status.st_mode) or mode != entry.mode | 0o500
    if not stat.S_ISREG(status.st_mode) or mode != stat.S_IMODE(entry.mode):
        return True
    return status.st_nlink != 1 or _sha256(path) != entry.blob


def _sha256(path: str) -> str | None:
    """The hash of a file; None where it cannot be read."""
    digest = hashlib.sha256()
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        while data := os.read(number, _CHUNK):
            digest.update(data)
    finally:
        os.close(number)
    return digest.hexdigest()


def _tell(kinds: Mapping[str, Sequence[str]]) -> str | None:
    parts = []
    for what, names in kinds.items():
        if names:
            shown = ", ".join(sorted(names)[:5])
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            parts.append(f"{what} {shown}{more}")
    return f"{COPY_CHANGED}{'; '.join(parts)}" if parts else None
