"""Writing so that a reader never meets half a file, and saying why it failed."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

from pytest_evo.artifact.writing import write_all
from pytest_evo.errors import RunDirectoryProblem

_COUNTER = itertools.count()
_FLAGS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS
_ANEW = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _FLAGS
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_REFUSED = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


def failed(error: OSError, path: Path) -> RunDirectoryProblem:
    """Turn a failed write into an error that names the disk and the way on."""
    if error.errno in _FULL:
        return RunDirectoryProblem(
            f"cannot write {path}: {error.strerror}. The disk that holds it, its quota "
            "or its inodes are used up. What was recorded before is safe: make room "
            "there, then type: pytest --evolve --evo-resume=last"
        )
    if error.errno in _REFUSED:
        return RunDirectoryProblem(
            f"cannot write {path}: {error.strerror}. Make it writable, or choose "
            "another place with: pytest --evolve --evo-run-dir=DIR"
        )
    return RunDirectoryProblem(
        f"cannot write {path}: {error.strerror or error}. Check the disk that holds "
        "it, then type: pytest --evolve --evo-resume=last"
    )


@contextlib.contextmanager
def beginning(root: Path) -> Iterator[None]:
    """Tell of failed writes before a run's first rollout: nothing can be resumed yet.

    Raises:
        RunDirectoryProblem: the disk refuses; it names the way to another place.
    """
    try:
        yield
    except OSError as error:
        raise _cannot_begin(error, root) from error
    except RunDirectoryProblem as problem:
        if isinstance(problem.__cause__, OSError):
            raise _cannot_begin(problem.__cause__, root) from problem.__cause__
        raise


def _cannot_begin(error: OSError, path: Path) -> RunDirectoryProblem:
    why = error.strerror or str(error)
    remedy = "Make it a directory that can be written to"
    if error.errno in _FULL:
        remedy = (
            "The disk that holds it, its quota or its inodes are used up: make room"
        )
    return RunDirectoryProblem(
        f"no run can be kept in {path}: {why} ({error.filename or path}). {remedy}, or "
        "choose another place with: pytest --evolve --evo-run-dir=DIR"
    )


def sync_directory(path: Path) -> None:
    """Make names created or replaced in a directory survive a power loss.

    Raises:
        OSError: the disk refuses.
    """
    if sys.platform == "win32":
        return  # directories cannot be opened there
    descriptor = os.open(path, os.O_RDONLY | _FLAGS)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace a file at once: readers see the old content or all of the new one.

    With ``durable`` the new content survives a power loss when this returns.

    Raises:
        RunDirectoryProblem: the disk is full, read-only or broken; the old file stands.
    """
    temporary = path.with_name(f".{path.name[:80]}.{os.getpid()}-{next(_COUNTER)}.tmp")
    try:
        descriptor = os.open(temporary, _NEW, 0o644)
        try:
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
        if durable:
            sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise failed(error, path) from error


def write_plain(path: str, data: bytes) -> None:
    """Write a file under its own name and do not wait for the disk.

    For what is no truth: moving it into place would take three times as long. Its
    folder is made if it is not there.

    Raises:
        RunDirectoryProblem: the disk is full, read-only or broken; no file is left.
    """
    try:
        descriptor = _opened(path, _ANEW)
    except OSError as error:
        raise failed(error, Path(path)) from error
    _fill(descriptor, Path(path), data)


def write_once(path: Path, data: bytes, is_whole: Callable[[], bool]) -> None:
    """Write a file that is named by its content; durable on return.

    It is created under its own name, so that one wait for the disk covers content and
    name. What a crash leaves is found by its name not being that of its content: where
    there is a file of that name and it is not ``is_whole``, it is written again.

    Raises:
        RunDirectoryProblem: the disk is full, read-only or broken, or a file of that
            name cannot be read; no half file is left.
    """
    try:
        try:
            descriptor = _opened(path, _NEW)
        except FileExistsError:
            if is_whole():
                return
            path.unlink()
            descriptor = _opened(path, _NEW)
    except OSError as error:
        raise failed(error, path) from error
    _fill(descriptor, path, data, durable=True)


def _opened(path: str | Path, flags: int) -> int:
    """Open a file; its folder is made for the first one in it."""
    try:
        return os.open(path, flags, 0o644)
    except FileNotFoundError:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, flags, 0o644)


def _fill(descriptor: int, path: Path, data: bytes, *, durable: bool = False) -> None:
    """Write what was just opened, and close it; no half file is left."""
    try:
        try:
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        with contextlib.suppress(OSError):
            path.unlink()
        raise failed(error, path) from error


class AppendFile:
    """A file that only grows, by whole appends: a failed one leaves no trace.

    ``end`` is where the sound content ends; what is behind it is cut off.

    Raises:
        RunDirectoryProblem: it cannot be opened or cut; the disk refuses.
    """

    def __init__(self, path: Path, end: int) -> None:
        self.path = path
        self.end = end
        self._dirty = False
        try:
            self._descriptor = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | _FLAGS, 0o644
            )
        except OSError as error:
            raise failed(error, path) from error
        try:
            if os.fstat(self._descriptor).st_size > end:
                os.ftruncate(self._descriptor, end)
                os.fsync(self._descriptor)
        except OSError as error:
            os.close(self._descriptor)
            raise failed(error, path) from error

    def append(self, data: bytes, *, durable: bool) -> None:
        """Write ``data`` as a whole or not at all.

        With ``durable`` everything appended until now survives a power loss, and so
        does the name of a new file, which file systems write with its first content.

        Raises:
            RunDirectoryProblem: nothing was appended, or somebody else has written
                to the file or removed it.
        """
        try:
            if self._dirty:
                os.ftruncate(self._descriptor, self.end)
                self._dirty = False
            if durable:
                self._insist_on_untouched()
            self._dirty = True
            write_all(self._descriptor, data)
            if durable:
                os.fsync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.end)
                self._dirty = False
            raise failed(error, self.path) from error
        self._dirty = False
        self.end += len(data)

    def _insist_on_untouched(self) -> None:
        """A removed file would take everything and keep nothing."""
        status = os.fstat(self._descriptor)
        if status.st_nlink == 0 or status.st_size != self.end:
            what = "removed" if status.st_nlink == 0 else "changed"
            raise RunDirectoryProblem(
                f"{self.path} was {what} by something else while the run was going on. "
                "Find out what did it: a test or a candidate may write where it should "
                "not. Then look at what is left with: pytest-evo runs"
            )

    def begin_again(self, path: Path) -> None:
        """Drop all content and go on under another name, which no file has yet.

        Raises:
            OSError: it cannot be cut or renamed.
        """
        os.ftruncate(self._descriptor, 0)
        self.end = 0
        self._dirty = False
        self.path.rename(path)
        self.path = path

    def close(self) -> None:
        """Give the descriptor back; closing twice is harmless."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1
