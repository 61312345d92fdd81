"""A soft stop: nothing new starts, what runs finishes, the run can be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from pytest_evo.errors import EvoError

T = TypeVar("T")


class Interrupted(EvoError):
    """A person asked the run to stop; what is open stays open for a resume."""


class SoftStop:
    """Set once, from any thread; asked before everything that costs."""

    def __init__(self) -> None:
        self.requested = False
        self._waiting: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None

    def attach(self) -> None:
        """Bind to the running loop, so that waiting steps wake up at once."""
        self._loop = asyncio.get_running_loop()
        if self.requested:
            self._wake()

    def request(self) -> None:
        """Ask for the stop; safe from signal handlers and other threads."""
        self.requested = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        for waiter in self._waiting:
            _end(waiter)

    def check(self) -> None:
        """Raise where a stop was requested.

        Raises:
            Interrupted: it was.
        """
        if self.requested:
            raise Interrupted("stopped on request")

    async def unless(self, work: Awaitable[T]) -> T:
        """Wait for ``work``, but no longer than until a stop is requested.

        Raises:
            Interrupted: the stop came first; the work was cancelled.
        """
        task = asyncio.ensure_future(work)
        if self.requested:
            task.cancel()
            self.check()
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        task.add_done_callback(lambda done: _end(waiter))
        self._waiting.add(waiter)
        try:
            await waiter
        finally:
            self._waiting.discard(waiter)
            if not task.done():
                task.cancel()
        if task.cancelled() or not task.done():
            raise Interrupted("stopped on request")
        return task.result()


def _end(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
