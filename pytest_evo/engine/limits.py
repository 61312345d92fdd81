"""Limits against the start artifact: a longer or slower child has not simply won."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.engine.parts import Limit
from pytest_evo.engine.setup import Setup
from pytest_evo.models import Rollout

SECONDS_FLOOR = 0.02
"""Differences below this are timer noise, not slowness (seconds a rollout)."""


def broken_limit(
    limits: Sequence[Limit],
    setup: Setup,
    rollouts: Sequence[Rollout],
    child_bytes: int,
    start_bytes: int,
) -> str | None:
    """The first limit that a child breaks, in words, or None.

    Seconds, tokens and money are means over the child's rollouts against the start's
    baseline on the same cases.
    """
    for limit in limits:
        child, start = _figures(limit, setup, rollouts, child_bytes, start_bytes)
        if child <= start * limit.max_ratio:
            continue
        if limit.metric == "seconds" and child - start < SECONDS_FLOOR:
            continue
        ratio = f"{child / start:.2f}" if start else "infinitely many"
        return (
            f"limit on {limit.metric}: {child:.6g} is {ratio} times the start's "
            f"{start:.6g}, at most {limit.max_ratio:g} is allowed"
        )
    return None


def _figures(
    limit: Limit,
    setup: Setup,
    rollouts: Sequence[Rollout],
    child_bytes: int,
    start_bytes: int,
) -> tuple[float, float]:
    if limit.metric == "bytes" or not rollouts:
        return float(child_bytes), float(start_bytes)
    count = len(rollouts)
    if limit.metric == "seconds":
        child = sum(rollout.seconds for rollout in rollouts)
        start = sum(setup.start_seconds.get(rollout.case, 0.0) for rollout in rollouts)
    elif limit.metric == "tokens":
        child = float(sum(rollout.usage.tokens for rollout in rollouts))
        start = sum(setup.start_usage.get(row.case, (0, 0.0))[0] for row in rollouts)
    else:
        child = sum(rollout.usage.counted_usd for rollout in rollouts)
        start = sum(setup.start_usage.get(row.case, (0, 0.0))[1] for row in rollouts)
    return child / count, start / count
