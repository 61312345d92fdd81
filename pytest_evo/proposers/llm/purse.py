"""What model calls of one proposal may cost, asked before each of them."""

from __future__ import annotations

import threading
from dataclasses import replace

from pytest_evo.chat import AnswerFailed
from pytest_evo.chat import AnswersOver
from pytest_evo.chat import AskedInVain
from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import size_of
from pytest_evo.chat import spent_on
from pytest_evo.chat import ToolsRefused
from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import EvoError
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.protocols import ChatModel
from pytest_evo.protocols import ProposalRequest

LEAST_ANSWER = 500
"""Tokens that an answer must be able to have, or the call is not made."""
_BYTES_A_TOKEN = 3.0  # before the provider has counted: rather too many tokens


class Purse:
    """Shared by all proposals of a run, those of other slots included."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running = NO_USAGE  # of proposals that the engine has not charged yet
        self._total = NO_USAGE

    def open(self, request: ProposalRequest) -> Account:
        """An account for one proposal."""
        with self._lock:
            return Account(self, request, self._running, self._total)

    def spend(self, usage: Usage) -> None:
        """Count one call."""
        with self._lock:
            self._running += usage
            self._total += usage

    def settle(self, usage: Usage) -> None:
        """Take over that the engine charges a finished proposal now."""
        with self._lock:
            self._running -= usage

    @property
    def total(self) -> Usage:
        """All calls of all proposals."""
        with self._lock:
            return self._total


class Account:
    """Asks a model for one proposal and keeps the sum.

    A call is made only if the tokens that are left cover its request, as estimated from
    its size, and some answer; the answer is limited to the rest.
    """

    def __init__(
        self, purse: Purse, request: ProposalRequest, running: Usage, total: Usage
    ) -> None:
        self._purse = purse
        self._tokens = request.tokens_left
        self._usd = request.usd_left
        self._running = running
        self._total = total
        self._ratio = _BYTES_A_TOKEN
        self._last: float = 0.0
        self.usage = NO_USAGE

    def ask(self, model: ChatModel, request: ChatRequest, most: int) -> ChatReply:
        """Ask for an answer of at most ``most`` tokens.

        Raises:
            AnswersOver: what is left does not pay for it; nothing was asked.
            ContextOverflow, ToolsRefused: ask differently.
            AskedInVain, AnswerFailed: with the usage of all calls so far.
        """
        size = size_of(request)
        allowed = self._allowed(int(size / self._ratio) + 1, most)
        try:
            reply = model.ask(replace(request, max_tokens=allowed))
        except (ModelFailed, ModelProblem) as error:
            self._add(spent_on(error))
            if isinstance(error, ContextOverflow | ToolsRefused):
                raise
            raise self._with_usage(error) from error
        self._add(reply.usage)
        if reply.usage.input_tokens:
            self._ratio = min(8.0, max(1.0, size / reply.usage.input_tokens))
        self._last = reply.usage.counted_usd
        return reply

    def close(self) -> Usage:
        """End the account; what it cost is charged by the engine from now on."""
        self._purse.settle(self.usage)
        return self.usage

    def _add(self, usage: Usage) -> None:
        self.usage += usage
        self._purse.spend(usage)

    def _with_usage(self, error: EvoError) -> EvoError:
        if isinstance(error, ModelProblem):
            return AskedInVain(str(error), self.usage)
        return AnswerFailed(str(error), self.usage)

    def _allowed(self, needed: int, most: int) -> int:
        now = self._purse.total
        if self._usd is not None:
            running = self._running.counted_usd + now.counted_usd
            left = self._usd - (running - self._total.counted_usd)
            if left <= self._last:
                raise AnswersOver(
                    "usd",
                    f"{max(0.0, left):.4f} USD are left, and the last model "
                    f"call cost {self._last:.4f}; give a larger --budget-usd",
                    self.usage,
                )
        if self._tokens is None:
            return most
        others = self._running.tokens - self._total.tokens
        room = self._tokens - others - now.tokens - needed
        if room < min(most, LEAST_ANSWER):
            raise AnswersOver(
                "tokens",
                f"the next model call needs about {needed:,} tokens and an "
                f"answer, and {max(0, room + needed):,} are left; give a larger "
                "--budget-tokens",
                self.usage,
            )
        return min(most, room)
