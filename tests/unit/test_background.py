"""Calls in threads: what one does is nothing to the others."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import ContextVar
from inspect import CORO_CLOSED

import pytest

from pytest_evo.background import in_daemon_thread

VARIABLE: ContextVar[str] = ContextVar("variable", default="unset")


def test_result_and_error_come_back() -> None:
    def fail() -> None:
        raise SystemExit("no")

    async def ask() -> str:
        with pytest.raises(SystemExit, match="no"):
            await in_daemon_thread(fail)
        return await in_daemon_thread(lambda: threading.current_thread().name)

    assert asyncio.run(ask()) == "evo-call"


def test_calls_one_after_the_other_take_one_thread() -> None:
    async def ask() -> set[int]:
        return {await in_daemon_thread(threading.get_ident) for _ in range(5)}

    assert len(asyncio.run(ask())) < 5  # one, unless others come free meanwhile


def test_call_that_hangs_holds_up_no_other() -> None:
    free, done = threading.Event(), threading.Event()

    def hang() -> None:
        free.wait()
        done.set()

    async def hung() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(in_daemon_thread(hang), 0.01)

    async def ask() -> set[int]:
        return {await in_daemon_thread(threading.get_ident) for _ in range(2)}

    asyncio.run(hung())
    assert asyncio.run(ask())
    free.set()  # the loop that asked is closed by now
    assert done.wait(10)
    assert asyncio.run(ask())


def test_many_calls_at_once_each_have_a_thread() -> None:
    together = threading.Barrier(8)

    async def ask() -> list[int]:
        calls = (in_daemon_thread(lambda: together.wait(10)) for _ in range(8))
        return await asyncio.gather(*calls)

    assert sorted(asyncio.run(ask())) == list(range(8))
    assert sorted(asyncio.run(ask())) == list(range(8))


def test_what_a_call_leaves_behind_is_not_seen_by_the_next() -> None:
    def leave() -> None:
        VARIABLE.set("left")
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.close()

    def find() -> str:
        with pytest.raises(RuntimeError):
            asyncio.get_event_loop()
        return VARIABLE.get()

    async def ask() -> str:
        VARIABLE.set("asked")
        await in_daemon_thread(leave)
        return await in_daemon_thread(find)

    assert asyncio.run(ask()) == "asked"


def test_coroutine_that_nobody_waits_for_is_closed() -> None:
    free = threading.Event()
    made: list[Coroutine[None, None, None]] = []

    async def never() -> None:
        raise AssertionError

    def late() -> Coroutine[None, None, None]:
        free.wait()
        made.append(never())
        return made[-1]

    async def cancelled() -> None:
        asking = asyncio.ensure_future(in_daemon_thread(late))
        await asyncio.sleep(0)
        asking.cancel()
        free.set()
        while not made or inspect.getcoroutinestate(made[-1]) != CORO_CLOSED:
            await asyncio.sleep(0.001)

    async def cancelled_late() -> None:
        asking = asyncio.ensure_future(in_daemon_thread(late))
        while len(made) < 2:
            await asyncio.sleep(0)
        while not asking.cancel():
            await asyncio.sleep(0)
        with suppress(asyncio.CancelledError):
            (await asking).close()

    asyncio.run(cancelled())
    asyncio.run(cancelled_late())
    assert [inspect.getcoroutinestate(one) for one in made] == [CORO_CLOSED] * 2
