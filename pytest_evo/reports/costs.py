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

    Calls of unknown price are counted beside what the others cost.
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
        price_text(usage),
    ]


def price_text(usage: Usage) -> str:
    """What calls cost; of unknown prices, how many they are and what they count as."""
    if usage.usd is not None:
        return f"{usage.usd:.4f}"
    calls = "1 call" if usage.unpriced == 1 else f"{usage.unpriced:,} calls"
    if usage.unpriced >= usage.calls and usage.estimated_usd is None:
        return UNKNOWN
    text = f"{calls} of {UNKNOWN}"
    if usage.paid_usd:
        text = f"{usage.paid_usd:.4f} + {text}"
    if usage.estimated_usd is not None:
        text += f" (estimated {usage.estimated_usd:.4f})"
    return text
