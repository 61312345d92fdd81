"""Structured replies of models: by schema where it is enforced, parsed, repaired once.

A reply that is refused, empty or cut is never read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from typing import Generic
from typing import TypeVar

from pydantic import BaseModel
from pydantic import ValidationError

from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Finish
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.chat import spent_on
from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import EvoError
from pytest_evo.hostile import one_line
from pytest_evo.models import Json
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.protocols import ChatModel

T = TypeVar("T", bound=BaseModel)
_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?```", re.DOTALL)
_LIMITS = frozenset(
    (
        "default",
        "maximum",
        "maxItems",
        "maxLength",
        "minimum",
        "minItems",
        "minLength",
        "title",
    )
)
_MOST_ERRORS = 8
_MOST_STARTS = 50  # places of a reply that are tried as the start of an object


@dataclass(frozen=True, slots=True)
class Structured(Generic[T]):
    """A reply as a value, or why there is none; what it cost in both cases.

    ``messages`` are the whole exchange, the reply included, to go on from;
    ``too_long`` says that the model's context is too small for the request.
    """

    value: T | None
    usage: Usage
    problem: str = ""
    messages: tuple[Message, ...] = ()
    too_long: bool = False


def ask_structured(
    model: ChatModel,
    messages: tuple[Message, ...],
    kind: type[T],
    *,
    max_tokens: int | None = None,
) -> Structured[T]:
    """Ask for a reply of one kind; blocks, and repairs a malformed reply once.

    A model that fails, or that a budget does not pay any more, is a problem of the
    reply and not an exception: what was spent before is not lost.
    """
    usage = NO_USAGE
    problem = ""
    schema = schema_of(kind)
    for _ in range(2):
        request = ChatRequest(messages, schema=schema, max_tokens=max_tokens)
        try:
            reply = model.ask(request)
        except EvoError as error:
            return Structured(
                None,
                usage + spent_on(error),
                f"{model.name}: {error}",
                messages,
                too_long=isinstance(error, ContextOverflow),
            )
        usage += reply.usage
        problem = unusable(reply)
        if problem:
            return Structured(None, usage, f"{model.name}: {problem}", messages)
        said = Message(Speaker.ASSISTANT, reply.text)
        try:
            value = parse_reply(reply.text, kind)
        except ValueError as error:
            problem = str(error)
            again = Message(Speaker.USER, _repair(problem))
            messages = (*messages, said, again)
        else:
            return Structured(value, usage, "", (*messages, said))
    return Structured(
        None, usage, f"{model.name}: no usable reply, also not when asked again: "
        f"{one_line(problem, 300)}", messages
    )  # fmt: skip


def schema_of(kind: type[BaseModel]) -> dict[str, Json]:
    """The JSON schema of a reply: its shape, without what not every provider knows.

    Limits of numbers and lengths are checked when the reply is read.
    """
    schema: dict[str, Json] = _shape(kind.model_json_schema())
    return schema


def _shape(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_shape(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: {field: _shape(one) for field, one in part.items()}
        if name in ("properties", "$defs")
        else _shape(part)
        for name, part in schema.items()
        if name not in _LIMITS
    }


def unusable(reply: ChatReply) -> str:
    """Why a reply must not be acted on; empty where it may be."""
    if reply.finish is Finish.LENGTH:
        return "the reply was cut at its length limit"
    if reply.finish is Finish.REFUSED:
        return "the model refused to answer"
    if reply.finish is Finish.EMPTY or not (reply.text.strip() or reply.calls):
        return "the reply was empty"
    return ""


def parse_reply(text: str, kind: type[T]) -> T:
    """Read the JSON object in a reply, with or without prose and fences around it.

    Raises:
        ValueError: there is none, or it is not of the kind; says what is wrong where.
    """
    first: str | None = None
    for data in _objects(text):
        try:
            return kind.model_validate(data)
        except ValidationError as error:
            first = first or _explain(error)
    raise ValueError(first or "there is no JSON object in the reply")


def _objects(text: str) -> Iterator[dict[str, object]]:
    """JSON objects in a text, the likeliest first."""
    seen = False
    for candidate in (text.strip(), *_FENCE.findall(text)):
        try:
            data = json.loads(candidate, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(data, dict):
            seen = True
            yield data
    if seen:
        return
    decoder = json.JSONDecoder(strict=False)
    at = text.find("{")
    for _ in range(_MOST_STARTS):
        if at < 0:
            return
        try:
            data, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            at = text.find("{", at + 1)
            continue
        yield data
        at = text.find("{", end)


def _explain(error: ValidationError) -> str:
    lines = []
    for detail in error.errors()[:_MOST_ERRORS]:
        where = ".".join(str(part) for part in detail["loc"]) or "the object"
        lines.append(f"{where}: {detail['msg']}")
    return "; ".join(lines)


def _repair(problem: str) -> str:
    return (
        "Your reply could not be read. "
        f"What is wrong: {one_line(problem, 1_500)}\n"
        "Reply again with one JSON object that follows the schema, and nothing else."
    )
