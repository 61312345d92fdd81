"""Killing whole process trees, and nothing else.

A test can leave processes behind that have left its process group. On Linux a worker
is a *subreaper*: what its dead children leave becomes its own child and is found. On
other systems only the process group is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from collections.abc import Collection
from pathlib import Path

# Asked after every request: names, not Path objects.
# ruff: noqa: PTH208

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


def lead_session(parent: int) -> None:
    """What a test process does first: leave the terminal, keep what it starts.

    It gets a session and process group of its own, the default answer to Ctrl-C,
    adopts its own orphans (so that they are still its own when it is killed), writes
    no core files and dies with ``parent``.
    """
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    resource.setrlimit(
        resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1])
    )
    become_subreaper()
    die_with_parent(parent)


def children(pid: int) -> set[int]:
    """Direct children of a process, zombies included; empty where unknown."""
    if not LINUX:
        return set()
    found: set[int] = set()
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            found.update(map(int, _read(f"/proc/{pid}/task/{task}/children").split()))
    except FileNotFoundError:  # gone, or a kernel without these lists
        found.update(child for child in _all_processes() if _parent(child) == pid)
    except OSError:
        pass
    return found


def _read(path: str) -> bytes:
    """A file of ``/proc``, without what a file object asks of it first."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = b""
        while part := os.read(descriptor, 65_536):
            found += part
        return found
    finally:
        os.close(descriptor)


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


def sweep_orphans(
    keep: Collection[int], owned: Callable[[int], bool] | None = None
) -> int:
    """Kill and reap the direct children of this process but for ``keep``.

    For a subreaper. ``owned`` says which of them may be touched; without it all may, so
    this process must put every child that it starts itself into ``keep``. Returns how
    many were killed.
    """
    deadline = time.monotonic() + _SWEEP_SECONDS
    killed: set[int] = set()
    while orphans := _orphans(keep, owned, killed):
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


def _orphans(
    keep: Collection[int], owned: Callable[[int], bool] | None, killed: set[int]
) -> list[int]:
    found = children(os.getpid()).difference(keep)
    if owned is None:
        return list(found)
    return [pid for pid in found if pid in killed or owned(pid)]


def belongs(pid: int, leaders: Collection[int], token: bytes) -> bool:
    """Whether a process is of a leader's session or has ``token`` in its environment.

    A leader puts the token into ``os.environ`` before it starts anything.
    """
    try:
        if os.getsid(pid) in leaders:
            return True
        return token in Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False


def sweep_leaders(leaders: Collection[int], token: bytes) -> None:
    """Kill what dead session leaders left, though it is not this process's own."""
    for leader in leaders:
        kill_group(leader)
    for pid in _all_processes():
        if pid != os.getpid() and belongs(pid, leaders, token):
            kill(pid)


def reap(pid: int) -> bool:
    """Collect a child's exit status if it has ended; False while it lives."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def _all_processes() -> list[int]:
    try:
        return [int(entry.name) for entry in Path("/proc").glob("[0-9]*")]
    except OSError:
        return []


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat.rpartition(b")")[2].split()[1])
