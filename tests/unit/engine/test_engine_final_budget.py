"""Tokens and money are asked by the final measurement too, out of a reserve."""

from __future__ import annotations

from engine_world import World

from pytest_evo.events import FinalMeasured
from pytest_evo.models import Purpose
from pytest_evo.models import START
from pytest_evo.store.journal import MemoryJournal

LIMIT = 4_000


def spent(world: World) -> int:
    return sum(row.usage.tokens for row in world.recorded)


def final_tokens(world: World) -> int:
    rows = [row for row in world.recorded if row.purpose is Purpose.FINAL]
    return sum(row.usage.tokens for row in rows)


def dear_winner(factor: int):
    """Every file set but that of the start costs ``factor`` times as much."""
    return lambda files: 10 if files.get("level") == b"0" else 10 * factor


def test_final_measurement_has_a_reserve_of_tokens() -> None:
    run = World(tokens=LIMIT, cost=lambda files: 10, iterations=None)
    end = run.run()
    assert end.stop.reason == "budget: tokens"
    assert end.stop.complete
    assert end.final is not None
    assert end.final.claim.unmeasured == 0
    assert final_tokens(run) > 0
    assert spent(run) <= LIMIT


def test_final_measurement_of_a_dearer_winner_is_labelled_as_partial() -> None:
    run = World(cases=160, tokens=8_000, cost=dear_winner(2), iterations=None)
    end = run.run()
    assert end.final is not None
    claim = end.final.claim
    assert (claim.budget, claim.cases + claim.unmeasured) == ("tokens", 48)
    assert claim.unmeasured > 0
    assert spent(run) <= 8_000 + 2 * 16 * 20


def test_winner_that_nothing_is_left_for_is_measured_on_a_resume() -> None:
    journal = MemoryJournal()

    def cost(files: dict[str, bytes]) -> int:
        return 10 if int(files["level"]) < 4 else 400  # nothing told of it

    first = World(journal, tokens=LIMIT, cost=cost, iterations=None)
    stop = first.run().stop
    assert (stop.reason, stop.complete) == ("budget: tokens", False)
    assert stop.winner != START
    assert not [row for row in first.events if isinstance(row, FinalMeasured)]
    again = World(journal, workshop=first.workshop, tokens=2 * LIMIT, cost=cost)
    end = again.run()
    assert end.stop.complete
    assert end.final is not None
    assert end.final.claim.unmeasured == 0


def test_suite_without_models_is_measured_whatever_the_proposer_spent() -> None:
    run = World()
    run.loop.budget.kept_tokens = 0
    run.loop.budget.ask_final()
    assert run.run().final is not None


def test_both_arms_of_a_case_are_paid_before_the_next() -> None:
    run = World(
        cases=160, noise=0.99, tokens=60_000, cost=dear_winner(6), iterations=None
    )
    end = run.run()
    assert end.final is not None
    claim = end.final.claim
    assert claim.budget == "tokens"
    final = [row for row in run.recorded if row.purpose is Purpose.FINAL]
    arms = [
        {row.case for row in final if (row.candidate == START) is start}
        for start in (True, False)
    ]
    assert 0 < claim.cases < 48
    assert claim.unmeasured == 48 - claim.cases
    assert len(arms[0] ^ arms[1]) <= 4  # of the block that the budget ended in
