"""Secrets taken out of values: every text in them, however deep."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import fields
from dataclasses import is_dataclass
from dataclasses import replace
from typing import Any
from typing import TypeVar

T = TypeVar("T")


def redacted(value: T, redact: Callable[[str], str]) -> T:
    """The same value with ``redact`` applied to all texts; enums stay."""
    done: Any = _redacted(value, redact)
    return done  # type: ignore[no-any-return]


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if type(value) is str:
        return redact(value)
    if isinstance(value, tuple):
        return tuple(_redacted(one, redact) for one in value)
    if isinstance(value, Mapping):
        return {name: _redacted(one, redact) for name, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        changes = {
            field.name: _redacted(getattr(value, field.name), redact)
            for field in fields(value)
        }
        return replace(value, **changes)
    return value
