"""How many requests are in flight, and whose turn is next."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from pytest_evo.protocols import Evaluator


class Flow:
    """At most ``capacity`` requests in flight, lower iterations first."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._in_flight = 0
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0

    @asynccontextmanager
    async def slot(self, iteration: int) -> AsyncIterator[None]:
        """Hold one place in flight."""
        while self._in_flight >= self._evaluator.capacity():
            turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._count += 1
            heapq.heappush(self._waiting, (iteration, self._count, turn))
            await turn
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            while self._waiting:
                _, _, turn = heapq.heappop(self._waiting)
                if not turn.done():
                    turn.set_result(None)
                    break
