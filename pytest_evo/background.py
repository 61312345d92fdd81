"""Blocking calls in threads that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic
from typing import TypeVar

T = TypeVar("T")

_MOST_WAITING = 4


async def in_daemon_thread(call: Callable[[], T]) -> T:
    """Run a blocking call so that a stop of the process does not wait for it.

    A call that never comes back keeps its thread; others get another one.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Answer[T]] = loop.create_future()

    def finish(answer: _Answer[T] | BaseException) -> None:
        if future.cancelled():
            return
        if isinstance(answer, BaseException):
            future.set_exception(answer)
        else:
            future.set_result(answer)

    def work() -> Callable[[], None]:
        answer: _Answer[T] | BaseException
        try:
            answer = _Answer(call())
        except BaseException as error:  # noqa: BLE001 - handed over, raised by await
            answer = error
        return lambda: _hand_over(loop, finish, answer)

    within = contextvars.copy_context()
    _take().give(lambda: within.run(work))
    return (await future).take()


class _Answer(Generic[T]):
    """What a call gave; a coroutine that nobody takes is closed without complaint."""

    def __init__(self, value: T) -> None:
        self._values = [value]

    def take(self) -> T:
        return self._values.pop()

    def __del__(self) -> None:
        for value in self._values:
            if inspect.iscoroutine(value):
                value.close()


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    finish: Callable[[_Answer[T] | BaseException], None],
    answer: _Answer[T] | BaseException,
) -> None:
    with suppress(RuntimeError):  # the loop is closed: nobody waits any more
        loop.call_soon_threadsafe(finish, answer)


# -- threads -----------------------------------------------------------------------


class _Worker:
    """A thread that waits for its next call, because starting one takes longer."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], Callable[[], None]]] = SimpleQueue()
        threading.Thread(target=self._serve, name="evo-call", daemon=True).start()

    def give(self, call: Callable[[], Callable[[], None]]) -> None:
        """Have a call made; what it returns is called when the thread is free."""
        self._calls.put(call)

    def _serve(self) -> None:
        while True:
            done = self._calls.get()()
            asyncio.set_event_loop(None)  # of a call that left one behind
            stays = len(_waiting) < _MOST_WAITING
            if stays:
                _waiting.append(self)  # first, so that the next call finds it
            done()
            if not stays:
                return
            del done  # what it holds may be large


_waiting: list[_Worker] = []
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_waiting.clear)  # their threads stay behind


def _take() -> _Worker:
    try:
        return _waiting.pop()
    except IndexError:
        return _Worker()
