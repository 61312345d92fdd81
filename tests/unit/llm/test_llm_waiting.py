from __future__ import annotations

from datetime import datetime
from datetime import UTC
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.llm.waiting import Backoff
from pytest_evo.llm.waiting import RateLimiter
from pytest_evo.llm.waiting import retry_after

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (None, None),
        ("3", 3.0),
        (" 0.5 ", 0.5),
        ("-5", None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
        ("Thu, 01 Jan 2026 12:01:00 GMT", 60.0),
        ("Thu, 01 Jan 2026 12:01:00", 60.0),
        ("Thu, 99 Jan 2026 12:01:00 GMT", None),
    ],
)
def test_retry_after_is_seconds_a_date_or_nothing(text, seconds) -> None:
    assert retry_after(text, NOW) == seconds


@given(st.text(max_size=40))
def test_retry_after_survives_any_text(text: str) -> None:
    seconds = retry_after(text, NOW)
    assert seconds is None or seconds >= 0


@given(st.integers(1, 60), st.integers(0, 100))
def test_pauses_grow_within_their_limit(tries: int, seed: int) -> None:
    backoff = Backoff(first=1.0, longest=60.0)
    pause = backoff.pause(tries, None, Random(seed))
    full = min(60.0, 2.0 ** (tries - 1))
    assert full / 2 <= pause <= full


@given(st.floats(0, 1000), st.integers(1, 9), st.integers(0, 100))
def test_pause_is_never_shorter_than_asked(asked, tries, seed) -> None:
    pause = Backoff().pause(tries, asked, Random(seed))
    assert asked <= pause <= asked * 1.25 + 1


def test_limiter_spaces_a_minute() -> None:
    now = [0.0]
    limiter = RateLimiter(2, lambda: now[0])
    assert [limiter.take() for _ in range(4)] == [0.0, 0.0, 60.0, 60.0]
    now[0] = 130.0
    assert limiter.take() == 0.0


def test_limiter_without_a_rate_lets_all_through_until_told_to_hold() -> None:
    now = [0.0]
    limiter = RateLimiter(None, lambda: now[0])
    assert [limiter.take() for _ in range(3)] == [0.0, 0.0, 0.0]
    limiter.hold(5.0)
    limiter.hold(2.0)
    assert limiter.take() == 5.0
    now[0] = 6.0
    assert limiter.take() == 0.0
