"""Keeps one agent: starts it, waits for it, and ends all that it ever started.

A program of its own, which needs nothing but the standard library::

    python -I -S keeper.py STATUS ALIVE SECONDS COMMAND...

``STATUS`` is a descriptor that gets one line of JSON when everything is over. The
agent is ended when ``SECONDS`` are over, or when ``ALIVE``, another descriptor, has
something to read or is closed on the other side: then whoever started the keeper wants
it, or is gone. On Linux the keeper adopts what leaves the agent's session; elsewhere
only its process group is ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import subprocess
import sys
import time

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LARGEST_FILE = 1_000_000_000
_SWEEP_SECONDS = 5.0  # how long processes that keep forking are fought
_LOOK_SECONDS = 0.05  # where the kernel cannot tell that a process has ended


class _Stop(Exception):
    """Somebody wants the agent to end."""


def main(arguments: list[str]) -> int:
    """Keep one agent; returns 0 whatever it does."""
    status, alive, seconds = int(arguments[0]), int(arguments[1]), float(arguments[2])
    began = time.monotonic()
    told: dict[str, object] = {"status": None, "ended": "itself", "left": 0}
    signal.signal(signal.SIGTERM, _stop)
    _adopt()
    try:
        agent = subprocess.Popen(
            arguments[3:], start_new_session=True, preexec_fn=_limit
        )
    except OSError as error:
        told.update(ended="unborn", error=f"{error.strerror}: {arguments[3]}")
    else:
        try:
            told["ended"] = _watch(agent, alive, began + seconds)
        except _Stop:
            told["ended"] = "stopped"
        told["status"] = agent.returncode
        told["left"] = _end(agent)
    told["seconds"] = round(time.monotonic() - began, 3)
    with contextlib.suppress(OSError):  # nobody is there to read it
        os.write(status, json.dumps(told).encode() + b"\n")
    return 0


def _stop(number: int, frame: object) -> None:
    raise _Stop


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    most = _LARGEST_FILE if hard == resource.RLIM_INFINITY else min(_LARGEST_FILE, hard)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))


def _adopt() -> None:
    """Become the parent of all orphans below, and end with whoever started this."""
    if sys.platform != "linux":
        return
    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _watch(agent: subprocess.Popen[bytes], alive: int, deadline: float) -> str:
    """Wait until the agent has ended or has to."""
    poll = select.poll()
    poll.register(alive, select.POLLIN | select.POLLHUP)
    watch = -1
    with contextlib.suppress(OSError, AttributeError):
        watch = os.pidfd_open(agent.pid)
        poll.register(watch, select.POLLIN)
    while True:
        if agent.poll() is not None:
            return "itself"
        left = deadline - time.monotonic()
        if left <= 0:
            return "timeout"
        wait = left if watch >= 0 else min(left, _LOOK_SECONDS)
        if any(descriptor == alive for descriptor, _ in poll.poll(wait * 1000 + 1)):
            return "stopped" if agent.poll() is None else "itself"


def _end(agent: subprocess.Popen[bytes]) -> int:
    """Kill what is left; how many processes the agent had left behind."""
    left = len(_descendants()) - (agent.returncode is None)
    with contextlib.suppress(OSError):
        os.killpg(agent.pid, signal.SIGKILL)
    deadline = time.monotonic() + _SWEEP_SECONDS
    while time.monotonic() < deadline:
        found = _descendants()
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if not _reap() and not found:
            break
        time.sleep(0.002)
    return max(0, left)


def _reap() -> bool:
    """Collect what has ended; whether there are children left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _descendants() -> list[int]:
    """Everything below this process, zombies included; empty where that is unknown."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        for child in _children(waiting.pop()):
            found.append(child)
            waiting.append(child)
    return found


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - no pathlib here
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:  # noqa: PTH123
                found += map(int, file.read().split())
    return found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
