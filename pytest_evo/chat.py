"""Values of one exchange with a language model, free of any provider's form."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import EvoError
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import ProposerFault
from pytest_evo.models import Json
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage


class Speaker(StrEnum):
    """Who says a message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"
    TOOL = "tool"


class Finish(StrEnum):
    """Why a reply ended. Only ``stop`` and ``tools`` may be acted on."""

    STOP = "stop"
    TOOLS = "tools"
    LENGTH = "length"
    REFUSED = "refused"
    EMPTY = "empty"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model asks for; ``arguments`` is the text as it came."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``answers`` is the id of the tool call that a tool answers."""

    speaker: Speaker
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that a model may call; ``parameters`` is a JSON schema."""

    name: str
    about: str
    parameters: Mapping[str, Json]


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is asked: stable messages first, so that providers can cache the prefix.

    ``schema`` is a JSON schema that the reply's text must follow, where the provider
    can enforce it; ``max_tokens`` limits the reply. ``asker`` says what the request is
    for, like ``c0003-1``: it tells equal requests of different slots apart on a
    cassette and is not sent.
    """

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    schema: Mapping[str, Json] | None = None
    max_tokens: int | None = None
    asker: str = ""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """What came back and what it cost."""

    text: str
    finish: Finish
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = NO_USAGE


def size_of(request: ChatRequest) -> int:
    """About how many bytes a request has on its way; never fewer than its texts."""
    texts = [message.text for message in request.messages]
    texts += [c.arguments + c.name for m in request.messages for c in m.calls]
    plain: list[Json] = [*texts, dict(request.schema) if request.schema else None]
    plain += [[tool.name, tool.about, dict(tool.parameters)] for tool in request.tools]
    frame = 60 * (len(request.messages) + len(request.tools)) + 200
    return frame + len(json.dumps(plain, ensure_ascii=False).encode("utf-8", "replace"))


# -- errors that cost something ------------------------------------------------------


class Costly(EvoError):
    """An error before which tokens were spent; they are charged all the same."""

    def __init__(self, message: str, usage: Usage = NO_USAGE) -> None:
        super().__init__(message)
        self.usage = usage


class AnswerRefused(Costly, ProposalRefused):
    """A proposal that came to nothing after model calls."""


class FaultAfterCalls(Costly, ProposerFault):
    """A proposer's own fault, perhaps after model calls."""


class AnswersOver(Costly):
    """What is left of a budget does not pay for a model call: the run ends softly.

    ``axis`` is ``tokens`` or ``usd``.
    """

    def __init__(self, axis: str, message: str, usage: Usage = NO_USAGE) -> None:
        super().__init__(message, usage)
        self.axis = axis


class AnswerFailed(Costly, ModelFailed):
    """A model gave no usable answer, whatever was tried."""


class AnswerTooLong(Costly, ContextOverflow):
    """A request, or what it asks for, is longer than the model's context."""


class AskedInVain(Costly, ModelProblem):
    """The key, the model or the account does not do any more."""


class ToolsRefused(Costly, ModelFailed):
    """The model cannot be offered tools: ask it without."""


def spent_on(error: BaseException) -> Usage:
    """What model calls had cost when an error was raised."""
    return error.usage if isinstance(error, Costly) else NO_USAGE
