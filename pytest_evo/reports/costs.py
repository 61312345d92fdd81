"""What models cost, by who asked them, as cells of a table."""

from __future__ import annotations

from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.reports.model import role_rows
from pytest_evo.reports.model import RunReport

COST_HEAD = ("role", "calls", "tokens", "cached", "seconds", "usd")
UNKNOWN = "unknown price"


def cost_rows(run: RunReport) -> list[list[str]]:
    """A row for each role that asked a model, and one for all where there are several.

    Where the price of a single call is unknown, that of its role is, and that of all.
    """
    spent = role_rows(run)
    rows = [_cells(role, usage) for role, usage in spent]
    if len(rows) > 1:
        rows.append(_cells("all", sum((usage for _, usage in spent), NO_USAGE)))
    return rows


def _cells(role: str, usage: Usage) -> list[str]:
    return [
        role,
        f"{usage.calls:,}",
        f"{usage.tokens:,}",
        f"{usage.cached_tokens:,}",
        f"{usage.seconds:,.1f}",
        UNKNOWN if usage.usd is None else f"{usage.usd:.4f}",
    ]
