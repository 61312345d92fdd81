"""A stop in the middle of model calls loses none of their cost."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from engine_world import World

from pytest_evo.background import in_daemon_thread
from pytest_evo.engine.softstop import Interrupted
from pytest_evo.events import CallsLost
from pytest_evo.models import Node
from pytest_evo.models import Usage
from pytest_evo.protocols import Diagnosed
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


def test_tab_follows_into_threads_and_no_further() -> None:
    async def ask() -> Usage:
        with opened_tab() as tab:
            await in_daemon_thread(lambda: current_tab().begin(OUT))
        current_tab().begin(PAID)
        return tab.total()

    assert asyncio.run(ask()) == OUT
