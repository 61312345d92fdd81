"""Blocking calls in threads that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(call: Callable[[], T]) -> T:
    """Run a blocking call so that a stop of the process does not wait for it."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def finish(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - handed over, raised by await
            _hand_over(loop, finish, None, error)
        else:
            _hand_over(loop, finish, result, None)

    within = contextvars.copy_context()
    threading.Thread(
        target=lambda: within.run(work), name="evo-call", daemon=True
    ).start()
    return await future


def _hand_over(
    loop: asyncio.AbstractEventLoop,
    finish: Callable[[T | None, BaseException | None], None],
    result: T | None,
    error: BaseException | None,
) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(finish, result, error)
