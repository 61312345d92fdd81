"""Words that depend on numbers and types, for texts that a person reads."""

from __future__ import annotations

_KINDS = {"dict": "a table", "list": "a list", "NoneType": "empty"}


def count(number: int, word: str) -> str:
    """``1 case``, ``2,000 cases``."""
    return f"{number:,} {word}" + ("" if number == 1 else "s")


def a_kind(value: object) -> str:
    """What a value of a TOML, YAML or JSON file is that is more than one value."""
    return _KINDS.get(type(value).__name__, f"a {type(value).__name__}")
