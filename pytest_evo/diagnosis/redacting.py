"""Secrets taken out of values: every text in them, however deep."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import is_dataclass
from dataclasses import replace
from typing import Any
from typing import TypeVar

T = TypeVar("T")


def redacted(value: T, redact: Callable[[str], str]) -> T:
    """The value with ``redact`` applied to all texts; enums stay.

    What holds nothing to be taken out is given back itself, not a copy.
    """
    done: Any = _redacted(value, redact)
    return done  # type: ignore[no-any-return]


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    kind = type(value)
    if kind is str:
        return redact(value)
    if value is None or kind is float or kind is int or kind is bool:
        return value
    if isinstance(value, tuple):
        return _tuple(value, redact)
    if isinstance(value, Mapping):
        return _mapping(value, redact)
    if is_dataclass(value) and not isinstance(value, type):
        return _fields(value, redact)
    return value


def _tuple(value: tuple[Any, ...], redact: Callable[[str], str]) -> tuple[Any, ...]:
    done = tuple([_redacted(one, redact) for one in value])
    same = all(new is old for new, old in zip(done, value, strict=True))
    return value if same else done


def _mapping(
    value: Mapping[Any, Any], redact: Callable[[str], str]
) -> Mapping[Any, Any]:
    done = {name: _redacted(one, redact) for name, one in value.items()}
    same = all(done[name] is old for name, old in value.items())
    return value if same else done


def _fields(value: Any, redact: Callable[[str], str]) -> Any:
    changes = {}
    for name in value.__dataclass_fields__:
        old = getattr(value, name)
        new = _redacted(old, redact)
        if new is not old:
            changes[name] = new
    return replace(value, **changes) if changes else value
