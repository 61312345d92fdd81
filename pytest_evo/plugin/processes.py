"""Killing whole process trees, and nothing else.

A test can leave processes behind that have left its process group. On Linux a worker
is a *subreaper*: what its dead children leave becomes its own child and is found. On
other systems only the process group is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection
from collections.abc import Iterator
from pathlib import Path

LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SWEEP_SECONDS = 2.0  # how long a sweep fights processes that keep forking
_libc = ctypes.CDLL(None, use_errno=True) if LINUX else None


def become_subreaper() -> bool:
    """Adopt the orphans of one's descendants; False where the system cannot."""
    return _libc is not None and _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def die_with_parent(parent: int) -> None:
    """Let the kernel kill this process when ``parent`` (a process id) is gone."""
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def children(pid: int) -> set[int]:
    """Direct children of a process, zombies included; empty where unknown."""
    found: set[int] = set()
    for listing in _glob(f"/proc/{pid}/task", "*/children"):
        with contextlib.suppress(OSError):
            found.update(map(int, listing.read_text().split()))
    return found


def descendants(pid: int) -> list[int]:
    """All living descendants of a process that can be seen, parents first."""
    found: list[int] = []
    waiting = [pid]
    while waiting:
        for child in children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found


def kill_group(leader: int) -> None:
    """Kill the process group that ``leader`` founded with ``setsid``."""
    with contextlib.suppress(OSError):
        os.killpg(leader, signal.SIGKILL)


def kill_tree(leader: int) -> None:
    """Kill a process, its group and all its descendants."""
    targets = descendants(leader)
    kill_group(leader)
    for pid in (leader, *targets):
        kill(pid)


def kill(pid: int) -> None:
    """Kill one process if it is still there and ours."""
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def sweep_orphans(keep: Collection[int]) -> int:
    """Kill and reap every direct child of this process but ``keep``.

    Only for a process that is a subreaper and that starts no children of its own
    without putting them into ``keep``. Returns how many were killed.
    """
    deadline = time.monotonic() + _SWEEP_SECONDS
    killed: set[int] = set()
    while orphans := children(os.getpid()).difference(keep):
        for pid in orphans:
            if not reap(pid):
                kill_group(pid)
                kill(pid)
                killed.add(pid)
        if time.monotonic() > deadline:
            break
        if killed:
            time.sleep(0.001)
    return len(killed)


def sweep_session(leader: int, token: str) -> None:
    """Kill what a dead session leader left, found by session and by environment.

    For processes that are not this one's children. ``token`` is a value that the
    leader had put into the environment of everything it started.
    """
    needle = token.encode()
    for pid, session in _sessions():
        if session == leader or _environment_has(pid, needle):
            kill(pid)


def reap(pid: int) -> bool:
    """Collect a child's exit status if it has ended; False while it lives."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _sessions() -> Iterator[tuple[int, int]]:
    me = os.getpid()
    for entry in _glob("/proc", "[0-9]*"):
        pid = int(entry.name)
        with contextlib.suppress(OSError):
            if pid != me:
                yield pid, os.getsid(pid)


def _environment_has(pid: int, needle: bytes) -> bool:
    try:
        return needle in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def _glob(directory: str, pattern: str) -> list[Path]:
    try:
        return list(Path(directory).glob(pattern))
    except OSError:
        return []
