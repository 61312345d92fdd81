"""A stop in the middle of model calls loses none of their cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from engine_world import Change
from engine_world import World

from pytest_evo.background import in_daemon_thread
from pytest_evo.engine.softstop import Interrupted
from pytest_evo.errors import ProposerProblem
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.events import CallsLost
from pytest_evo.events import DiagnosesMade
from pytest_evo.events import Event
from pytest_evo.events import ProposalMade
from pytest_evo.events import TabKept
from pytest_evo.models import Node
from pytest_evo.models import Usage
from pytest_evo.protocols import Diagnosed
from pytest_evo.protocols import ProposalRequest
from pytest_evo.store.journal import MemoryJournal
from pytest_evo.tabs import current_tab
from pytest_evo.tabs import opened_tab

PAID = Usage(calls=1, input_tokens=40, output_tokens=10, usd=0.5)
OUT = Usage(1, 30, usd=None, unpriced=1, estimated_usd=0.2)


class StoppedReader:
    """Has asked twice, and waits for the second answer, when a person stops the run."""

    def __init__(self) -> None:
        self.world: World | None = None

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        def ask() -> None:
            tab = current_tab()
            tab.end(tab.begin(OUT), PAID)
            tab.begin(OUT)

        await in_daemon_thread(ask)
        assert self.world is not None
        self.world.loop.interrupt()
        await asyncio.Event().wait()
        raise AssertionError


def test_cost_of_a_diagnosis_that_is_stopped_survives_the_resume() -> None:
    journal, reader = MemoryJournal(), StoppedReader()
    first = World(journal, diagnoser=reader, iterations=2)
    reader.world = first
    with pytest.raises(Interrupted):
        first.run()
    again = World(journal, workshop=first.workshop, iterations=2)
    again.run()
    assert again.loop.budget.usage["diagnoser"] == PAID + OUT
    lost = [row for row in again.events if isinstance(row, CallsLost)]
    assert [(row.iteration, row.role) for row in lost] == [(1, "diagnoser")]
    third = World(journal, workshop=first.workshop, iterations=2)
    third.run()
    assert third.loop.budget.usage["diagnoser"] == PAID + OUT


class PowerCut(BaseException):
    """Nothing that the run could write down."""


class KilledReader:
    """Dies while its second answer is out, like the process that it stands for."""

    def __init__(self, deaths: int) -> None:
        self.deaths = deaths

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        def ask() -> None:
            tab = current_tab()
            tab.end(tab.begin(OUT), PAID)
            if self.deaths:
                tab.begin(OUT)

        await in_daemon_thread(ask)
        if self.deaths:
            self.deaths -= 1
            raise PowerCut
        return Diagnosed(usage=PAID)


def test_cost_of_calls_that_a_kill_cut_off_is_charged_once_a_kill() -> None:
    journal, reader = MemoryJournal(), KilledReader(deaths=2)
    world = World(journal, diagnoser=reader, iterations=2)
    for _ in range(2):
        with pytest.raises(PowerCut):
            world.run()
        world = World(journal, diagnoser=reader, workshop=world.workshop, iterations=2)
    world.run()
    lost = [row for row in world.events if isinstance(row, CallsLost)]
    assert [(row.role, row.usage) for row in lost] == [("diagnoser", PAID + OUT)] * 2
    made = [row for row in world.events if isinstance(row, DiagnosesMade)]
    total = sum((row.usage for row in made), PAID + OUT + PAID + OUT)
    assert len(made) > 1
    assert world.loop.budget.usage["diagnoser"] == total
    assert not any(isinstance(row, TabKept) for row in world.events)


class FaultyReader:
    """Asks, and then has a fault of its own."""

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        await in_daemon_thread(
            lambda: current_tab().end(current_tab().begin(OUT), PAID)
        )
        raise ZeroDivisionError


def test_calls_before_a_fault_of_the_diagnoser_are_charged() -> None:
    world = World(diagnoser=FaultyReader(), iterations=1)
    world.run()
    made = [row for row in world.events if isinstance(row, DiagnosesMade)]
    assert made
    assert all(row.usage == PAID for row in made)
    assert "ZeroDivisionError" in made[0].problems[0]


def test_calls_before_a_fault_of_the_proposer_are_charged() -> None:
    def edits(request: ProposalRequest) -> Change:
        current_tab().end(current_tab().begin(OUT), PAID)
        raise ZeroDivisionError

    world = World(edits=edits, iterations=1)
    with pytest.raises(ProposerProblem):
        world.run()
    made = [row for row in world.events if isinstance(row, ProposalMade)]
    assert made
    assert all(row.fault and row.usage == PAID for row in made)


def test_tab_follows_into_threads_and_no_further() -> None:
    async def ask() -> Usage:
        with opened_tab() as tab:
            await in_daemon_thread(lambda: current_tab().begin(OUT))
        current_tab().begin(PAID)
        return tab.total()

    assert asyncio.run(ask()) == OUT


class FullJournal(MemoryJournal):
    """Has no room for what steps under way have spent."""

    def _note(self, scope: str, event: Event) -> None:
        if isinstance(event, TabKept):
            raise RunDirectoryProblem("no room is left")
        super()._note(scope, event)


def test_note_that_cannot_be_written_ends_the_run_by_name() -> None:
    world = World(FullJournal(), diagnoser=KilledReader(deaths=0), iterations=1)
    with pytest.raises(RunDirectoryProblem, match="no room"):
        world.run()
