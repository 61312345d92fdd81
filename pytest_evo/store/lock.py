"""One controller per run: a lock that the kernel holds and the holder's death frees."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import time
import weakref
from datetime import datetime
from pathlib import Path
from types import TracebackType

from pytest_evo.artifact.writing import write_all
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.store.disk import failed

LOCK = "lock"

_BUSY = frozenset({errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN, errno.EDEADLK})
_UNSUPPORTED = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
_HOLDER_BYTES = 4096


class RunLock:
    """The right to write to a run directory, held until released or dead.

    Readers need no lock. Forked children do not keep it alive.

    Args:
        run_dir: the run directory.
        now: the present moment, for the message that another controller gets.
    """

    def __init__(self, run_dir: Path, now: datetime) -> None:
        self._path = run_dir / LOCK
        self._since = now
        self._descriptor = -1

    def acquire(self) -> None:
        """Take the lock at once or not at all.

        Raises:
            RunDirectoryProblem: another controller holds it (the message names it), or
                the disk cannot lock or write.
        """
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0)
        try:
            descriptor = os.open(self._path, flags, 0o644)
        except OSError as error:
            raise failed(error, self._path) from error
        try:
            _lock(descriptor)
        except OSError as error:
            os.close(descriptor)
            raise self._refusal(error) from error
        try:
            os.ftruncate(descriptor, 0)
            write_all(descriptor, self._holder())
        except OSError as error:
            os.close(descriptor)
            raise failed(error, self._path) from error
        self._descriptor = descriptor
        _HELD.add(self)

    def release(self) -> None:
        """Give the lock back; releasing twice is harmless."""
        _HELD.discard(self)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _holder(self) -> bytes:
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "since": self._since.isoformat(timespec="seconds"),
        }
        return json.dumps(holder).encode()

    def _refusal(self, error: OSError) -> RunDirectoryProblem:
        if error.errno in _BUSY:
            return self._held()
        if error.errno in _UNSUPPORTED:
            return RunDirectoryProblem(
                f"{self._path} cannot be locked: {error.strerror}. The file system "
                "has no locks, so two controllers could destroy the run; choose a "
                "directory on another one with: pytest --evolve --evo-run-dir=DIR"
            )
        return failed(error, self._path)

    def _held(self) -> RunDirectoryProblem:
        run = self._path.parent.name
        holder = self._read_holder()
        if holder is None:
            return RunDirectoryProblem(
                f"run {run} is in use by another controller, which holds {self._path}. "
                "Wait until it ends, or start a run of its own: pytest --evolve"
            )
        pid, host, since = holder
        return RunDirectoryProblem(
            f"run {run} is in use by process {pid} on host {host} since {since}. Wait "
            f"until it ends, stop it there with: kill {pid} - or start a run of its "
            "own: pytest --evolve"
        )

    def _read_holder(self) -> tuple[object, object, object] | None:
        # The other one may have the lock and not yet have written who it is.
        for _ in range(10):
            try:
                holder = json.loads(self._path.read_bytes()[:_HOLDER_BYTES])
                return holder["pid"], holder["host"], holder["since"]
            except (OSError, ValueError, KeyError, TypeError):
                time.sleep(0.02)
        return None

    def _forget(self) -> None:
        """In a forked child: close what would outlive the holder."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_HELD: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in tuple(_HELD):
        lock._forget()
    _HELD.clear()


if sys.platform == "win32":
    import msvcrt

    def _lock(descriptor: int) -> None:
        # A byte far behind the content, which others have to be able to read.
        os.lseek(descriptor, 1 << 30, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        os.lseek(descriptor, 0, os.SEEK_SET)

else:
    import fcntl

    def _lock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)

    os.register_at_fork(after_in_child=_forget_all)
