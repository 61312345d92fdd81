"""Keeps what a step's model calls cost while they are made, for after a kill."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.softstop import Interrupted
from pytest_evo.errors import EvoError
from pytest_evo.events import CallsLost
from pytest_evo.events import TabKept
from pytest_evo.tabs import opened_tab


@contextmanager
def kept_tab(log: ScopeLog, iteration: int, step: int, role: str) -> Iterator[None]:
    """Note every change of a step's tab; a stop makes the last one its cost.

    Raises:
        EvoError: a note could not be written.
    """
    loop = asyncio.get_running_loop()
    is_open = True
    trouble: list[EvoError] = []

    def keep() -> None:
        if not is_open or trouble:  # the answer that closed it carries its cost
            return
        try:
            log.keep_tab(TabKept(iteration, step, role, tab.total()))
        except EvoError as error:  # a callback of the loop has nobody to raise it to
            trouble.append(error)

    def changed() -> None:
        if is_open and not loop.is_closed():
            loop.call_soon_threadsafe(keep)

    with opened_tab(changed) as tab:
        try:
            yield
        except Interrupted:
            log.keep_unanswered(CallsLost(iteration, step, role, tab.total()))
            raise
        finally:
            is_open = False
        if trouble:
            raise trouble[0]
