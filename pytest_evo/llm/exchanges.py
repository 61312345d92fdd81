"""Exchanges with a model as they stand on a cassette: without secrets, and steady.

What differs between two runs that do the same (places of temporary files, times,
addresses of objects) is replaced by a word, so that equal questions are found again.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import asdict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from typing import Literal
from typing import Self

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import Field
from pydantic import model_validator

from pytest_evo.chat import AnswerFailed
from pytest_evo.chat import AnswerTooLong
from pytest_evo.chat import AskedInVain
from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Costly
from pytest_evo.chat import Finish
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.chat import spent_on
from pytest_evo.chat import ToolCall
from pytest_evo.chat import ToolsRefused
from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import EvoError
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.llm.wire import sound
from pytest_evo.models import Json
from pytest_evo.models import Usage

SHORTEST = 8
"""Characters of a key that is looked for in texts, at least."""
_MESSAGES_KEPT = 1_000  # whose digests are remembered: conversations repeat them

_Failure = Literal[
    "AnswerFailed",
    "AnswerTooLong",
    "AskedInVain",
    "ContextOverflow",
    "ModelFailed",
    "ModelProblem",
    "ToolsRefused",
]
_FAILURES: dict[str, type[EvoError]] = {
    kind.__name__: kind
    for kind in (
        AnswerFailed,
        AnswerTooLong,
        AskedInVain,
        ContextOverflow,
        ModelFailed,
        ModelProblem,
        ToolsRefused,
    )
}


# -- records -----------------------------------------------------------------------


class Record(BaseModel):
    """One thing on a cassette."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CallRecord(Record):
    """A call that a model asked for."""

    id: str
    name: str
    arguments: str


class MessageRecord(Record):
    """A message of a question."""

    speaker: Speaker
    text: str = ""
    calls: tuple[CallRecord, ...] = ()
    answers: str = ""


class UsageRecord(Record):
    """What an exchange cost."""

    calls: int = Field(ge=0)
    input_tokens: int = Field(ge=0)
    cached_tokens: int = Field(ge=0)
    output_tokens: int = Field(ge=0)
    usd: float | None = Field(ge=0, allow_inf_nan=False)
    seconds: float = Field(ge=0, allow_inf_nan=False)
    unpriced: int = Field(default=0, ge=0)
    known_usd: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    estimated_usd: float | None = Field(default=0.0, ge=0, allow_inf_nan=False)

    @classmethod
    def of(cls, usage: Usage) -> Self:
        """The record of a usage."""
        return cls(**asdict(usage))

    def usage(self) -> Usage:
        """The value."""
        return Usage(**self.model_dump())


class ReplyRecord(Record):
    """What a model answered."""

    text: str
    finish: Finish
    calls: tuple[CallRecord, ...] = ()
    usage: UsageRecord

    def reply(self) -> ChatReply:
        """The value."""
        calls = tuple(ToolCall(c.id, c.name, c.arguments) for c in self.calls)
        return ChatReply(self.text, self.finish, calls, self.usage.usage())


class FailureRecord(Record):
    """How a model failed."""

    type: _Failure
    text: str
    usage: UsageRecord

    def error(self) -> EvoError:
        """The same error again."""
        kind = _FAILURES[self.type]
        if issubclass(kind, Costly):
            return kind(self.text, self.usage.usage())
        return kind(self.text)


class Exchange(Record):
    """A question and what came back.

    A message, a list of tools or a schema stands in ``said`` or ``forms`` of the first
    exchange that has it; questions name them by digest.
    """

    kind: Literal["exchange"] = "exchange"
    key: str
    nth: int = Field(ge=0)
    model: str
    asker: str = ""
    messages: tuple[str, ...]
    tools: str = ""
    form: str = ""
    max_tokens: int | None = None
    said: dict[str, MessageRecord] = {}
    forms: dict[str, Any] = {}
    reply: ReplyRecord | None = None
    failure: FailureRecord | None = None

    @model_validator(mode="after")
    def _has_one_end(self) -> Self:
        if (self.reply is None) is (self.failure is None):
            raise ValueError("an exchange has either a reply or a failure")
        return self


@dataclass(frozen=True, slots=True)
class Question:
    """A request as it is looked up: equal requests have equal keys in every run.

    How long the answer may be is no part of the key: with a token budget it depends
    on what other slots have spent by then.
    """

    key: str
    model: str
    asker: str
    messages: tuple[str, ...]
    tools: str
    form: str
    said: dict[str, MessageRecord]
    forms: dict[str, Json]


# -- cleaning ----------------------------------------------------------------------

_IN_PATH = r"[^\s'\"`<>|:;,()\[\]{}\\]*"
_PLACES = ("/private/tmp", "/private/var/folders", "/var/folders", "/var/tmp")
_STEADY: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"\b0x[0-9a-fA-F]{6,}\b"), "<address>"),
    (
        re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE),
        "<uuid>",
    ),
    (
        re.compile(
            r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?"
            r"(?: ?Z\b|[+-]\d\d:?\d\d)?"
        ),
        "<time>",
    ),
    (re.compile(r"\b\d\d:\d\d:\d\d(?:[.,]\d+)?\b"), "<time>"),
    (
        re.compile(r"\b\d+(?:\.\d+)?(?:e-?\d+)? ?(?:ns|us|µs|ms|s|secs?|seconds?)\b"),
        "<seconds>",
    ),
    (
        re.compile(r"(\b(?:seconds|elapsed|duration)[\"']?\s*[:=]\s*)[0-9][0-9.e+-]*"),
        r"\1<seconds>",
    ),
)


class Cleaner:
    """Takes secrets and what varies out of exchanges.

    Args:
        hide: takes secrets out of a text.
        project: the project's directory, which may be another one at the replay.
    """

    def __init__(self, hide: Callable[[str], str] = str, project: str = "") -> None:
        self._hide = hide
        self._project = project
        self._keys: list[str] = []
        places = {tempfile.gettempdir(), "/tmp", "/dev/shm", *_PLACES}
        longest = sorted(places, key=lambda place: -len(place))
        pattern = "|".join(re.escape(place) for place in longest)
        self._temporary = re.compile(rf"(?:{pattern})/{_IN_PATH}")
        self._message = lru_cache(_MESSAGES_KEPT)(self._plain_message)

    def hide_too(self, key: str) -> None:
        """Take a model's key out as well."""
        if len(key) >= SHORTEST:
            self._keys.append(key)

    def secretless(self, text: str) -> str:
        """A text without secrets that any file can hold."""
        for key in self._keys:
            text = text.replace(key, "[key]")
        return self._hide(sound(text))

    def steady(self, text: str) -> str:
        """A text without secrets and without what differs between equal runs."""
        text = self.secretless(text)
        if self._project:
            text = text.replace(self._project, "<project>")
        text = self._temporary.sub(_temporary, text)
        for pattern, instead in _STEADY:
            text = pattern.sub(instead, text)
        return text

    # -- requests ------------------------------------------------------------------

    def question(self, model: str, request: ChatRequest) -> Question:
        """What is looked up for a request."""
        said: dict[str, MessageRecord] = {}
        digests = []
        for message in request.messages:
            digest, record = self._message(message)
            said[digest] = record
            digests.append(digest)
        forms: dict[str, Json] = {}
        tools: list[Json] = [
            {
                "name": tool.name,
                "about": tool.about,
                "parameters": dict(tool.parameters),
            }
            for tool in request.tools
        ]
        schema = None if request.schema is None else dict(request.schema)
        named = [_keep(forms, tools), _keep(forms, schema)]
        plain: list[Json] = [model, request.asker, *named, *digests]
        return Question(
            digest_of(plain),
            model,
            request.asker,
            tuple(digests),
            named[0],
            named[1],
            said,
            forms,
        )

    def _plain_message(self, message: Message) -> tuple[str, MessageRecord]:
        record = MessageRecord(
            speaker=message.speaker,
            text=self.steady(message.text),
            calls=tuple(
                CallRecord(
                    id=self.steady(call.id),
                    name=self.steady(call.name),
                    arguments=self.steady(call.arguments),
                )
                for call in message.calls
            ),
            answers=self.steady(message.answers),
        )
        return digest_of(record.model_dump(mode="json")), record

    # -- what comes back -----------------------------------------------------------

    def reply(self, reply: ChatReply) -> ReplyRecord:
        """A reply without secrets."""
        return ReplyRecord(
            text=self.secretless(reply.text),
            finish=reply.finish,
            calls=tuple(
                CallRecord(
                    id=self.secretless(call.id),
                    name=self.secretless(call.name),
                    arguments=self._arguments(call.arguments),
                )
                for call in reply.calls
            ),
            usage=UsageRecord.of(reply.usage),
        )

    def failure(self, error: EvoError) -> FailureRecord:
        """A failure without secrets; what has no type of its own is a failed model."""
        names = [kind.__name__ for kind in type(error).__mro__]
        known = [name for name in names if name in _FAILURES]
        return FailureRecord.model_validate(
            {
                "type": known[0] if known else "ModelFailed",
                "text": self.secretless(str(error)),
                "usage": UsageRecord.of(spent_on(error)),
            }
        )

    def _arguments(self, text: str) -> str:
        """Arguments of a call, also where JSON writes a secret in another form."""
        try:
            data = json.loads(text)
        except (ValueError, RecursionError):
            return self.secretless(text)
        clean = self._every_text(data)
        return self.secretless(text if clean == data else json.dumps(clean))

    def _every_text(self, data: Any) -> Any:
        if isinstance(data, str):
            return self.secretless(data)
        if isinstance(data, dict):
            return {
                self.secretless(name): self._every_text(value)
                for name, value in data.items()
            }
        if isinstance(data, list):
            return [self._every_text(one) for one in data]
        return data


def digest_of(data: Json) -> str:
    """A short digest of plain data."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def texts_of(message: MessageRecord) -> Sequence[str]:
    """A message line by line, to be compared with another one."""
    lines = [f"({message.speaker.value})", *message.text.splitlines()]
    lines += [f"{call.name} {call.arguments}" for call in message.calls]
    return lines


def _keep(forms: dict[str, Json], form: Json) -> str:
    if not form:
        return ""
    digest = digest_of(form)
    forms[digest] = form
    return digest


def _temporary(found: re.Match[str]) -> str:
    return f"<temporary>/{found[0].rstrip('/').rsplit('/', 1)[-1]}"
