from __future__ import annotations

from collections.abc import Sequence

import pytest
from engine_world import World

from pytest_evo.chat import AnswerFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.errors import SettingsProblem
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import DiagnosesMade
from pytest_evo.events import Event
from pytest_evo.models import Diagnosis
from pytest_evo.models import Node
from pytest_evo.models import Usage
from pytest_evo.protocols import Diagnosed
from pytest_evo.protocols import ProposalRequest
from pytest_evo.store.journal import MemoryJournal
from pytest_evo.testing.doubles import Change
from pytest_evo.testing.doubles import Killed
from pytest_evo.testing.doubles import MemoryWorkshop

USAGE = Usage(calls=1, input_tokens=40, output_tokens=10, usd=0.5)


class Reader:
    """Reads the newest node, or does what it is told to."""

    def __init__(self, instead: object = None) -> None:
        self.instead = instead
        self.read: list[tuple[str, ...]] = []

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        self.read.append(tuple(node.candidate.id for node in nodes))
        if isinstance(self.instead, Exception):
            raise self.instead
        if self.instead is not None:
            return self.instead  # type: ignore[return-value]
        name = nodes[-1].candidate.id
        failing = tuple(r.case for r in nodes[-1].rollouts if r.score != 1)
        return Diagnosed((Diagnosis(failing, f"read {name}"),), USAGE)


def world(reader: Reader, **options: object) -> World:
    return World(diagnoser=reader, iterations=3, **options)  # type: ignore[arg-type]


def events(world: World, kind: type[Event]) -> list[Event]:
    return [event for event in world.journal.replay() if isinstance(event, kind)]


def test_diagnoses_are_journalled_and_reach_the_next_proposal() -> None:
    reader = Reader()
    run = world(reader)
    run.run()
    made = events(run, DiagnosesMade)
    assert made
    assert run.loop.budget.usage["diagnoser"].calls == len(made)
    for request in run.proposer.requests:
        for node in request.nodes:
            (diagnosis,) = node.diagnoses
            assert diagnosis.observation == f"read {node.candidate.id}"


def test_node_after_which_the_chain_ends_is_not_read() -> None:
    reader = Reader()
    run = world(reader, plan={"depth": 2}, edits=_never_better)
    run.run()
    assert max(len(nodes) for nodes in reader.read) == 3  # parent and two nodes
    assert len(run.proposer.requests) == 3 * 3
    shallow = Reader()
    world(shallow, plan={"depth": 0}, edits=_never_better).run()
    assert {len(nodes) for nodes in shallow.read} == {1}


def _never_better(request: ProposalRequest) -> Change:
    noise = str(request.rng.random()).encode()
    return lambda files: {"level": files["level"], "touched": noise}


@pytest.mark.parametrize(
    ("instead", "problem"),
    [
        (AnswerFailed("503, six times", USAGE), "503, six times"),
        (ModelProblem("the key is refused"), "the key is refused"),
        (ZeroDivisionError("oops"), "it raised ZeroDivisionError: oops"),
        (["text"], "it returned list, not a Diagnosed"),
        (Diagnosed(problems=("one case",), usage=USAGE), "one case"),
    ],
)
def test_diagnoser_that_fails_is_journalled_and_the_run_goes_on(
    instead: object, problem: str
) -> None:
    run = world(Reader(instead))
    end = run.run()
    assert end.stop.complete
    made = events(run, DiagnosesMade)
    assert made
    assert all(event.problems == (problem,) for event in made)
    assert any(event.parent for event in events(run, CandidateRecorded))
    spent = run.loop.budget.usage.get("diagnoser")
    assert (spent is None) is not isinstance(instead, AnswerFailed | Diagnosed)


def test_what_a_person_has_to_change_ends_the_run() -> None:
    with pytest.raises(SettingsProblem, match="prompts are gone"):
        world(Reader(SettingsProblem("the prompts are gone"))).run()


def test_diagnoser_counts_against_the_budget_of_money() -> None:
    run = world(Reader(), usd=2.0)
    end = run.run()
    assert end.stop.reason == "budget: usd"
    assert len(events(run, DiagnosesMade)) == 4


@pytest.mark.parametrize("kill", [60, 75, 90])
def test_resumed_run_does_not_pay_for_a_diagnosis_twice(kill: int) -> None:
    whole = world(Reader())
    whole.run()
    journal, workshop = MemoryJournal(), MemoryWorkshop()
    readers = Reader(), Reader()
    with pytest.raises(Killed):
        world(readers[0], journal=journal, workshop=workshop, kill_after=kill).run()
    workshop.forget_workspaces()
    resumed = world(readers[1], journal=journal, workshop=workshop)
    resumed.run()
    assert events(resumed, DiagnosesMade) == events(whole, DiagnosesMade)
    paid = len(readers[0].read) + len(readers[1].read)
    assert paid == len(events(whole, DiagnosesMade))


def test_effects_are_in_the_journal_and_in_what_later_iterations_see() -> None:
    run = world(Reader())
    run.run()
    recorded = [e for e in events(run, CandidateRecorded) if e.parent]
    assert recorded
    for event in recorded:
        for entry in event.changelog:
            assert entry.effect is not None
            assert entry.effect.base == event.base
    later = run.proposer.requests[-1].history
    assert later[0].changelog == recorded[0].changelog
    assert later[0].tree == recorded[0].tree
