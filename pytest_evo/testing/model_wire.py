"""One scripted answer in the three forms that providers speak, whole or streamed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import Any
from typing import Literal
from typing import TypeAlias

from pytest_evo.chat import Finish
from pytest_evo.models import Json

Form: TypeAlias = Literal["chat", "responses", "messages"]
Body: TypeAlias = dict[str, Any]

_CHUNK = 24  # characters of one streamed piece
_CHAT_FINISH = {
    Finish.STOP: "stop",
    Finish.TOOLS: "tool_calls",
    Finish.LENGTH: "length",
    Finish.REFUSED: "content_filter",
    Finish.EMPTY: "stop",
}
_MESSAGES_FINISH = {
    Finish.STOP: "end_turn",
    Finish.TOOLS: "tool_use",
    Finish.LENGTH: "max_tokens",
    Finish.REFUSED: "refusal",
    Finish.EMPTY: "end_turn",
}


@dataclass(frozen=True, slots=True)
class ScriptedCall:
    """A tool call of a scripted answer; a string of arguments is sent as it is."""

    name: str
    arguments: Mapping[str, Json] | str = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The arguments as they go over the wire."""
        if isinstance(self.arguments, str):
            return self.arguments
        return json.dumps(self.arguments)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a scripted model says. ``finish`` follows from ``calls`` if it is None."""

    text: str = ""
    calls: tuple[ScriptedCall, ...] = ()
    finish: Finish | None = None
    refusal: str = ""
    input_tokens: int = 100
    cached_tokens: int = 0
    output_tokens: int = 20

    @property
    def ended(self) -> Finish:
        """Why the answer ends."""
        if self.finish is not None:
            return self.finish
        return Finish.TOOLS if self.calls else Finish.STOP


def body_of(form: Form, answer: Answer, model: str, number: int) -> Body:
    """The whole answer as one JSON object."""
    if form == "chat":
        return _chat_body(answer, model, number)
    if form == "messages":
        return _messages_body(answer, model, number)
    return _response(answer, model, number, "completed", _items(answer, number))


def events_of(
    form: Form, answer: Answer, model: str, number: int, *, with_usage: bool = True
) -> Iterator[bytes]:
    """The answer as server-sent events; ``with_usage`` is for the chat form."""
    if form == "chat":
        for body in _chat_chunks(answer, model, number, with_usage):
            yield b"data: " + json.dumps(body).encode() + b"\n\n"
        yield b"data: [DONE]\n\n"
        return
    if form == "messages":
        events = _messages_events(answer, model, number)
    else:
        events = _responses_events(answer, model, number)
    for event in events:
        kind = str(event["type"]).encode()
        yield b"event: " + kind + b"\ndata: " + json.dumps(event).encode() + b"\n\n"


def _pieces(text: str) -> Iterator[str]:
    for start in range(0, len(text), _CHUNK):
        yield text[start : start + _CHUNK]


# -- chat completions ----------------------------------------------------------------


def _chat_usage(answer: Answer) -> Body:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": answer.cached_tokens},
    }


def _chat_calls(answer: Answer, number: int) -> list[Body]:
    return [
        {
            "id": f"call_{number}_{index}",
            "type": "function",
            "function": {"name": call.name, "arguments": call.text},
        }
        for index, call in enumerate(answer.calls)
    ]


def _chat_body(answer: Answer, model: str, number: int) -> Body:
    message: Body = {"role": "assistant", "content": answer.text or None}
    if answer.refusal:
        message["refusal"] = answer.refusal
    if answer.calls:
        message["tool_calls"] = _chat_calls(answer, number)
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1,
        "model": model,
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": _CHAT_FINISH[answer.ended],
            }
        ],
        "usage": _chat_usage(answer),
    }


def _chat_chunks(
    answer: Answer, model: str, number: int, with_usage: bool
) -> Iterator[Body]:
    def chunk(delta: Body, finish: str | None = None) -> Body:
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": model,
            "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
        }

    yield chunk({"role": "assistant", "content": ""})
    for piece in _pieces(answer.text):
        yield chunk({"content": piece})
    if answer.refusal:
        yield chunk({"refusal": answer.refusal})
    for index, call in enumerate(_chat_calls(answer, number)):
        text = call["function"]["arguments"]
        head = {**call["function"], "arguments": ""}
        yield chunk({"tool_calls": [{**call, "index": index, "function": head}]})
        for piece in _pieces(text):
            part = {"index": index, "function": {"arguments": piece}}
            yield chunk({"tool_calls": [part]})
    yield chunk({}, _CHAT_FINISH[answer.ended])
    if with_usage:
        yield {**chunk({}), "choices": [], "usage": _chat_usage(answer)}


# -- responses -----------------------------------------------------------------------


def _items(answer: Answer, number: int) -> list[Body]:
    items: list[Body] = []
    if answer.text or answer.refusal:
        content: list[Body] = []
        if answer.text:
            content.append(
                {"type": "output_text", "text": answer.text, "annotations": []}
            )
        if answer.refusal:
            content.append({"type": "refusal", "refusal": answer.refusal})
        items.append(
            {
                "type": "message",
                "id": f"msg_{number}",
                "role": "assistant",
                "status": "completed",
                "content": content,
            }
        )
    items += [
        {
            "type": "function_call",
            "id": f"fc_{number}_{index}",
            "call_id": f"call_{number}_{index}",
            "name": call.name,
            "arguments": call.text,
            "status": "completed",
        }
        for index, call in enumerate(answer.calls)
    ]
    return items


def _response(
    answer: Answer, model: str, number: int, status: str, items: list[Body]
) -> Body:
    cut = {
        Finish.LENGTH: "max_output_tokens",
        Finish.REFUSED: "content_filter",
    }.get(answer.ended)
    done = status == "completed"
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1,
        "status": "incomplete" if done and cut else status,
        "incomplete_details": {"reason": cut} if done and cut else None,
        "error": None,
        "model": model,
        "output": items,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": {
            "input_tokens": answer.input_tokens,
            "input_tokens_details": {"cached_tokens": answer.cached_tokens},
            "output_tokens": answer.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.input_tokens + answer.output_tokens,
        }
        if done
        else None,
    }


def _responses_events(answer: Answer, model: str, number: int) -> Iterator[Body]:
    count = 0

    def event(kind: str, **fields: Any) -> Body:
        nonlocal count
        count += 1
        return {"type": f"response.{kind}", "sequence_number": count - 1, **fields}

    begun = _response(answer, model, number, "in_progress", [])
    yield event("created", response=begun)
    yield event("in_progress", response=begun)
    items = _items(answer, number)
    for index, item in enumerate(items):
        hollow = {**item, "status": "in_progress"}
        hollow["content" if item["type"] == "message" else "arguments"] = (
            [] if item["type"] == "message" else ""
        )
        yield event("output_item.added", output_index=index, item=hollow)
        where = {"item_id": item["id"], "output_index": index}
        if item["type"] == "function_call":
            for piece in _pieces(item["arguments"]):
                yield event("function_call_arguments.delta", delta=piece, **where)
            yield event(
                "function_call_arguments.done", arguments=item["arguments"], **where
            )
        for place, part in enumerate(item.get("content", [])):
            kind = part["type"]
            key = "text" if kind == "output_text" else "refusal"
            spot = {**where, "content_index": place}
            empty = {**part, key: ""}
            yield event("content_part.added", part=empty, **spot)
            for piece in _pieces(part[key]):
                yield event(f"{kind}.delta", delta=piece, **spot)
            yield event(f"{kind}.done", **{key: part[key]}, **spot)
            yield event("content_part.done", part=part, **spot)
        yield event("output_item.done", output_index=index, item=item)
    whole = _response(answer, model, number, "completed", items)
    yield event(whole["status"], response=whole)


# -- messages ------------------------------------------------------------------------


def _input_of(call: ScriptedCall) -> Any:
    try:
        return json.loads(call.text)
    except ValueError:
        return {"_raw": call.text}


def _blocks(answer: Answer, number: int) -> list[Body]:
    text = answer.text or answer.refusal
    blocks: list[Body] = [{"type": "text", "text": text}] if text else []
    blocks += [
        {
            "type": "tool_use",
            "id": f"toolu_{number}_{index}",
            "name": call.name,
            "input": _input_of(call),
        }
        for index, call in enumerate(answer.calls)
    ]
    return blocks


def _messages_usage(answer: Answer) -> Body:
    # this form counts cached tokens beside the others, not among them
    return {
        "input_tokens": answer.input_tokens - answer.cached_tokens,
        "cache_read_input_tokens": answer.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": answer.output_tokens,
    }


def _messages_body(answer: Answer, model: str, number: int) -> Body:
    return {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": _blocks(answer, number),
        "stop_reason": _MESSAGES_FINISH[answer.ended],
        "stop_sequence": None,
        "usage": _messages_usage(answer),
    }


def _messages_events(answer: Answer, model: str, number: int) -> Iterator[Body]:
    whole = _messages_body(answer, model, number)
    usage = whole["usage"]
    head = {**whole, "content": [], "stop_reason": None}
    head["usage"] = {**usage, "output_tokens": 1}
    yield {"type": "message_start", "message": head}
    calls = iter(answer.calls)
    for index, block in enumerate(whole["content"]):
        tool = block["type"] == "tool_use"
        empty = {**block, "input": {}} if tool else {**block, "text": ""}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        text = next(calls).text if tool else block["text"]
        kind, key = (
            ("input_json_delta", "partial_json") if tool else ("text_delta", "text")
        )
        for piece in _pieces(text):
            delta = {"type": kind, key: piece}
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    yield {
        "type": "message_delta",
        "delta": {"stop_reason": whole["stop_reason"], "stop_sequence": None},
        "usage": {"output_tokens": usage["output_tokens"]},
    }
    yield {"type": "message_stop"}
