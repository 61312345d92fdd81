"""What a rollout has spent by now, for when its process cannot say it any more.

A test that hangs or dies after calls of models has been paid for. Its process writes
the sum into a file of its own after every change, and its worker reads it where no
report came. Frames would not do: whatever may break off a test, like the alarm of a
timeout plugin, would break off a frame as well, and a torn frame looks forged.
"""

# The code under test may have replaced methods by now: functions.
# ruff: noqa: PTH102

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from os import close  # the code under test may have others by now
from os import getpid
from os import mkdir
from os import open as open_
from os import pwrite
from pathlib import Path

from pytest_evo.models import CaseId
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage

NAME = ".evo-spent"
_SAFE = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0)  # no pipe, no link
_WRITE = os.O_WRONLY | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | _SAFE
_READ = os.O_RDONLY | _SAFE
_MOST_BYTES = 65_536
_LARGEST = 2**53  # of any count: beyond it, something else has written


class SpentNote:
    """The test process's side. What is forked from it says nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._path = str(folder / NAME)
        self._owner = getpid()

    def __call__(self, case: CaseId, repeat: int, total: Callable[[], Usage]) -> None:
        """Write what a rollout has spent by now in place of what was there.

        ``total`` is not asked in a fork, where its lock may be held for ever.
        """
        if getpid() != self._owner:
            return
        text = json.dumps([case, repeat, asdict(total())])
        with suppress(OSError):  # no room, or a file in the way
            try:
                descriptor = open_(self._path, _WRITE, 0o600)
            except FileNotFoundError:  # nothing has needed the folder so far
                with suppress(FileExistsError):
                    mkdir(self._folder, 0o700)
                descriptor = open_(self._path, _WRITE, 0o600)
            try:
                # the end of a longer text that was there is behind the line's end
                pwrite(descriptor, text.encode("ascii") + b"\n", 0)
            finally:
                close(descriptor)


def spent_so_far(folder: Path, case: CaseId, repeat: int) -> Usage:
    """What a process has noted of this rollout; nothing where it noted nothing.

    The code under test can write there too: what is no sound note is none.
    """
    try:
        said_case, said_repeat, said = json.loads(_first_line(folder / NAME))
        usage = Usage(**said)
    except (OSError, ValueError, TypeError, RecursionError):
        return NO_USAGE
    about = (said_case, said_repeat) == (case, repeat)
    return usage if about and _is_sound(usage) else NO_USAGE


def _first_line(path: Path) -> bytes:
    descriptor = os.open(path, _READ)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return os.read(descriptor, _MOST_BYTES).partition(b"\n")[0]
    finally:
        os.close(descriptor)


def _is_sound(usage: Usage) -> bool:
    counts = (usage.calls, usage.input_tokens, usage.cached_tokens, usage.unpriced)
    sums = (usage.seconds, usage.known_usd, usage.usd, usage.estimated_usd)
    return all(
        type(one) is int and 0 <= one <= _LARGEST
        for one in (*counts, usage.output_tokens)
    ) and all(
        one is None or (type(one) in (int, float) and 0 <= one <= _LARGEST)
        for one in sums
    )
