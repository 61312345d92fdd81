"""Where files go that live for seconds: into memory where there is some to spare."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

_MEMORY = Path("/dev/shm")
_LEAST_FREE = 256_000_000
_TIMES = 50


def bytes_below(directory: Path) -> int:
    """Size of all files of a directory; links are not followed."""
    found = 0
    for top, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(OSError):  # gone meanwhile
                found += os.lstat(f"{top}/{name}").st_size
    return found


def scratch_directory(prefix: str, needed: int) -> Path:
    """Make a directory for short-lived copies of ``needed`` bytes.

    A file system in memory is taken where programs may be run from it and 50 copies,
    or 256 MB, are free; else the usual place for temporary files.
    """
    if hasattr(os, "statvfs") and os.access(_MEMORY, os.W_OK | os.X_OK):
        room = os.statvfs(_MEMORY)
        free = room.f_bavail * room.f_frsize
        runs = not room.f_flag & getattr(os, "ST_NOEXEC", 0)
        if runs and free >= max(_LEAST_FREE, _TIMES * needed):
            return Path(tempfile.mkdtemp(prefix=prefix, dir=_MEMORY))
    return Path(tempfile.mkdtemp(prefix=prefix))
