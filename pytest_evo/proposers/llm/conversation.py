"""What has been said in one proposal, kept within the size of a request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Message
from pytest_evo.chat import size_of
from pytest_evo.chat import Speaker
from pytest_evo.chat import Tool
from pytest_evo.chat import ToolCall
from pytest_evo.errors import ProposalRefused
from pytest_evo.hostile import cut

_LEFT_OUT = "[left out to keep the request short; call the tool again if you need it]"
_MOST_SAID = 8_000
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SMALLEST = 4_000
_MOST_KEPT = 40_000

Opening = Callable[[int], tuple[Message, ...]]
"""The first messages for a number of bytes: the stable ones first."""


class Conversation:
    """Messages, the opening first.

    When they become too long, what tools answered long ago is left out, the oldest
    first; if that is not enough, the opening is made shorter.

    Args:
        opening: makes the first messages.
        limit: bytes of one request.
        tools: that are offered.
    """

    def __init__(
        self, opening: Opening, limit: int, tools: tuple[Tool, ...] = ()
    ) -> None:
        self._opening = opening
        self._limit = limit
        self._tools = tools
        self._later: list[Message] = []
        self._cuts = 0
        self._budget = limit // 2
        self._start = opening(self._budget)

    def request(self) -> ChatRequest:
        """The next request, within the limit.

        The opening stays as it is while it can, because providers keep a start that
        they have seen.

        Raises:
            ProposalRefused: even the shortest one is too long.
        """
        while True:
            request = self._fitted(self._start)
            if size_of(request) <= self._limit:
                return request
            if self._budget <= _SMALLEST:
                raise ProposalRefused(
                    f"the shortest request has {size_of(request):,} bytes and "
                    f"{self._limit:,} are allowed (prompt_bytes)"
                )
            self._budget = max(_SMALLEST, self._budget // 2)
            self._start = self._opening(self._budget)

    def shorten(self) -> bool:
        """Halve the limit, because the model's context is shorter; False: no more."""
        self._cuts += 1
        self._limit //= 2
        return self._cuts <= 4 and self._limit > _SMALLEST

    def say(self, text: str) -> None:
        """Tell the model something."""
        self._later.append(Message(Speaker.USER, text))

    def hear(self, reply: ChatReply) -> None:
        """Keep what the model said, in a form that every server takes back."""
        calls = tuple(_sound(call) for call in reply.calls)
        text = reply.text[:_MOST_SAID]
        if text or calls:
            self._later.append(Message(Speaker.ASSISTANT, text, calls))

    def answer(self, call: ToolCall, text: str) -> None:
        """Tell the model what a tool says."""
        self._later.append(Message(Speaker.TOOL, text, answers=call.id))

    def transcript(self) -> str:
        """All that was said, for a person to read; long texts are cut."""
        parts = []
        for message in (*self._start, *self._later):
            rows = [f"## {message.speaker}", "", cut(message.text, _MOST_KEPT)]
            rows += [
                f"calls {call.name} {cut(call.arguments, _MOST_KEPT)}"
                for call in message.calls
            ]
            parts.append("\n".join(rows))
        return "\n\n".join(parts) + "\n"

    def _made(self, opening: tuple[Message, ...], later: list[Message]) -> ChatRequest:
        return ChatRequest((*opening, *later), self._tools)

    def _fitted(self, opening: tuple[Message, ...]) -> ChatRequest:
        """Leave out what is old as far as needed, what came last only at the end."""
        later = list(self._later)
        request = self._made(opening, later)
        for at, message in enumerate(self._later):
            if size_of(request) <= self._limit:
                break
            later[at] = _stub(message)
            request = self._made(opening, later)
        return request


def _stub(message: Message) -> Message:
    """The message without its bulk; calls keep their names and ids."""
    if message.speaker is Speaker.TOOL and len(message.text) > len(_LEFT_OUT):
        return replace(message, text=_LEFT_OUT)
    if message.calls:
        return replace(message, calls=tuple(map(_short, message.calls)))
    return message


def _short(call: ToolCall) -> ToolCall:
    data = json.loads(call.arguments)
    kept = {
        key: value if len(str(value)) < 200 else "[left out]"
        for key, value in data.items()
    }
    return replace(call, arguments=json.dumps(kept))


def _sound(call: ToolCall) -> ToolCall:
    """A call whose arguments are a JSON object; a bad one would be refused for ever."""
    name = call.name if _NAME.fullmatch(call.name) else "unknown"
    try:
        good = isinstance(json.loads(call.arguments or "{}"), dict)
    except (ValueError, RecursionError):
        good = False
    arguments = call.arguments if good and call.arguments else "{}"
    return ToolCall(call.id, name, arguments)
