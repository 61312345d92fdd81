"""A suite whose cases come out as told, driven through the real planner."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from random import Random

from pytest_evo.gate.decision import NO_CHANGE
from pytest_evo.gate.planner import Planner
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Observation
from pytest_evo.models import Outcome

World = Callable[[Ask], Observation]
DEFAULT = GatePolicy()


def seen(
    ask: Ask,
    outcome: Outcome = Outcome.PASSED,
    score: float | None = None,
    **more: object,
) -> Observation:
    if score is None and outcome in (Outcome.PASSED, Outcome.FAILED):
        score = float(outcome is Outcome.PASSED)
    return Observation(
        ask.case, ask.arm, ask.repeat, ask.stage, outcome, score, ask.attempt, **more
    )


def always(
    head: Mapping[str, Outcome] | None = None,
    base: Mapping[str, Outcome] | None = None,
    **more: object,
) -> World:
    """Every case passes, but for those that are named with another outcome."""

    def run(ask: Ask) -> Observation:
        told = (head if ask.arm is Arm.HEAD else base) or {}
        return seen(ask, told.get(ask.case, Outcome.PASSED), **more)

    return run


def chances(
    base: Callable[[str], float],
    head: Callable[[str], float],
    seed: int = 0,
    **more: object,
) -> World:
    """Cases pass by chance; the same rollout comes out the same in any order."""

    def run(ask: Ask) -> Observation:
        key = f"{seed}:{ask.case}:{ask.arm}:{ask.repeat}:{ask.attempt}"
        wanted = head if ask.arm is Arm.HEAD else base
        passed = Random(key).random() < wanted(ask.case)
        return seen(ask, Outcome.PASSED if passed else Outcome.FAILED, **more)

    return run


def cases_of(count: int, **more: object) -> list[GateCase]:
    return [GateCase(f"test_{index:03d}", **more) for index in range(count)]


def drive(
    cases: Iterable[GateCase],
    world: World,
    policy: GatePolicy = DEFAULT,
    change: Change = NO_CHANGE,
    *,
    base_arm: bool = True,
    flying: int = 1,
    order: Random | None = None,
) -> tuple[GateDecision, Planner]:
    """Run a gate to its end with so many rollouts in flight."""
    planner = Planner(list(cases), policy, change, base_arm=base_arm)
    away: list[Ask] = []
    while not planner.finished:
        if len(away) < flying:
            away += planner.next(flying - len(away))
        if away:
            index = order.randrange(len(away)) if order else 0
            planner.record(world(away.pop(index)))
    return planner.decision(), planner
