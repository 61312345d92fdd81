"""The receipts and what they come to."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path


@dataclass(frozen=True)
class Receipt:
    """One receipt; ``cents`` is the right total."""

    id: str
    task: str
    text: str
    cents: int


@cache
def load_receipts() -> tuple[Receipt, ...]:
    """All receipts, in the order of the file."""
    path = Path(__file__).with_name("receipts.toml")
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["receipt"]
    return tuple(Receipt(**row) for row in rows)
