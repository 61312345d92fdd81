"""Running time: what the run has worked, not what it has waited to be resumed."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime
from datetime import timedelta
from datetime import UTC
from typing import Protocol


class Stamps(Protocol):
    """What a journal needs of a clock."""

    def now(self) -> datetime:
        """The present moment in UTC; never earlier than the last answer."""


def _utc() -> datetime:
    return datetime.now(UTC)


class RunClock:
    """The clock of one session of a run.

    Args:
        previous_seconds: running time of the sessions before this one.
        not_before: the last stamp of the session before, so that stamps of a run
            never go back, even where the wall clock was set back in between.
        monotonic: seconds that only grow.
        wall: the present moment; read once, so that a wall clock that is set
            while the run goes on changes neither stamps nor running time.
    """

    def __init__(
        self,
        previous_seconds: float = 0.0,
        *,
        not_before: datetime | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], datetime] = _utc,
    ) -> None:
        self._previous = previous_seconds
        self._monotonic = monotonic
        self._began = monotonic()
        began_at = wall()
        self._began_at = began_at if not_before is None else max(began_at, not_before)

    def elapsed(self) -> float:
        """Seconds the run has been running, earlier sessions included."""
        return self._previous + self._monotonic() - self._began

    def now(self) -> datetime:
        """The present moment in UTC, counted from the session's begin."""
        return self._began_at + timedelta(seconds=self._monotonic() - self._began)
