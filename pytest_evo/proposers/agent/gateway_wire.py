"""What passes the gateway: the three forms, what is taken out of them, what they cost.

An agent asks for what it likes. What goes on to the provider is one model, no tool that
the provider would run by itself (a way out of the sandbox), and a stream that tells
its usage at the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from typing import TypeAlias

Body: TypeAlias = dict[str, Any]


class Wire(StrEnum):
    """How a client and a provider speak to each other."""

    CHAT = "chat"
    RESPONSES = "responses"
    MESSAGES = "messages"


@dataclass(frozen=True, slots=True)
class Route:
    """A path that an agent may ask for."""

    path: str
    wire: Wire
    metered: bool = True


ROUTES: Mapping[str, Route] = {
    route.path: route
    for route in (
        Route("/v1/chat/completions", Wire.CHAT),
        Route("/v1/responses", Wire.RESPONSES),
        Route("/v1/messages", Wire.MESSAGES),
        Route("/v1/messages/count_tokens", Wire.MESSAGES, metered=False),
    )
}
_VERSIONED = re.compile(r"/v1$")
_HOSTED = re.compile(
    r"(web_search|web_fetch|mcp|code_interpreter|code_execution|file_search"
    r"|image_generation)"
)
_DROPPED = ("mcp_servers", "web_search_options", "service_tier", "container")
_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_LONGEST_EVENT = 8_000_000


def address_at(base: str, route: Route) -> str:
    """Where a route is at a provider.

    Args:
        base: what a client of the chat or responses form takes as its base (with its
            version), or the root for messages (a version at its end is fine).
        route: what is asked for.
    """
    plain = base.rstrip("/")
    if route.wire is Wire.MESSAGES:
        return _VERSIONED.sub("", plain) + route.path
    return plain + route.path.removeprefix("/v1")


def prepare(body: Body, route: Route, model: str | None, left: int | None) -> Body:
    """The request as it goes on to the provider.

    Args:
        body: as the agent sent it.
        route: what it asked for.
        model: stands for whatever model the agent named; None leaves it.
        left: tokens that may still be spent: no reply may be allowed more.
    """
    sent = {name: value for name, value in body.items() if name not in _DROPPED}
    if model is not None:
        sent["model"] = model
    if isinstance(sent.get("tools"), list):
        sent["tools"] = [tool for tool in sent["tools"] if not _is_hosted(tool)]
        if not sent["tools"]:
            del sent["tools"]
            sent.pop("tool_choice", None)
    if sent.get("background"):
        sent["background"] = False  # its usage would come with another request
    if route.wire is Wire.CHAT and sent.get("stream"):
        options = sent.get("stream_options")
        options = dict(options) if isinstance(options, dict) else {}
        sent["stream_options"] = {**options, "include_usage": True}
    if left is not None:
        for name in _OUTPUT_LIMITS:
            if isinstance(sent.get(name), int):
                sent[name] = max(1, min(sent[name], left))
    return sent


def wants_usage(body: Body) -> bool:
    """Whether the agent itself asked a stream of the chat form for its usage."""
    options = body.get("stream_options")
    return isinstance(options, dict) and bool(options.get("include_usage"))


def _is_hosted(tool: object) -> bool:
    kind = tool.get("type") if isinstance(tool, dict) else None
    return isinstance(kind, str) and _HOSTED.match(kind) is not None


# -- usage -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Counted:
    """Tokens of a call as the provider counted them; ``usd`` where it says so."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = None


def counted(usage: object, wire: Wire) -> Counted | None:
    """A provider's usage object; None where there is none."""
    if not isinstance(usage, dict):
        return None
    if wire is Wire.MESSAGES:
        cached = _count(usage, "cache_read_input_tokens")
        beside = cached + _count(usage, "cache_creation_input_tokens")
        return Counted(
            _count(usage, "input_tokens") + beside,
            cached,
            _count(usage, "output_tokens"),
            _cost(usage),
        )
    chat = wire is Wire.CHAT
    details = usage.get("prompt_tokens_details" if chat else "input_tokens_details")
    return Counted(
        _count(usage, "prompt_tokens" if chat else "input_tokens"),
        _count(details, "cached_tokens") if isinstance(details, dict) else 0,
        _count(usage, "completion_tokens" if chat else "output_tokens"),
        _cost(usage),
    )


def _count(usage: Mapping[str, object], name: str) -> int:
    value = usage.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def _cost(usage: Mapping[str, object]) -> float | None:
    value = usage.get("cost")
    return float(value) if isinstance(value, int | float) and value >= 0 else None


class Stream:
    """Events of a streamed reply: passed on whole, their usage read on the way.

    Args:
        wire: the form.
        hide_usage: the agent did not ask for usage, so the event that only tells it
            is not passed on.
        scrub: takes what no agent may see out of an event.
    """

    def __init__(
        self, wire: Wire, *, hide_usage: bool, scrub: Callable[[bytes], bytes]
    ) -> None:
        self._wire = wire
        self._hide_usage = hide_usage
        self._scrub = scrub
        self._rest = b""
        self._usage: dict[str, Any] = {}

    @property
    def usage(self) -> Counted | None:
        """What was counted so far."""
        return counted(self._usage, self._wire) if self._usage else None

    def feed(self, data: bytes) -> bytes:
        """Take bytes of the provider; return what the agent gets.

        Raises:
            ValueError: an event does not end.
        """
        data = self._rest + data
        ends = [found.end() for found in _EVENT_END.finditer(data)]
        end = ends[-1] if ends else 0
        self._rest = data[end:]
        if len(self._rest) > _LONGEST_EVENT:
            raise ValueError("an event of the stream does not end")
        events = _EVENTS.findall(data[:end])
        return b"".join(self._scrub(event) for event in events if self._passes(event))

    def rest(self) -> bytes:
        """What came without an end."""
        rest, self._rest = self._rest, b""
        return self._scrub(rest)

    def _passes(self, event: bytes) -> bool:
        if b'"usage"' not in event:
            return True
        lines = (line for line in event.splitlines() if line.startswith(b"data:"))
        try:
            data = json.loads(b"".join(line[5:] for line in lines))
        except ValueError:
            return True
        if not isinstance(data, dict):
            return True
        for holder in (data, data.get("response"), data.get("message")):
            usage = holder.get("usage") if isinstance(holder, dict) else None
            if isinstance(usage, dict):
                self._usage.update(usage)
        only = self._wire is Wire.CHAT and data.get("choices") == []
        return not (only and self._hide_usage)


_EVENT_END = re.compile(rb"\r?\n\r?\n")
_EVENTS = re.compile(rb".*?\r?\n\r?\n", re.DOTALL)
