"""Requests and replies between our values and the chat form that litellm speaks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import ModuleType
from typing import Any

from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Finish
from pytest_evo.chat import Message
from pytest_evo.chat import size_of
from pytest_evo.chat import Speaker
from pytest_evo.chat import ToolCall
from pytest_evo.models import Usage
from pytest_evo.settings_model import ModelSettings

BYTES_A_TOKEN = 4
"""What a token is taken for where nobody has counted."""
_FINISHES = {
    "length": Finish.LENGTH,
    "max_tokens": Finish.LENGTH,
    "content_filter": Finish.REFUSED,
    "refusal": Finish.REFUSED,
}


def as_messages(request: ChatRequest) -> list[dict[str, Any]]:
    """The messages of a request."""
    return [_message(message) for message in request.messages]


def _message(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "role": message.speaker.value,
        "content": sound(message.text),
    }
    if message.speaker is Speaker.TOOL:
        plain["tool_call_id"] = message.answers
    if message.calls:
        plain["content"] = plain["content"] or None
        plain["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": sound(call.arguments)},
            }
            for call in message.calls
        ]
    return plain


def as_tools(request: ChatRequest) -> list[dict[str, Any]]:
    """The tools of a request."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.about,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in request.tools
    ]


def sound(text: str) -> str:
    """The text without lone surrogates, which no encoding can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def as_reply(response: Any, usage: Usage) -> ChatReply | None:
    """The reply in a response; None where it holds no answer at all."""
    choices = getattr(response, "choices", None)
    if not choices:
        return None
    message = choices[0].message
    text = sound(message.content or "") if isinstance(message.content, str) else ""
    calls = tuple(
        ToolCall(
            id=str(call.id or f"call_{number}"),
            name=str(call.function.name or ""),
            arguments=sound(call.function.arguments or ""),
        )
        for number, call in enumerate(message.tool_calls or ())
    )
    reason = str(choices[0].finish_reason or "")
    return ChatReply(
        text=text,
        finish=_finish(reason, text, calls, getattr(message, "refusal", None)),
        calls=calls,
        usage=usage,
    )


def _finish(
    reason: str, text: str, calls: tuple[ToolCall, ...], refusal: object
) -> Finish:
    if reason in _FINISHES:
        return _FINISHES[reason]
    if refusal:
        return Finish.REFUSED
    if calls:
        return Finish.TOOLS
    return Finish.STOP if text.strip() else Finish.EMPTY


def lost(
    request: ChatRequest, most: int, price: Callable[[int, int], float | None]
) -> Usage:
    """What a call counts as whose answer did not come: a call of an unknown price.

    Its tokens are those of the request, by its size. Budgets take it for what it costs
    with an answer of ``most`` tokens, where ``price`` knows.
    """
    sent = size_of(request) // BYTES_A_TOKEN
    return Usage(1, sent, usd=None, unpriced=1, estimated_usd=price(sent, most))


def price_of(
    options: ModelSettings, given: int, cached: int, made: int
) -> float | None:
    """What tokens cost at the prices of the settings; None where they have none."""
    if options.input_usd is None or options.output_usd is None:
        return None
    reduced = options.input_usd if options.cached_usd is None else options.cached_usd
    fresh = given - cached
    return (
        fresh * options.input_usd + cached * reduced + made * options.output_usd
    ) / 1e6


def table_price(
    litellm: ModuleType, model: str, sent: int, received: int
) -> float | None:
    """What tokens cost by litellm's table; None for a model that it does not know."""
    try:
        prices = litellm.cost_per_token(
            model=model, prompt_tokens=sent, completion_tokens=received
        )
    except Exception as error:  # noqa: BLE001 - it raises a bare one for such models
        logging.getLogger(__name__).debug("no price of %s: %s", model, error)
        return None
    return float(sum(prices))


def count(request: ChatRequest, response: Any, options: ModelSettings) -> Usage:
    """What a response cost, by the provider's own figures; estimated without any.

    ``usd`` comes from the settings, else from litellm's price table, else it is None.
    """
    said = getattr(response, "usage", None)
    given = int(getattr(said, "prompt_tokens", 0) or 0)
    made = int(getattr(said, "completion_tokens", 0) or 0)
    details = getattr(said, "prompt_tokens_details", None)
    cached = int(getattr(details, "cached_tokens", 0) or 0)
    counted = bool(given or made)
    if not counted:
        given = size_of(request) // BYTES_A_TOKEN
        made = _length_of(response) // BYTES_A_TOKEN
    hidden = getattr(response, "_hidden_params", None) or {}
    price = hidden.get("response_cost") if counted else None
    own = price_of(options, given, cached, made)
    price = price if own is None else own
    return Usage(
        calls=1,
        input_tokens=given,
        cached_tokens=cached,
        output_tokens=made,
        usd=None if price is None else float(price),
    )


def _length_of(response: Any) -> int:
    reply = as_reply(response, Usage())
    if reply is None:
        return 0
    texts = [reply.text, *(call.arguments for call in reply.calls)]
    return sum(len(text.encode("utf-8", "replace")) for text in texts)
