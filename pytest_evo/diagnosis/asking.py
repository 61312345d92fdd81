"""Asks a model for a reading, checks it, and asks once more with what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic
from typing import TypeVar

from pydantic import BaseModel

from pytest_evo.background import in_daemon_thread
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.protocols import ChatModel
from pytest_evo.replies import ask_structured
from pytest_evo.replies import Structured

T = TypeVar("T", bound=BaseModel)
R = TypeVar("R")

AT_ONCE = 4
"""Questions that are out at the same time."""
BUDGETS = (60_000, 24_000, 9_000)
"""Characters of a prompt's evidence; the next one where the context is too small."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A reading, what checks found wrong with it twice, and what it cost."""

    value: T | None
    usage: Usage
    problem: str = ""
    doubts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """One thing to ask.

    ``prompt`` makes system and user text for a budget of characters, ``faults`` says
    what is wrong with a reading, and ``again`` makes the text that asks once more.
    """

    prompt: Callable[[int], tuple[str, str]]
    kind: type[T]
    faults: Callable[[T], Sequence[str]]
    again: Callable[[Sequence[str]], str]


class Asker:
    """Asks questions of one model, a few at a time, in threads of their own."""

    def __init__(self, model: ChatModel) -> None:
        self._model = model

    async def ask(self, question: Question[T]) -> Answer[T]:
        """Ask; a failure is a problem of the answer, never an exception."""
        return await in_daemon_thread(lambda: self._ask(question))

    def _ask(self, question: Question[T]) -> Answer[T]:
        got, usage = self._first(question)
        if got.value is None:
            return Answer(None, usage, got.problem)
        faults = tuple(question.faults(got.value))
        if not faults:
            return Answer(got.value, usage)
        again = Message(Speaker.USER, question.again(faults))
        messages = (*got.messages, again)
        second = ask_structured(self._model, messages, question.kind)
        usage += second.usage
        if second.value is None:
            return Answer(got.value, usage, second.problem, faults)
        return Answer(second.value, usage, "", tuple(question.faults(second.value)))

    def _first(self, question: Question[T]) -> tuple[Structured[T], Usage]:
        usage = NO_USAGE
        for budget in BUDGETS:
            system, user = question.prompt(budget)
            messages = (Message(Speaker.SYSTEM, system), Message(Speaker.USER, user))
            got = ask_structured(self._model, messages, question.kind)
            usage += got.usage
            if not got.too_long:
                break
        return got, usage


async def in_order(work: Sequence[Callable[[], Awaitable[R]]]) -> list[R]:
    """Results in the order of the work, a few of them made at a time."""
    gate = asyncio.Semaphore(AT_ONCE)

    async def one(make: Callable[[], Awaitable[R]]) -> R:
        async with gate:
            return await make()

    tasks = [asyncio.ensure_future(one(make)) for make in work]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
