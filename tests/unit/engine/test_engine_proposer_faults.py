"""What the engine does where a proposer fails by itself, or is always refused."""

from __future__ import annotations

from typing import NoReturn

import pytest
from engine_world import climb
from engine_world import World

from pytest_evo.engine.slots import REFUSED_IN_A_ROW
from pytest_evo.errors import ProposerProblem
from pytest_evo.events import ProposalMade
from pytest_evo.events import RunStopped
from pytest_evo.protocols import ProposalRequest
from pytest_evo.testing.doubles import Change


def faults(world: World) -> list[ProposalMade]:
    return [
        event
        for event in world.ear.heard
        if isinstance(event, ProposalMade) and event.fault
    ]


@pytest.mark.parametrize("error", [KeyError("oops"), StopIteration(), SystemExit(3)])
@pytest.mark.parametrize("slots", [1, 3])
def test_proposer_that_always_raises_ends_the_run_as_a_problem(
    error: BaseException, slots: int
) -> None:
    def edits(request: ProposalRequest) -> NoReturn:
        raise error

    world = World(edits=edits, iterations=None, slots=slots)
    with pytest.raises(ProposerProblem, match=type(error).__name__) as caught:
        world.run()
    assert "pytest --evolve" in str(caught.value)
    assert len(faults(world)) >= 2 * REFUSED_IN_A_ROW
    stop = world.events[-1]
    assert isinstance(stop, RunStopped)
    assert stop.complete
    assert type(error).__name__ in stop.detail
    assert stop.by_purpose.get("final", 0) == 0


def test_proposer_that_raises_until_a_budget_ends_is_a_problem_too() -> None:
    def edits(request: ProposalRequest) -> NoReturn:
        raise KeyError("oops")

    world = World(edits=edits, iterations=2)
    with pytest.raises(ProposerProblem, match="all of the 4 times"):
        world.run()


def test_proposer_that_gives_back_no_answer_ends_the_run_as_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(iterations=2)
    monkeypatch.setattr(world.proposer, "propose", lambda request: 7)
    with pytest.raises(ProposerProblem, match="returned int, not a Proposal"):
        world.run()


def test_proposer_that_raises_now_and_then_does_not_end_the_run() -> None:
    def edits(request: ProposalRequest) -> Change:
        if request.iteration % 2:
            raise KeyError("oops")
        return climb(request)

    world = World(edits=edits, iterations=6)
    assert world.run().stop.reason == "budget: iterations"
    assert faults(world)


def test_run_that_ends_by_refusals_says_the_last_one() -> None:
    world = World(edits=lambda request: lambda files: files, iterations=None)
    reason = world.run().stop.reason
    assert reason.startswith("10 iterations in a row were refused")
    assert "nothing changed" in reason
    assert not faults(world)


def test_what_a_proposer_raised_is_handed_on_once_for_each_attempt() -> None:
    def edits(request: ProposalRequest) -> NoReturn:
        raise KeyError(request.feedback)

    world = World(edits=edits, iterations=1)
    with pytest.raises(ProposerProblem):
        world.run()
    first, second = faults(world)
    assert first.refusal == "the proposer raised KeyError: None"
    assert first.refusal in str(second.refusal)
