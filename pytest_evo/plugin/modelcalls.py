"""One call of a model by the system under test: what was asked, answered and spent.

Requests and answers are of any library's types. They are only read, in the few places
where providers put figures, and whatever is missing there stays unknown.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from pytest_evo.models import Usage
from pytest_evo.plugin.plain import cut
from pytest_evo.plugin.plain import plain
from pytest_evo.plugin.recording import Notes
from pytest_evo.spending import may_cost

STEP = "model call"
"""The name of the trace step that tells of a call."""
_SHOWN = 1_500  # characters of a question and of an answer
_KEPT = 20_000  # characters of a streamed answer, before it is cut
_QUESTIONS = ("messages", "prompt", "input", "query")
_INPUT = ("prompt_tokens", "input_tokens")
_OUTPUT = ("completion_tokens", "output_tokens")
_DETAILS = ("prompt_tokens_details", "input_tokens_details")

Tell = Callable[[dict[str, Any]], None]
"""Takes the data of the trace step, anew whenever more is known."""


class ModelCall:
    """A call from its request to its answer or failure.

    It counts from the moment it is made: one that never ends is a call too, of a price
    that nobody knows.
    """

    def __init__(
        self,
        tell: Tell,
        request: Mapping[str, Any],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tell = tell
        self._clock = clock
        self._begun = clock()
        self._seconds = 0.0
        self._model = _text(request.get("model"))
        self._prompt = _question(request)
        self._answer = ""
        self._error = ""
        self._tokens: tuple[int, int, int] | None = None  # input, cached, output
        self._usd: float | None = None
        self._free = False
        self._last: Any = None  # part of a stream
        self.is_over = False
        """Whether nothing about it changes any more."""
        self._told()

    def usage(self) -> Usage:
        """What it spent, as far as that is known by now."""
        sent, cached, received = self._tokens or (0, 0, 0)
        unpriced = self._usd is None and not self._free
        return Usage(
            calls=1,
            input_tokens=sent,
            cached_tokens=cached,
            output_tokens=received,
            usd=None if unpriced else self._usd or 0.0,
            seconds=self._seconds,
        )

    def answered(self, answer: Any) -> None:
        """Take a whole answer."""
        self._seconds = self._clock() - self._begun
        # what an answer's own methods raise is no business of the test that asked
        with suppress(Exception):
            self._read(_parsed(answer))
        self.is_over = True
        self._told()

    def part(self, chunk: Any) -> None:
        """Take one part of a streamed answer."""
        self._seconds = self._clock() - self._begun
        with suppress(Exception):
            if len(self._answer) < _KEPT:
                self._answer += _part_text(chunk)
            event = _get(chunk, "response")  # of the responses API
            self._last = chunk if event is None else event
            self._figures(self._last)

    def ended(self) -> None:
        """The stream is over."""
        self._seconds = self._clock() - self._begun
        with suppress(Exception):
            self._figures(self._last)  # litellm adds them to what it gave out before
        self.is_over = True
        self._told()

    def failed(self, error: BaseException) -> None:
        """No answer came; a provider that refuses a request takes nothing for it."""
        self._seconds = self._clock() - self._begun
        said = ""
        with suppress(Exception):
            self._free = self._tokens is None and not may_cost(error)
        with suppress(Exception):
            said = str(error)
        self._error = cut(f"{type(error).__name__}: {said}", _SHOWN)
        self.is_over = True
        self._told()

    def _read(self, answer: Any) -> None:
        self._answer = _answer_text(answer)
        self._figures(answer)

    def _figures(self, answer: Any) -> None:
        """Keep what a provider or litellm says of the spend."""
        self._model = self._model or _text(_get(answer, "model"))
        hidden = _get(answer, "_hidden_params")
        if (
            _get(hidden, "cache_hit") is True
        ):  # by litellm's own cache: nobody was asked
            self._tokens, self._usd = (0, 0, 0), 0.0
            return
        said = _get(answer, "usage")
        self._tokens = _counts(_get(hidden, "usage") if said is None else said) or (
            self._tokens
        )
        price = _get(hidden, "response_cost")
        if isinstance(price, (int, float)) and not isinstance(price, bool):
            self._usd = float(price) if 0 <= price < float("inf") else None

    def _told(self) -> None:
        usage = self.usage()
        data: dict[str, Any] = {"model": self._model}
        if self._tokens is not None:
            data["input_tokens"] = usage.input_tokens
            data["cached_tokens"] = usage.cached_tokens
            data["output_tokens"] = usage.output_tokens
        data["seconds"] = round(usage.seconds, 3)
        if usage.usd is not None:
            data["usd"] = usage.usd
        if self._error:
            data["error"] = self._error
        data["prompt"] = self._prompt
        data["answer"] = cut(self._answer, _SHOWN)
        self._tell(data)


def new_call(notes: Notes, request: Mapping[str, Any]) -> ModelCall:
    """A call that counts among the notes of a rollout from now on."""
    number: int | None = notes.step(STEP, {})

    def tell(data: dict[str, Any]) -> None:
        if number is not None:
            notes.steps[number] = (STEP, data)
        notes.on_spend()

    call = ModelCall(tell, request)
    notes.model_calls.append(call)
    notes.on_spend()
    return call


def _get(holder: Any, name: str) -> Any:
    """A value of an object or a mapping; None where there is none."""
    if isinstance(holder, dict):
        return holder.get(name)
    return getattr(holder, name, None)


def _text(value: Any) -> str:
    return cut(str.__str__(value), 200) if isinstance(value, str) else ""


def _parsed(answer: Any) -> Any:
    """What was answered, where the raw response was asked for."""
    raw = _get(answer, "http_response")
    return answer if raw is None else json.loads(raw.content)


def _counts(said: Any) -> tuple[int, int, int] | None:
    """Input, cached and output tokens in a provider's figures; None without any."""
    sent, received = _first(said, _INPUT), _first(said, _OUTPUT)
    if sent is None and received is None:
        return None
    details = [_get(said, name) for name in _DETAILS]
    cached = [_first(one, ("cached_tokens",)) for one in details]
    return sent or 0, next((one for one in cached if one), 0), received or 0


def _first(holder: Any, names: tuple[str, ...]) -> int | None:
    for name in names:
        value = _get(holder, name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return int(value)
    return None


def _question(request: Mapping[str, Any]) -> str:
    """The question, without anything else of the request: keys come with it too."""
    parts = [_said(plain(request.get("instructions")))]
    parts += [_said(plain(request.get(name))) for name in _QUESTIONS]
    return cut("\n".join(filter(None, parts)), _SHOWN)


def _said(value: Any) -> str:
    """Plain data of a request in words."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "\n".join(filter(None, map(_said, value)))
    if isinstance(value, dict):
        content = value.get("content", value.get("text"))
        if content is not None:
            role = value.get("role")
            said = _said(content)
            return f"{role}: {said}" if isinstance(role, str) else said
        return json.dumps(value)
    return str(value)


def _answer_text(answer: Any) -> str:
    whole = _get(answer, "output_text")  # of the responses API
    if isinstance(whole, str):
        return whole
    choices = _get(answer, "choices")
    if not choices:
        return ""
    message = _get(choices[0], "message")
    said = _get(choices[0], "text") if message is None else _get(message, "content")
    calls = _get(message, "tool_calls") or ()
    called = [
        f"{_get(one, 'name')}({_get(one, 'arguments')})"
        for one in (_get(call, "function") for call in calls)
    ]
    texts = [said if isinstance(said, str) else "", *called]
    return "\n".join(filter(None, texts))


def _part_text(chunk: Any) -> str:
    delta = _get(chunk, "delta")  # of the responses API
    if isinstance(delta, str):
        return delta if str(_get(chunk, "type")).endswith("text.delta") else ""
    choices = _get(chunk, "choices")
    if not choices:
        return ""
    delta = _get(choices[0], "delta")
    said = _get(choices[0], "text") if delta is None else _get(delta, "content")
    return said if isinstance(said, str) else ""
