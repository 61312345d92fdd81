"""Room for the files of rollouts: a full disk must not look like a bad candidate."""

from __future__ import annotations

import errno
import os
from pathlib import Path

LEAST_BYTES = 65536
"""Room without which a candidate's copy, or a test's files, may be cut short."""
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(error: OSError) -> bool:
    """Whether an operation failed for want of room."""
    return error.errno in _FULL


def no_room(directory: Path) -> str | None:
    """Why nothing more can be written below a directory; None if it can."""
    try:
        found = os.statvfs(directory)
    except (OSError, AttributeError):  # gone, or another system: nothing is known
        return None
    if found.f_bavail * found.f_frsize < LEAST_BYTES:
        return told(directory, f"{found.f_bavail * found.f_frsize} bytes are left")
    if found.f_files and not found.f_favail:
        return told(directory, "no inodes are left")
    return None


def told(directory: Path, why: str) -> str:
    """The message for a person."""
    return (
        f"the disk that holds {directory} is full: {why}. Rollouts that were going on "
        "there are not believed. What was recorded before is safe: make room there, "
        "then type: pytest --evolve --evo-resume=last"
    )
