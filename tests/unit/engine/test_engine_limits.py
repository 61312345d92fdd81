"""Limits: a child that is better but too long, slow or dear is turned down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
from engine_world import World

from pytest_evo.engine.parts import Limit
from pytest_evo.events import AcceptanceDecided
from pytest_evo.models import Decision
from pytest_evo.models import Outcome
from pytest_evo.models import Rollout
from pytest_evo.models import Usage
from pytest_evo.protocols import ProposalRequest
from pytest_evo.protocols import Request
from pytest_evo.testing.doubles import Change

Judge: TypeAlias = Callable[[Request, str, int], Rollout]


def all_the_way(request: ProposalRequest) -> Change:
    """A proposal that solves every case and makes the artifact longer."""

    def change(files: dict[str, bytes]) -> dict[str, bytes]:
        return {"level": b"99", "more": b"x" * request.iteration}

    return change


def figures(child: dict[str, float], start: dict[str, float]) -> Judge:
    """The start fails and the child passes, at these seconds, tokens and usd."""

    def judge(request: Request, case: str, repeat: int) -> Rollout:
        good = request.candidate != "c0000"
        used = child if good else start
        return Rollout(
            request.candidate,
            request.tree,
            case,
            repeat,
            Outcome.PASSED if good else Outcome.FAILED,
            float(good),
            used.get("seconds", 0.1),
            usage=Usage(
                output_tokens=int(used.get("tokens", 0)), usd=used.get("usd", 0.0)
            ),
        )

    return judge


def limited(metric: str, max_ratio: float, child: float, start: float) -> str:
    """Why the only iteration took its child, or turned it down."""
    world = World(
        edits=all_the_way,
        iterations=1,
        fault=figures({metric: child}, {metric: start}),
        plan={"limits": (Limit(metric, max_ratio),), "depth": 0, "noise": "none"},
    )
    world.run()
    (decided,) = (row for row in world.events if isinstance(row, AcceptanceDecided))
    assert decided.decision is Decision.ACCEPTED  # by its scores
    (closed,) = world.iterations_closed
    return "taken" if closed.accepted else closed.reason


USED = [("tokens", 100), ("seconds", 0.5), ("usd", 0.25)]


@pytest.mark.parametrize(("metric", "start"), USED)
def test_child_that_uses_too_much_of_something_is_turned_down(
    metric: str, start: float
) -> None:
    reason = limited(metric, 1.2, start * 1.24, start)
    assert reason == (
        f"limit on {metric}: {start * 1.24:g} is 1.24 times the start's {start:g}, at "
        "most 1.2 is allowed"
    )


@pytest.mark.parametrize(("metric", "start"), USED)
def test_child_within_the_limit_is_taken(metric: str, start: float) -> None:
    assert limited(metric, 1.2, start * 1.16, start) == "taken"


def test_bytes_are_those_of_the_artifact() -> None:
    # one byte becomes three
    assert limited("bytes", 3.0, 0, 0) == "taken"
    assert limited("bytes", 2.9, 0, 0) == (
        "limit on bytes: 3 is 3.00 times the start's 1, at most 2.9 is allowed"
    )


def test_differences_of_timer_noise_are_not_slowness() -> None:
    assert limited("seconds", 1.2, 0.019, 0.001) == "taken"
    assert "limit on seconds" in limited("seconds", 1.2, 0.022, 0.001)


def test_start_that_used_nothing_leaves_nothing_to_use() -> None:
    assert "is infinitely many times" in limited("tokens", 5.0, 1, 0)
