"""A language model reached through litellm, which is imported here and nowhere else.

The import takes seconds and hundreds of megabytes, so it happens inside a function, in
the controller, when the first call or check is due.
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace
from random import Random
from types import ModuleType
from typing import Any
from typing import NoReturn

from pytest_evo.chat import AnswerFailed
from pytest_evo.chat import AnswerTooLong
from pytest_evo.chat import AskedInVain
from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Costly
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.chat import ToolsRefused
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.llm.faults import Fault
from pytest_evo.llm.faults import Meaning
from pytest_evo.llm.faults import read_fault
from pytest_evo.llm.waiting import Backoff
from pytest_evo.llm.waiting import RateLimiter
from pytest_evo.llm.wire import as_messages
from pytest_evo.llm.wire import as_reply
from pytest_evo.llm.wire import as_tools
from pytest_evo.llm.wire import count
from pytest_evo.llm.wire import lost
from pytest_evo.llm.wire import price_of
from pytest_evo.llm.wire import table_price
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.settings_model import ModelSettings
from pytest_evo.spending import may_cost
from pytest_evo.tabs import current_tab

PROBE_WAIT = 60.0
"""Seconds that the check at the start waits for a provider that is not ready."""
_PROBE = ChatRequest((Message(Speaker.USER, "Reply with: ok"),), max_tokens=16)
_NO_KEY = "no-key"  # what a server without keys gets; its client insists on one
_SETTINGS = "[tool.pytest_evo.model_options]"


@dataclass(slots=True)
class _Attempt:
    """One request on its way: how often and how long it was tried, and what it cost."""

    began: float
    limit: float  # seconds for all tries together
    tries: int = 0
    spent: Usage = NO_USAGE  # by all tries
    dropped: set[str] = field(default_factory=set)


class LiteLLMModel:
    """A ``ChatModel``; one object serves all slots.

    Args:
        name: as litellm knows it, like ``openai/gpt-5-mini``.
        options: how it is reached and paid.
        rng: for jitter.
        key: the key; None: litellm finds it in the environment.
        hide: takes secrets out of what providers say.
        clock: seconds that only grow.
        backoff: the waits between tries.
    """

    def __init__(
        self,
        name: str,
        options: ModelSettings,
        *,
        rng: Random,
        key: str | None = None,
        hide: Callable[[str], str] = str,
        clock: Callable[[], float] = time.monotonic,
        backoff: Backoff | None = None,
    ) -> None:
        self._name = name
        self._options = options
        self._rng = rng
        self._key = key
        self._hide = hide
        self._clock = clock
        self._backoff = backoff or Backoff()
        self._limiter = RateLimiter(options.requests_per_minute, clock)
        self._closed = threading.Event()
        self._first = threading.Lock()
        self._connected = False
        self._owed = NO_USAGE  # of the probe, until an answer or failure brings it in
        self._unwanted: set[str] = set()  # parameters that the provider refused

    @property
    def name(self) -> str:
        """The model's name, for messages and reports."""
        return self._name

    def close(self) -> None:
        """End every wait and every connection; nothing is asked any more."""
        self._closed.set()
        _disconnect()

    # -- before anything is spent ----------------------------------------------------

    def check(self) -> None:
        """Look at name and key without any network.

        Raises:
            ModelProblem: there is no such provider, or no key.
        """
        litellm = _litellm()
        try:
            litellm.get_llm_provider(self._name, api_base=self._options.api_base)
        except litellm.exceptions.BadRequestError as error:
            raise ModelProblem(
                f"--evo-model={self._name}: nobody knows how to reach it. Write it as "
                "PROVIDER/NAME, like openai/gpt-5-mini, anthropic/claude-sonnet-4-5 or "
                "ollama/llama3; for a server of your own openai/NAME with api_base in "
                f"{_SETTINGS}."
            ) from error
        if self._options.api_key_env is not None and not self._key:
            raise ModelProblem(
                f"api_key_env in {_SETTINGS} names {self._options.api_key_env}, which "
                f"is not set. Type: export {self._options.api_key_env}=KEY"
            )
        if self._key or self._options.api_base:
            return
        found = litellm.validate_environment(self._name)
        keys = [name for name in found["missing_keys"] if name.endswith("_API_KEY")]
        if not found["keys_in_environment"] and keys:
            raise ModelProblem(
                f"--evo-model={self._name} needs a key, and {' or '.join(keys)} is not "
                f"set. Type: export {keys[-1]}=KEY, or name another variable as "
                f"api_key_env in {_SETTINGS}."
            )

    def probe(self) -> Usage:
        """Ask for one word; what that cost is also charged with the first answer.

        Raises:
            ModelProblem: the model cannot be used as it is set up.
        """
        self.check()
        try:
            usage = self._ask(_PROBE, min(PROBE_WAIT, self._options.max_wait)).usage
        except ModelFailed as error:
            raise ModelProblem(
                f"{error} Nothing was spent on rollouts. Look at --evo-model and "
                f"{_SETTINGS}, then start again."
            ) from error
        with self._first:
            self._owed += usage
        return usage

    # -- asking ----------------------------------------------------------------------

    def ask(self, request: ChatRequest) -> ChatReply:
        """Ask; blocks until there is an answer or no hope for one.

        Raises:
            ModelProblem: wrong key, unknown model, spent quota: asking again is vain.
            ContextOverflow: the request is too long for the model.
            ToolsRefused: the model takes no tools.
            ModelFailed: no answer after all tries.
        """
        tab, usage, owed = current_tab(), NO_USAGE, self._settle()
        most = request.max_tokens or self._options.max_tokens
        out = owed + lost(request, most, self._price)
        number = tab.begin(out)
        try:
            reply = self._ask(
                request,
                self._options.max_wait,
                lambda spent: tab.amend(number, out + spent),
            )
            usage = owed + reply.usage
        except Costly as error:
            error.usage += owed
            usage = error.usage
            raise
        finally:
            tab.end(number, usage)
        return replace(reply, usage=usage)

    def _settle(self) -> Usage:
        """What the probe cost, once."""
        with self._first:
            owed, self._owed = self._owed, NO_USAGE
        return owed

    def _ask(
        self,
        request: ChatRequest,
        limit: float,
        retrying: Callable[[Usage], None] = lambda spent: None,
    ) -> ChatReply:
        litellm = _litellm()
        attempt = _Attempt(self._clock(), limit)
        while True:
            self._wait(self._limiter.take(), attempt)
            attempt.tries += 1
            kept = self._parameters(litellm, request)
            begun = self._clock()
            try:
                response = self._send(litellm, as_messages(request), kept)
            except Exception as error:  # noqa: BLE001 - each becomes a typed one below
                fault = read_fault(
                    error, _OPTIONAL, tools=bool(request.tools), hide=self._hidden
                )
                spent = self._failed_call(error, request, kept)
                attempt.spent += replace(spent, seconds=self._clock() - begun)
                self._meet(fault, attempt, kept)
                retrying(attempt.spent)
                continue
            usage = count(request, response, self._options)
            if usage.usd is None:
                guess = self._price(usage.input_tokens, usage.output_tokens)
                usage = replace(usage, estimated_usd=guess)
            attempt.spent += replace(usage, seconds=self._clock() - begun)
            reply = as_reply(response, attempt.spent)
            if reply is not None:
                return reply
            nothing = Fault(Meaning.AGAIN, "a reply without an answer")
            self._meet(nothing, attempt, kept)
            retrying(attempt.spent)

    def _failed_call(
        self, error: Exception, request: ChatRequest, kept: dict[str, Any]
    ) -> Usage:
        """What a call without an answer counts as: nothing only where that is known."""
        if not may_cost(error):
            return Usage(calls=1)
        most = kept.get("max_tokens") or kept.get("max_completion_tokens", 0)
        return lost(request, most, self._price)

    def _price(self, sent: int, received: int) -> float | None:
        """What so many tokens cost, by the settings or the library's table."""
        own = price_of(self._options, sent, 0, received)
        return (
            table_price(_litellm(), self._name, sent, received) if own is None else own
        )

    def _send(
        self, litellm: ModuleType, messages: list[dict[str, Any]], kept: dict[str, Any]
    ) -> Any:
        if self._connected:
            return litellm.completion(model=self._name, messages=messages, **kept)
        # the library makes one client for all who come first, and drops all but one
        with self._first:
            response = litellm.completion(model=self._name, messages=messages, **kept)
            self._connected = True
        return response

    def _parameters(self, litellm: ModuleType, request: ChatRequest) -> dict[str, Any]:
        options = self._options
        wanted: dict[str, Any] = {
            **options.extra,
            "timeout": options.timeout,
            "max_retries": 0,
            "temperature": options.temperature,
            "max_tokens": request.max_tokens or options.max_tokens,
            "tools": as_tools(request) or None,
            "api_base": options.api_base,
            "api_key": self._key or (_NO_KEY if options.api_base else None),
        }
        if request.schema is not None and self._takes_schemas(litellm):
            form = {"name": "reply", "schema": dict(request.schema)}
            wanted["response_format"] = {"type": "json_schema", "json_schema": form}
        if "claude" in self._name.lower():  # others find a repeated start themselves
            point = {"location": "message", "role": "system"}
            wanted["cache_control_injection_points"] = [point]
        if "max_tokens" in self._unwanted:
            wanted["max_completion_tokens"] = wanted["max_tokens"]
        return {
            name: value
            for name, value in wanted.items()
            if value is not None and name not in self._unwanted
        }

    def _takes_schemas(self, litellm: ModuleType) -> bool:
        """Whether to try a schema: unknown models may well take one."""
        if litellm.supports_response_schema(self._name):
            return True
        return self._name not in litellm.model_cost

    def _meet(self, fault: Fault, attempt: _Attempt, kept: dict[str, Any]) -> None:
        """Return where the same request should be sent again, raise where not."""
        if fault.meaning is Meaning.PARAMETER and fault.parameter in kept:
            self._unwanted.add(fault.parameter)
            return
        if fault.meaning is Meaning.AGAIN:
            self._retry(fault, attempt)
            return
        self._give_up(fault, attempt)

    def _retry(self, fault: Fault, attempt: _Attempt) -> None:
        pause = self._backoff.pause(attempt.tries, fault.wait, self._rng)
        spent = self._clock() - attempt.began
        if fault.wait is not None and spent + fault.wait > attempt.limit:
            raise self._failed(
                attempt,
                f"the provider asks to wait {fault.wait:.0f} s, which is more than the "
                f"{attempt.limit:.0f} s that are allowed (max_wait in {_SETTINGS})",
            )
        if attempt.tries > self._options.retries or spent + pause > attempt.limit:
            raise self._failed(
                attempt,
                f"no answer after {attempt.tries} tries in {spent:.0f} s; the last one "
                f"said: {fault.text}",
            )
        if fault.wait is not None:
            self._limiter.hold(fault.wait)
        self._wait(pause, attempt)

    def _wait(self, seconds: float, attempt: _Attempt) -> None:
        if self._closed.wait(max(0.0, seconds)):
            raise self._failed(attempt, "the run is ending")

    def _failed(self, attempt: _Attempt, why: str) -> AnswerFailed:
        return AnswerFailed(f"{self._name}: {why}.", attempt.spent)

    def _give_up(self, fault: Fault, attempt: _Attempt) -> NoReturn:
        said = f"The provider says: {fault.text}"
        if fault.meaning is Meaning.KEY:
            variable = self._options.api_key_env or "the provider's variable"
            raise AskedInVain(
                f"{self._name}: the provider refuses the key ({fault.text}). Put a "
                f"valid one into {variable}; the model may also be closed to it.",
                attempt.spent,
            )
        if fault.meaning is Meaning.MODEL:
            raise AskedInVain(
                f"--evo-model={self._name}: there is no such model there. {said} "
                "Type --evo-model=PROVIDER/NAME with a name that the provider has.",
                attempt.spent,
            )
        if fault.meaning is Meaning.QUOTA:
            raise AskedInVain(
                f"{self._name}: the account has nothing left to pay with. {said} "
                "Fill it up or take another model.",
                attempt.spent,
            )
        if fault.meaning is Meaning.TOO_LONG:
            raise AnswerTooLong(
                f"{self._name}: the request is too long for it. {said}", attempt.spent
            )
        if fault.meaning is Meaning.TOOLS:
            raise ToolsRefused(f"{self._name} takes no tools. {said}", attempt.spent)
        raise AnswerFailed(
            f"{self._name}: the provider rejects the request. {said}", attempt.spent
        )

    def _hidden(self, text: str) -> str:
        return self._hide(text.replace(self._key, "[key]") if self._key else text)


_OPTIONAL = ("temperature", "response_format", "max_tokens", "reasoning_effort")


# -- the library ---------------------------------------------------------------------

_lock = threading.Lock()


def _litellm() -> ModuleType:
    """The library, quiet, and without a look at the network or at ``.env``."""
    with _lock:
        if "litellm" in sys.modules:
            import litellm
        else:
            with _variables(
                LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_MODE="PRODUCTION"
            ):
                import litellm
        if not litellm.suppress_debug_info:
            litellm.suppress_debug_info = True  # else it prints advice to stdout
            for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
                logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return litellm


def _disconnect() -> None:
    """Close the connections that the library keeps open for later."""
    cache = getattr(sys.modules.get("litellm"), "in_memory_llm_clients_cache", None)
    clients: dict[str, Any] = getattr(cache, "cache_dict", {})
    for name, client in list(clients.items()):
        close = getattr(client, "close", None)
        if callable(close) and not inspect.iscoroutinefunction(close):
            clients.pop(name, None)
            close()


@contextmanager
def _variables(**wanted: str) -> Iterator[None]:
    """Set those environment variables for a while that nobody has set."""
    mine = {name: value for name, value in wanted.items() if name not in os.environ}
    os.environ.update(mine)
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)
