"""Journal records: one event, one line of JSON, one check.

A line is ``{"seq":7,"kind":"rollout","at":"...","scope":"3",...,"check":"..."}``: where
it stands, the event's own fields, and the check.

``check`` is the CRC-32 of the line as it would be without it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from dataclasses import fields
from datetime import datetime
from datetime import UTC
from functools import cache
from typing import Any
from typing import get_args
from zlib import crc32

from pydantic import ConfigDict
from pydantic import TypeAdapter
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.events import Event

ENVELOPE = frozenset({"seq", "kind", "at", "scope", "check"})
"""Names that no event may use for a field (``kind`` excepted, which it shares)."""
CLOSED = "closed"
"""The kind of the record that ends the block of a scope: it commits the block."""
SCOPE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,80}")

EDGE = ConfigDict(extra="forbid", ser_json_inf_nan="strings")
"""How values cross the edge: unknown fields are refused, infinities are strings."""

_CHECK = b',"check":"'
_TAIL = len(_CHECK) + 8 + 2
_HEAD = re.compile(
    rb'\{"seq":([0-9]+),"kind":"([a-z]+)","at":"([0-9TZ:.-]+)"'
    rb'(?:,"scope":"([A-Za-z0-9_.-]+)")?([,}])'
)


@dataclass(frozen=True, slots=True)
class Record:
    """A sound line: its check holds."""

    seq: int
    kind: str
    at: str
    scope: str | None
    fields: bytes  # the event's own, as the inside of a JSON object

    @property
    def commits(self) -> bool:
        """Whether everything up to here belongs to the run for good."""
        return self.scope is None or self.kind == CLOSED


def stamp(moment: datetime) -> str:
    """A moment as journals write it: ISO-8601, UTC, microseconds."""
    text = moment.astimezone(UTC).isoformat(timespec="microseconds")
    return text[: -len("+00:00")] + "Z"


def frame(seq: int, kind: str, at: str, scope: str | None, fields: bytes) -> bytes:
    """Put the fields of an event into a checked line, newline included."""
    where = "" if scope is None else f',"scope":"{scope}"'
    head = f'{{"seq":{seq},"kind":"{kind}","at":"{at}"{where}'.encode()
    body = head + b"," + fields if fields else head
    return body + b',"check":"%08x"}\n' % crc32(b"}", crc32(body))


def parse(line: bytes) -> Record | None:
    """Read a line without its newline; None where it is not what was written."""
    if line[-_TAIL:-10] != _CHECK or line[-2:] != b'"}':
        return None
    body = line[:-_TAIL]
    if b"%08x" % crc32(b"}", crc32(body)) != line[-10:-2]:
        return None
    head = _HEAD.match(body + b"}")
    if head is None:
        return None
    seq, kind, at, scope, _ = head.groups()
    return Record(
        seq=int(seq),
        kind=kind.decode(),
        at=at.decode(),
        scope=None if scope is None else scope.decode(),
        fields=body[head.end() :],
    )


def whole(line: bytes) -> bool:
    """Whether a line has the outer form of a record, whatever its check says."""
    return line[-_TAIL:-10] == _CHECK and line[-2:] == b'"}'


def encode(event: Event) -> bytes:
    """The fields of an event as the inside of a JSON object, in declared order.

    Raises:
        ValueError: a field holds what its type does not allow.
    """
    adapter, suffix = _writer(event.kind)
    raw = to_json(adapter, event)
    return raw[1 : -len(suffix)].removesuffix(b",")


def decode(record: Record) -> Event:
    """The event of a record that is not a ``closed`` one.

    Raises:
        RunDirectoryProblem: another version of pytest-evo wrote it.
    """
    try:
        adapter, _ = _writer(record.kind)
        event: Event = adapter.validate_json(b"{" + record.fields + b"}")
    except KeyError as error:
        raise RunDirectoryProblem(
            f"record {record.seq} of the journal is of the unknown kind "
            f"{record.kind!r}: open the run with the version of pytest-evo that wrote "
            "it (run.json says which)"
        ) from error
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise RunDirectoryProblem(
            f"record {record.seq} of the journal, kind {record.kind!r}, field "
            f"{where!r}: {first['msg']}. Open the run with the version of pytest-evo "
            "that wrote it (run.json says which)"
        ) from error
    return event


def adapter_for(kind: type[Any]) -> TypeAdapter[Any]:
    """The edge of a plain frozen dataclass; made once, which takes milliseconds."""
    known = _adapters.get(kind)
    if known is None:
        # ``| None`` because a configuration cannot be given for a plain dataclass.
        optional: Any = kind | None
        known = _adapters[kind] = TypeAdapter(optional, config=EDGE)
    return known


_adapters: dict[type[Any], TypeAdapter[Any]] = {}


def to_json(adapter: TypeAdapter[Any], value: object) -> bytes:
    """Write a value; what JSON cannot hold inside free data becomes its text.

    Raises:
        ValueError: a field holds what its type does not allow.
    """
    write = adapter.serializer.to_json
    try:
        return write(value, fallback=str, warnings="error")
    except PydanticSerializationError:
        # Half a surrogate pair has no UTF-8: it is written as its escape.
        plain = _escaped(adapter.dump_python(value, warnings="none"))
        return write(adapter.validate_python(plain), fallback=str, warnings="error")


def _escaped(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    return value


@cache
def _classes() -> dict[str, type[Any]]:
    return {_kind(event): event for event in get_args(Event)}


def _kind(event: type[Any]) -> str:
    return next(str(f.default) for f in fields(event) if f.name == "kind")


@cache
def _writer(kind: str) -> tuple[TypeAdapter[Any], bytes]:
    # The kind is in the envelope, so it is cut off the event, where it comes last.
    return adapter_for(_classes()[kind]), f'"kind":"{kind}"}}'.encode()
