from __future__ import annotations

import pytest
from engine_world import World
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.engine.budget import Budget
from pytest_evo.engine.budget import BudgetReached
from pytest_evo.engine.budget import Limits
from pytest_evo.events import DiagnosesMade
from pytest_evo.events import ProposalMade
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import Usage
from pytest_evo.protocols import Request
from pytest_evo.testing.doubles import ManualClock

STEPS = st.tuples(
    st.sampled_from([Purpose.CHILD, Purpose.VALIDATION, Purpose.FINAL]),
    st.integers(1, 20),
    st.integers(0, 20),
)


@given(limit=st.integers(0, 100), steps=st.lists(STEPS, max_size=30))
def test_spent_and_reserved_never_exceed_the_limit(
    limit: int, steps: list[tuple[Purpose, int, int]]
) -> None:
    budget = Budget(Limits(rollouts=limit), ManualClock())
    budget.set_aside = limit // 4
    for purpose, count, executed in steps:
        try:
            budget.reserve(count, purpose)
        except BudgetReached:
            continue
        assert budget.total + budget.reserved <= limit
        done = min(count, executed)
        for _ in range(done):
            budget.settle(purpose)
        budget.release(count - done, purpose)
        assert budget.reserved == 0
    assert budget.total <= limit


def test_reserve_for_the_end_is_kept_from_everything_else() -> None:
    budget = Budget(Limits(rollouts=10), ManualClock())
    budget.set_aside = 4
    budget.reserve(6, Purpose.CHILD)
    with pytest.raises(BudgetReached, match="0 left"):
        budget.reserve(1, Purpose.CHILD)
    budget.reserve(4, Purpose.FINAL)


def test_time_tokens_and_money_stop_the_next_step() -> None:
    clock = ManualClock()
    budget = Budget(Limits(seconds=5, tokens=100, usd=1.0), clock)
    budget.ask()
    made = ProposalMade(1, 0, 0, "c0000", None, usage=Usage(1, 60, 0, 50, 0.2))
    budget.charge_usage(made)
    with pytest.raises(BudgetReached, match="tokens: 110 of 100"):
        budget.ask()
    budget = Budget(Limits(seconds=5), clock)
    clock.advance(5)
    with pytest.raises(BudgetReached, match="time"):
        budget.ask()


def test_training_limit_counts_training_only() -> None:
    budget = Budget(Limits(train_rollouts=5), ManualClock())
    budget.reserve(50, Purpose.VALIDATION)
    budget.reserve(5, Purpose.CHAIN)
    with pytest.raises(BudgetReached, match="train rollouts"):
        budget.reserve(1, Purpose.PARENT)


def test_money_of_the_suite_is_asked_for_before_each_request() -> None:
    cost = Usage(calls=1, input_tokens=10, usd=1.0)
    spent: list[str] = []

    def paid(request: Request, case: str, repeat: int) -> Rollout:
        if request.purpose is not Purpose.FINAL:
            spent.append(case)
        seen = Reach(("level",))
        passed = Outcome.PASSED
        return Rollout("?", "?", case, repeat, passed, 0.5, usage=cost, reach=seen)

    world = World(fault=paid, usd=200.0, rollouts=None, iterations=None, width=2)
    end = world.run()
    assert end.stop.reason == "budget: usd"
    kept = 12  # for the final measurement
    step = 8  # is not begun where it cannot be paid
    assert 200 - kept - step <= len(spent) <= 200 - kept
    assert world.events[-1] == end.stop


def test_dear_case_that_comes_first_ends_no_baseline_that_can_be_paid() -> None:
    def paid(request: Request, case: str, repeat: int) -> Rollout:
        tokens = 2_000 if case.endswith("[0]") else 10
        usage = Usage(1, tokens)
        seen = Reach(("level",))
        return Rollout(
            "?", "?", case, repeat, Outcome.FAILED, 0.0, usage=usage, reach=seen
        )

    for width in (2, 20):
        world = World(fault=paid, tokens=60_000, iterations=3, width=width)
        assert world.run().stop.reason == "budget: iterations"


def test_call_that_was_out_when_its_test_hung_is_taken_for_a_mean_call() -> None:
    budget = Budget(Limits(usd=5.0), ManualClock())

    def charge(outcome: Outcome, usage: Usage) -> None:
        budget.charge(
            RolloutRecorded(
                candidate="c0001",
                tree="t",
                case="a",
                split=None,
                repeat=0,
                outcome=outcome,
                score=None,
                seconds=1.0,
                purpose=Purpose.CHILD,
                usage=usage,
            )
        )

    charge(Outcome.TIMEOUT, Usage(2, usd=None))
    budget.ask()  # nobody has learnt a price yet
    charge(Outcome.PASSED, Usage(4, usd=1.0))
    assert budget.usd == 1.5
    budget.ask()
    charge(Outcome.PASSED, Usage(1, usd=None))
    with pytest.raises(BudgetReached, match="nobody knows the price"):
        budget.ask()


def test_price_that_nobody_knows_stops_what_is_limited_by_money() -> None:
    budget = Budget(Limits(usd=5.0), ManualClock())
    lost = Usage(calls=1, usd=None, unpriced=1, estimated_usd=1.0)
    budget.charge_usage(DiagnosesMade(1, 0, "c0000", (), Usage(1, usd=3.5) + lost))
    budget.ask()
    assert budget.usd_left() == 0.5
    budget.charge_usage(DiagnosesMade(1, 1, "c0000", (), Usage(1, usd=None)))
    with pytest.raises(BudgetReached, match="by the diagnoser") as caught:
        budget.ask()
    assert "input_usd" in caught.value.remedy
    unlimited = Budget(Limits(), ManualClock())
    unlimited.charge_usage(DiagnosesMade(1, 1, "c0000", (), Usage(1, usd=None)))
    unlimited.ask()
