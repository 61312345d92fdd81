"""A model that is asked only as long as the budget pays for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import size_of
from pytest_evo.chat import spent_on
from pytest_evo.engine.budget import Budget
from pytest_evo.errors import EvoError
from pytest_evo.errors import ModelFailed
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.protocols import ChatModel

BYTES_A_TOKEN = 4
"""For a first guess of what a request costs, before the provider has counted."""


class RationedModel:
    """Asks the budget before each call of a role.

    The budget learns of a role's calls when its step ends. What was spent since then is
    counted here, so that many calls of one step cannot pass a limit together.

    Args:
        model: that is asked.
        role: under which the budget counts it.
        budget: the run's, once there is one.
    """

    def __init__(
        self, model: ChatModel, role: str, budget: Callable[[], Budget | None]
    ) -> None:
        self._model = model
        self._role = role
        self._budget = budget
        self._lock = threading.Lock()
        self._spent = NO_USAGE
        self._before: Usage | None = None  # what the role had cost in earlier sessions
        self._asked = 0  # tokens of requests that are out

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    def ask(self, request: ChatRequest) -> ChatReply:
        """Ask once, if tokens and money allow it.

        Raises:
            ModelFailed: they do not, or the model fails.
            ModelProblem: asking again is vain.
        """
        need = size_of(request) // BYTES_A_TOKEN
        with self._lock:
            self._check(need)
            self._asked += need
        usage = NO_USAGE
        try:
            reply = self._model.ask(replace(request, asker=self._role))
            usage = reply.usage
        except EvoError as error:
            usage = spent_on(error)
            raise
        finally:
            with self._lock:
                self._asked -= need
                self._spent += usage
        return reply

    def _check(self, need: int) -> None:
        budget = self._budget()
        if budget is None:
            return
        charged = budget.usage.get(self._role, NO_USAGE)
        if self._before is None:
            self._before = charged
        spent = self._spent - (charged - self._before)
        tokens = budget.tokens_left()
        if tokens is not None and spent.tokens + self._asked + need >= tokens:
            self._refuse(
                budget,
                "tokens",
                f"{max(0, tokens - spent.tokens):,} are left and do not pay for a "
                f"question of about {need:,}",
            )
        usd = budget.usd_left()
        if usd is not None and spent.counted_usd >= usd:
            self._refuse(budget, "usd", "nothing is left")

    def _refuse(self, budget: Budget, axis: str, why: str) -> NoReturn:
        """The run ends with this step: the next one could not be read either."""
        budget.close(axis, why)
        raise ModelFailed(f"--budget-{axis}: {why}")
