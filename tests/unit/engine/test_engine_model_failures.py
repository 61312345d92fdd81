"""What the engine does where a proposer's model gives nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from engine_world import climb
from engine_world import World

from pytest_evo.chat import AnswerFailed
from pytest_evo.chat import AnswerRefused
from pytest_evo.chat import AnswersOver
from pytest_evo.chat import AskedInVain
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.events import ProposalMade
from pytest_evo.events import RunStopped
from pytest_evo.models import Usage
from pytest_evo.protocols import ProposalRequest
from pytest_evo.store.journal import MemoryJournal

COST = Usage(calls=2, input_tokens=100, output_tokens=20)


def failing(error: Exception, at: Callable[[int], bool], calls: list[int]):
    """A proposer that climbs, and raises at some of its calls."""

    def propose(request: ProposalRequest):
        calls.append(request.iteration)
        if at(len(calls)):
            raise error
        return climb(request)

    return propose


def proposals(world: World) -> list[ProposalMade]:
    return [event for event in world.ear.heard if isinstance(event, ProposalMade)]


def test_refused_answers_are_charged() -> None:
    calls: list[int] = []
    error = AnswerRefused("empty", COST)
    world = World(edits=failing(error, lambda call: call % 3 == 0, calls))
    world.run()
    refused = [made for made in proposals(world) if made.refusal == "empty"]
    assert refused
    assert world.loop.budget.usage["proposer"].tokens == 120 * len(refused)


def test_model_is_asked_once_more_and_then_the_run_can_be_resumed() -> None:
    calls: list[int] = []
    error = AnswerFailed("no answer", COST)
    journal = MemoryJournal()
    world = World(journal, edits=failing(error, lambda call: call >= 4, calls))
    with pytest.raises(ModelFailed, match="no answer"):
        world.run()
    failed = [made for made in proposals(world) if made.refusal == "no answer"]
    assert [made.attempt for made in failed][-2:] == [0, 1]
    stop = world.events[-1]
    assert isinstance(stop, RunStopped)
    assert (stop.reason, stop.complete) == ("no answer of the model", False)
    again = World(journal, workshop=world.workshop)
    outcome = again.run()
    assert outcome.stop.complete
    assert again.loop.budget.usage["proposer"].tokens == 120 * len(failed)


def test_one_failure_is_not_the_end() -> None:
    calls: list[int] = []
    error = AnswerFailed("no answer", COST)
    world = World(edits=failing(error, lambda call: call == 2, calls))
    assert world.run().stop.complete


def test_vain_questions_are_not_repeated() -> None:
    calls: list[int] = []
    error = AskedInVain("no key", COST)
    world = World(edits=failing(error, lambda call: True, calls))
    with pytest.raises(ModelProblem, match="no key"):
        world.run()
    assert len(calls) == 1
    assert world.loop.budget.usage["proposer"] == COST


@pytest.mark.parametrize("slots", [1, 3])
def test_budget_that_pays_no_further_call_ends_the_run_softly(slots: int) -> None:
    calls: list[int] = []
    error = AnswersOver("tokens", "12 are left", COST)
    world = World(slots=slots, edits=failing(error, lambda call: call >= 5, calls))
    stop = world.run().stop
    assert stop.reason == "budget: tokens"
    assert stop.complete
    assert len(calls) <= 5 + slots
    assert any("12 are left" in row.reason for row in world.iterations_closed)
