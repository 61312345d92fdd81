"""A scripted stand-in for a language model."""

from __future__ import annotations

import threading
from collections.abc import Callable
from collections.abc import Sequence
from typing import TypeAlias

from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Finish
from pytest_evo.errors import ModelFailed
from pytest_evo.models import Usage

Answer: TypeAlias = "str | ChatReply | Exception"
"""A reply's text, a whole reply, or what is raised."""


class ScriptedModel:
    """Answers with prepared replies; may be asked from several threads.

    Args:
        answers: one after the other, or a function of the request. After the last one
            it fails as a model does.
        usage: what a reply costs that is given as text.
        name: what it is called in messages.
    """

    def __init__(
        self,
        answers: Sequence[Answer] | Callable[[ChatRequest], Answer],
        *,
        usage: Usage | None = None,
        name: str = "scripted-model",
    ) -> None:
        self._answers = answers
        self._usage = usage or Usage(calls=1, input_tokens=100, output_tokens=20)
        self._name = name
        self._lock = threading.Lock()
        self.requests: list[ChatRequest] = []
        """Everything that was asked, in the order of asking."""

    @property
    def name(self) -> str:
        """The model's name, for messages and reports."""
        return self._name

    def ask(self, request: ChatRequest) -> ChatReply:
        """Give the prepared answer, or raise it."""
        with self._lock:
            number = len(self.requests)
            self.requests.append(request)
        answer = self._answer(request, number)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ChatReply):
            return answer
        finish = Finish.STOP if answer.strip() else Finish.EMPTY
        return ChatReply(answer, finish, usage=self._usage)

    def _answer(self, request: ChatRequest, number: int) -> Answer:
        if callable(self._answers):
            return self._answers(request)
        if number < len(self._answers):
            return self._answers[number]
        return ModelFailed(f"all {len(self._answers)} scripted answers were given")
