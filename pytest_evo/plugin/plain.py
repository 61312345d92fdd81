"""Values of tests as plain data: bounded, free of addresses, safe to send."""

from __future__ import annotations

import math
import re
import reprlib
from typing import Any

_ADDRESS = re.compile(r"(?<=\bat )0x[0-9a-fA-F]{4,16}\b")
LONGEST_TEXT = 100_000
LONGEST_LIST = 1_000
_DEEPEST = 8
_LONGEST_NAME = 2_000
_LONG_INT = 1_024  # bits; json and int() refuse more than 4300 digits


class Reader(reprlib.Repr):
    """A ``repr`` that never raises, sorts sets, and is at most so long and deep."""

    _KNOWN = frozenset({str, int, list, tuple, dict, set, frozenset})

    def __init__(self, limit: int, depth: int = 6) -> None:
        super().__init__()
        self.maxlevel = depth
        self.maxstring = self.maxother = self.maxlong = limit
        self.maxlist = self.maxtuple = self.maxdict = limit
        self.maxset = self.maxfrozenset = limit

    def repr1(self, x: Any, level: int) -> str:
        """Go by the type itself: a foreign class may share its name with a list."""
        if type(x) in self._KNOWN:
            return super().repr1(x, level)
        return self.repr_instance(x, level)

    def repr_int(self, x: int, level: int) -> str:
        """Write what has more digits than Python writes in hexadecimal."""
        return super().repr_int(x, level) if x.bit_length() < _LONG_INT else hex(x)


_SHORT = Reader(2_000)


def without_addresses(text: str) -> str:
    """The text with memory addresses made equal, so that two runs say the same."""
    return _ADDRESS.sub("0x...", text)


def cut(text: str, limit: int = LONGEST_TEXT) -> str:
    """The text, or its two ends with a note of what is missing between them."""
    if len(text) <= limit:
        return text
    head = limit // 2
    left_out = len(text) - limit
    return f"{text[:head]}\n... {left_out} characters left out ...\n{text[-head:]}"


def plain(value: object, depth: int = 0) -> Any:
    """The value as JSON can hold it; what is no plain data becomes its repr.

    Long texts and lists are cut, NaN and infinities become texts, names of mappings
    become strings. Nothing is raised, whatever the value's own methods do.
    """
    if value is None or value is True or value is False:
        return value
    if type(value) is str and len(value) <= LONGEST_TEXT:  # most of a report
        return value
    if isinstance(value, str):
        return cut(str.__str__(value))
    if isinstance(value, int):
        number = int.__index__(value)
        return number if number.bit_length() < _LONG_INT else _text(number)
    if isinstance(value, float):
        number_ = float.__float__(value)
        return number_ if math.isfinite(number_) else str(number_)
    if depth < _DEEPEST:
        if isinstance(value, dict):
            pairs = list(dict.items(value))[:LONGEST_LIST]
            return {_name(key): plain(item, depth + 1) for key, item in pairs}
        if isinstance(value, (list, tuple)):
            kind = list if isinstance(value, list) else tuple
            # not through the value's own methods, which may do anything
            members = kind.__getitem__(value, slice(LONGEST_LIST))  # type: ignore[index]
            return [plain(item, depth + 1) for item in members]
        if type(value) in (set, frozenset):
            texts = [_text(item) for item in value]  # type: ignore[attr-defined]
            return sorted(texts)[:LONGEST_LIST]
    return _number_of_a_library(value)


def _number_of_a_library(value: object) -> Any:
    """Scalars of numpy and friends register themselves as numbers."""
    from numbers import Integral
    from numbers import Real

    try:
        if isinstance(value, Integral):
            return plain(int(value))
        if isinstance(value, Real):
            return plain(float(value))
    except (ArithmeticError, TypeError, ValueError):
        return _text(value)
    return _text(value)


def _name(key: object) -> str:
    if type(key) is str and len(key) <= _LONGEST_NAME:
        return key
    return cut(str.__str__(key), _LONGEST_NAME) if isinstance(key, str) else _text(key)


def _text(value: object) -> str:
    return without_addresses(cut(_SHORT.repr(value), 2_000))
