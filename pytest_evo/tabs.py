"""What model calls of one step have cost by now, those included that are still out.

A step that is stopped half-way has no answer that could carry its cost. Whoever asks
a model notes it on the step's tab, which follows it into its tasks and threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage


class Tab:
    """Adds up the calls of one step; safe from all of its threads.

    Args:
        on_change: told of every change, from whatever thread made it.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self._on_change = on_change
        self._lock = threading.Lock()
        self._ended = NO_USAGE
        self._out: dict[int, Usage] = {}
        self._watched: list[Callable[[], Usage]] = []
        self._number = 0

    def total(self) -> Usage:
        """What was spent by now; a call that is out counts as one that is lost."""
        with self._lock:
            total = sum(self._out.values(), self._ended)
            watched = list(self._watched)
        return sum((so_far() for so_far in watched), total)

    def watch(self, so_far: Callable[[], Usage]) -> None:
        """Add what somebody else counts."""
        with self._lock:
            self._watched.append(so_far)

    def changed(self) -> None:
        """What somebody else counts has changed."""
        self._on_change()

    def begin(self, lost: Usage) -> int:
        """A call goes out; what it counts as until it ends."""
        with self._lock:
            self._number += 1
            self._out[self._number] = lost
            number = self._number
        self._on_change()
        return number

    def amend(self, number: int, lost: Usage) -> None:
        """A call is tried again; what all tries count as until it ends."""
        with self._lock:
            self._out[number] = lost
        self._on_change()

    def end(self, number: int, usage: Usage) -> None:
        """A call has ended."""
        with self._lock:
            del self._out[number]
            self._ended += usage
        self._on_change()


_current: ContextVar[Tab | None] = ContextVar("pytest_evo_tab", default=None)


def current_tab() -> Tab:
    """The tab of the step that runs here; one that nobody reads where there is none."""
    return _current.get() or Tab()


@contextmanager
def opened_tab(on_change: Callable[[], None] = lambda: None) -> Iterator[Tab]:
    """A tab for everything that is begun inside."""
    tab = Tab(on_change)
    before = _current.set(tab)
    try:
        yield tab
    finally:
        _current.reset(before)
