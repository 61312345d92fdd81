"""How numbers and names stand in the sentences of a verdict."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo import wording
from pytest_evo.models import CaseId


def points(share: float) -> str:
    """A share of the scale, like ``3.0 points``."""
    return f"{100 * share:.1f} points"


def count(names: Sequence[object], noun: str) -> str:
    """How many there are, like ``2 cases``."""
    return wording.count(len(names), noun)


def some(names: Sequence[CaseId], most: int = 5) -> str:
    """The first ``most`` of them, and how many more there are."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
