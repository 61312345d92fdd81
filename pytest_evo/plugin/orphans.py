"""What test processes leave behind: told apart from everything else, and ended."""

from __future__ import annotations

import os
import secrets
from collections import deque
from collections.abc import Sequence

from pytest_evo.plugin import processes
from pytest_evo.plugin.launcher import Subject

_REMEMBERED = 64
"""Dead test processes whose late children are still recognised."""


class Orphans:
    """Of one worker, which adopts them where the system lets it.

    Args:
        shared: whether this process has children of its own too, which come and go.
    """

    def __init__(self, *, shared: bool) -> None:
        self.token = secrets.token_hex(16)
        """What every process that a test process starts has in its environment."""
        adopts = processes.become_subreaper()
        self._shared = shared or not adopts
        self._spared = processes.children(os.getpid())
        self._dead: deque[int] = deque(maxlen=_REMEMBERED)

    def spare(self, pid: int) -> None:
        """Never take this child for an orphan."""
        self._spared.add(pid)

    def sweep(self, live: Sequence[Subject], dead: Subject) -> None:
        """Kill what a dead test process left behind."""
        keep = self._spared.union(process.pid for process in live)
        if self._shared:
            self._dead.append(dead.pid)
            processes.sweep_orphans(keep, self._is_ours)
        else:
            processes.sweep_orphans(keep)

    def _is_ours(self, pid: int) -> bool:
        return processes.belongs(pid, self._dead, self.token.encode())
