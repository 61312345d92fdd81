"""Where files go that live for seconds, and what a killed process left there."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_evo.artifact.removal import remove

if sys.platform != "win32":  # there nothing is claimed and nothing swept
    from fcntl import flock
    from fcntl import LOCK_EX
    from fcntl import LOCK_NB

SCRATCH_PREFIX = "pytest-evo-"
"""How the names of a controller's directories begin."""
_MEMORY = Path("/dev/shm")
_LEAST_FREE = 256_000_000
_TIMES = 50
_CLAIM = ".pytest-evo"
_YOUNG = 60.0  # s; until then a directory may still be unclaimed
_claims: dict[Path, int] = {}


def bytes_below(directory: Path) -> int:
    """Size of all files of a directory; links are not followed."""
    found = 0
    for top, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # gone meanwhile
                found += os.lstat(f"{top}/{name}").st_size
    return found


def temporary_directory(prefix: str) -> Path:
    """Make a directory in the usual place; give it back with :func:`give_back`."""
    return _claimed(tempfile.mkdtemp(prefix=prefix))


def scratch_directory(prefix: str, needed: int) -> Path:
    """Make a directory for short-lived copies of ``needed`` bytes.

    A file system in memory is taken where programs may be run from it and 50 copies,
    or 256 MB, are free; else the usual place for temporary files. Give it back with
    :func:`give_back`.
    """
    if hasattr(os, "statvfs") and os.access(_MEMORY, os.W_OK | os.X_OK):
        room = os.statvfs(_MEMORY)
        free = room.f_bavail * room.f_frsize
        runs = not room.f_flag & getattr(os, "ST_NOEXEC", 0)
        if runs and free >= max(_LEAST_FREE, _TIMES * needed):
            return _claimed(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY))
    return temporary_directory(prefix)


def give_back(directory: Path) -> None:
    """Remove a directory with all that is in it, as far as that can be done."""
    with contextlib.suppress(OSError):
        remove(directory)
    claim = _claims.pop(directory, -1)
    if claim >= 0:
        os.close(claim)


def remove_abandoned(*prefixes: str) -> None:
    """Remove directories whose process was killed.

    Only this user's, and only those that were made here: each of them has a file that
    names it, not a copy of it, and is locked for as long as its process lives.
    """
    if sys.platform == "win32":
        return
    for path in _abandoned(prefixes):
        with contextlib.suppress(OSError):
            descriptor = os.open(path / _CLAIM, os.O_RDWR | os.O_NOFOLLOW)
            try:
                flock(descriptor, LOCK_EX | LOCK_NB)
                if os.read(descriptor, 100) == _identity(path):
                    remove(path)
            finally:
                os.close(descriptor)


def _claimed(name: str) -> Path:
    """Keep others from taking a directory for abandoned while this process lives."""
    directory = Path(name)
    if sys.platform != "win32":
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        descriptor = os.open(directory / _CLAIM, flags, 0o600)
        with contextlib.suppress(OSError):  # a file system without locks
            flock(descriptor, LOCK_EX | LOCK_NB)
        os.write(descriptor, _identity(directory))
        _claims[directory] = descriptor
    return directory


def _identity(directory: Path) -> bytes:
    status = directory.stat()
    return f"{status.st_dev} {status.st_ino}\n".encode()


def _forget() -> None:
    """In a fork: it could give back what its parent holds."""
    for descriptor in _claims.values():
        os.close(descriptor)
    _claims.clear()


def _abandoned(prefixes: tuple[str, ...]) -> Iterator[Path]:
    """Directories of this user that may be left over."""
    before = time.time() - _YOUNG
    for parent in {_MEMORY, Path(tempfile.gettempdir())}:
        with contextlib.suppress(OSError), os.scandir(parent) as found:
            for entry in found:
                if entry.name.startswith(prefixes) and _is_old(entry, before):
                    yield Path(entry.path)


def _is_old(entry: os.DirEntry[str], before: float) -> bool:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # gone meanwhile
        return False
    ours = entry.is_dir(follow_symlinks=False) and status.st_uid == os.geteuid()
    return ours and status.st_mtime < before


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
