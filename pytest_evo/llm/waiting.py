"""How long to wait before a model is asked again, and before it is asked at all."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from datetime import UTC
from email.utils import parsedate_to_datetime
from random import Random

LONGEST_PAUSE = 60.0
"""Seconds between two tries, where the provider asks for no more."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing waits: ``first`` seconds, doubled each time, with jitter."""

    first: float = 1.0
    longest: float = LONGEST_PAUSE

    def pause(self, tries: int, asked: float | None, rng: Random) -> float:
        """Seconds to wait after ``tries`` failed tries.

        Args:
            tries: at least 1.
            asked: what the provider asks for; waits are never shorter.
            rng: spreads clients that failed at the same moment.
        """
        full = min(self.longest, self.first * 2.0 ** min(tries - 1, 30))
        spread = full * (0.5 + 0.5 * rng.random())
        if asked is None:
            return spread
        return max(asked, 0.0) + min(spread, 0.25 * max(asked, 1.0))


def retry_after(text: str | None, now: datetime | None = None) -> float | None:
    """Seconds that a ``Retry-After`` header asks for; None where it says nothing.

    Args:
        text: seconds or a date; anything else says nothing.
        now: the present, with a time zone.
    """
    if text is None:
        return None
    plain = text.strip()
    try:
        seconds = float(plain)
    except ValueError:
        return _until(plain, now or datetime.now(UTC))
    return seconds if 0 <= seconds < float("inf") else None


def _until(text: str, now: datetime) -> float | None:
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())


class RateLimiter:
    """Spaces the requests of all threads that share it.

    Args:
        per_minute: requests that may start within any minute; None: as many as come.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._lock = threading.Lock()
        self._started: deque[float] = deque(maxlen=per_minute or 1)
        self._not_before = 0.0

    def take(self) -> float:
        """Take a turn; return the seconds until it begins."""
        with self._lock:
            now = self._clock()
            begin = max(now, self._not_before)
            if self._per_minute and len(self._started) == self._per_minute:
                begin = max(begin, self._started[0] + 60.0)
            if self._per_minute:
                self._started.append(begin)
            return begin - now

    def hold(self, seconds: float) -> None:
        """Let nobody start for so long: the provider has asked one of them to wait."""
        with self._lock:
            self._not_before = max(self._not_before, self._clock() + seconds)
