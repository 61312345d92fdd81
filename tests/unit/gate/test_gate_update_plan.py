from __future__ import annotations

from collections.abc import Callable

from pytest_evo.gate.update import most_common
from pytest_evo.gate.update import SAMPLED
from pytest_evo.gate.update import UpdatePlan
from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import Observation
from pytest_evo.models import Outcome


def ran(ask: Ask, outcome: Outcome = Outcome.PASSED, **more: object) -> Observation:
    score = {Outcome.PASSED: 1.0, Outcome.FAILED: 0.0}.get(outcome)
    return Observation(
        ask.case,
        ask.arm,
        ask.repeat,
        ask.stage,
        outcome,
        score,
        ask.attempt,
        **more,  # type: ignore[arg-type]
    )


def drive(plan: UpdatePlan, answer: Callable[[Ask], Observation]) -> int:
    count = 0
    while asks := plan.next(7):
        for ask in asks:
            plan.record(answer(ask))
            count += 1
    return count


CASES = [f"t::{n:03}" for n in range(100)]


def test_a_quiet_suite_runs_once_and_a_sample_three_times() -> None:
    plan = UpdatePlan(CASES, {})
    assert drive(plan, ran) == 100 + 2 * SAMPLED
    assert plan.noisy == frozenset()
    assert plan.stopped == ""


def test_cases_that_use_the_network_are_noisy_and_run_three_times() -> None:
    plan = UpdatePlan(CASES, {})
    count = drive(plan, lambda ask: ran(ask, network=ask.case < "t::010"))
    assert plan.noisy == set(CASES[:10])
    assert count == 100 + 2 * SAMPLED + 2 * 10
    assert all(len(plan.seen[case]) == 3 for case in CASES[:10])


def test_one_case_that_varies_makes_all_undeclared_ones_noisy() -> None:
    def answer(ask: Ask) -> Observation:
        return ran(ask, Outcome.FAILED if ask.repeat == 1 else Outcome.PASSED)

    plan = UpdatePlan(CASES, {CASES[0]: True, CASES[1]: False}, times=5)
    drive(plan, answer)
    assert plan.noisy == set(CASES) - {CASES[0]}
    assert {len(rows) for rows in plan.seen.values()} == {1, 5}


def test_infrastructure_is_retried_once_and_then_missing() -> None:
    plan = UpdatePlan(CASES[:3], {})
    count = drive(
        plan,
        lambda ask: ran(
            ask,
            Outcome.ERROR
            if ask.case == CASES[0] and not ask.attempt
            else Outcome.PASSED,
        ),
    )
    assert plan.missing == ()
    assert count == 3 + 6 + 3  # each repeat of the first case came back once
    plan = UpdatePlan(CASES[:3], {})
    count = drive(plan, lambda ask: ran(ask, Outcome.TIMEOUT))
    assert len(plan.missing) == 3
    assert count == 6  # nothing can be written any more, so nothing more is spent


def test_a_budget_is_never_exceeded() -> None:
    plan = UpdatePlan(CASES, {}, budget=42)
    assert drive(plan, ran) == 42
    assert "42 rollouts" in plan.stopped


def test_a_stopped_plan_asks_for_nothing() -> None:
    plan = UpdatePlan(CASES, {})
    (first, *_) = plan.next(1)
    plan.stop("enough")
    assert plan.next() == ()
    plan.record(ran(first))
    assert plan.next() == ()
    assert plan.stopped == "enough"


def test_of_a_tie_the_worse_outcome_counts() -> None:
    (ask,) = UpdatePlan(["t"], {}).next()
    rows = [ran(ask), ran(ask, Outcome.FAILED)]
    assert most_common(rows) is Outcome.FAILED
    assert most_common(reversed(rows)) is Outcome.FAILED
    assert most_common([*rows, ran(ask)]) is Outcome.PASSED
