"""Lines before and during a run: pure functions, nothing here prints.

Our own words are ASCII; candidate text is shown with everything a terminal could act on
as an escape. Styles are names that both pytest's terminal writer and rich know.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from datetime import datetime
from datetime import timedelta

from pytest_evo.reports.text import visible
from pytest_evo.wording import count

PROJECTION_AFTER = 20


@dataclass(frozen=True, slots=True)
class Line:
    """One line with its style: "", bold, dim, red, green, yellow or cyan."""

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class HeaderFacts:
    """What a person should know before the first rollout is paid for."""

    run: str
    artifact: str
    files: int
    bytes: int
    cases: Mapping[str, int]  # by split, train first
    cases_why: str  # "marked evo or using an evo fixture"
    split_why: str  # "seeded hash, stratified by file and outcome"
    proposer: str
    isolation: str
    isolation_why: str
    budget: Mapping[str, str]  # limit -> amount as text, in order
    baseline: int  # rollouts
    noise: int
    reserve: int
    proposals_left: int | None  # None: rollouts are not limited
    validations_left: int | None
    excluded: int = 0
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProgressState:
    """Where a run is. Seconds are running time; scores are means over val."""

    phase: str
    iteration: int = 0
    best_val: float | None = None
    start_val: float | None = None
    rollouts_used: int = 0
    rollouts_limit: int | None = None
    depth: int = 0
    in_flight: int = 0
    elapsed: float = 0.0
    seconds_per_rollout: float | None = None
    accepted: int | None = 0  # None: nothing is ever accepted here


@dataclass(frozen=True, slots=True)
class Spending:
    """How far each limit is used up: name -> (used, limit), in the limit's unit."""

    elapsed: float
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)


# -- before and during the run -----------------------------------------------------


def header_lines(facts: HeaderFacts, *, ascii_only: bool = False) -> list[Line]:
    """The header: what is optimised, with what, how isolated, at what cost."""
    total = sum(facts.cases.values())
    splits = ", ".join(f"{n} {split}" for split, n in facts.cases.items())
    left_out = f"; {facts.excluded} left out" if facts.excluded else ""
    limits = ", ".join(f"{name} {amount}" for name, amount in facts.budget.items())
    fixed = facts.baseline + facts.noise + facts.reserve
    rows = [
        ("run", facts.run),
        (
            "artifact",
            f"{facts.artifact} ({count(facts.files, 'file')}, {_size(facts.bytes)})",
        ),
        ("cases", f"{total} ({facts.cases_why}): {splits}{left_out}"),
        ("split", facts.split_why),
        ("proposer", facts.proposer),
        ("isolation", f"{facts.isolation}: {facts.isolation_why}"),
        ("budget", limits),
        (
            "of that",
            f"baseline {facts.baseline:,}, noise {facts.noise:,}, final measurement "
            f"{facts.reserve:,} = {count(fixed, 'rollout')}",
        ),
        ("leaves", _prospect(facts)),
    ]
    lines = [
        Line(f"{name + ':':<11}{visible(text, ascii_only=ascii_only)}")
        for name, text in rows
    ]
    lines = [Line("pytest-evo", "bold"), *lines]
    lines += [Line(f"note: {visible(x, ascii_only=ascii_only)}") for x in facts.notes]
    lines += [
        Line(f"warning: {visible(x, ascii_only=ascii_only)}", "yellow")
        for x in facts.warnings
    ]
    return lines


def _prospect(facts: HeaderFacts) -> str:
    if facts.proposals_left is None or facts.validations_left is None:
        return "rollouts are not limited"
    proposals = count(facts.proposals_left, "proposal")
    return f"about {proposals} and {count(facts.validations_left, 'validation')}"


def progress_line(state: ProgressState) -> str:
    """One line that says where the run is."""
    parts = [visible(state.phase)]
    if state.iteration:
        parts.append(f"iteration {state.iteration}")
    if state.depth:
        parts.append(f"chain {state.depth}")
    if state.best_val is not None:
        gain = (
            f" ({state.best_val - state.start_val:+.3f})"
            if state.start_val is not None
            else ""
        )
        parts.append(f"best val {state.best_val:.3f}{gain}")
    if state.accepted is not None:
        parts.append(f"accepted {state.accepted}")
    parts.append(rollouts_text(state))
    if state.in_flight:
        parts.append(f"{state.in_flight} in flight")
    parts.append(duration(state.elapsed))
    return " | ".join(parts)


def rollouts_text(state: ProgressState) -> str:
    """``120/500 rollouts, 380 left``."""
    if state.rollouts_limit is None:
        return count(state.rollouts_used, "rollout")
    left = max(0, state.rollouts_limit - state.rollouts_used)
    return f"{state.rollouts_used:,}/{state.rollouts_limit:,} rollouts, {left:,} left"


def projection_line(spending: Spending, now: datetime) -> str | None:
    """When the run ends at this pace and which limit ends it; None without a limit."""
    soonest: tuple[float, str] | None = None
    for name, (used, limit) in spending.limits.items():
        if used <= 0 or limit <= 0 or spending.elapsed <= 0:
            continue
        left = max(0.0, limit - used) * spending.elapsed / used
        if math.isfinite(left) and (soonest is None or left < soonest[0]):
            soonest = (left, name)
    if soonest is None:
        return None
    left, name = soonest
    end = now + timedelta(seconds=min(left, 10 * 365 * 86_400))
    clock = f"{end:%H:%M}" if left < 86_400 else f"{end:%Y-%m-%d %H:%M}"
    return f"at this pace the run ends in {duration(left)} ({clock}), limited by {name}"


# -- words ---------------------------------------------------------------------------


def duration(seconds: float) -> str:
    """``8 s``, ``3 min 20 s``, ``2 h 05 min``."""
    whole = round(seconds) if math.isfinite(seconds) and seconds > 0 else 0
    if whole < 60:
        return f"{whole} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60:02d} min"


def _size(size: int) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1_000 or unit == "MB":
            break
        size //= 1_000
    return f"{size:,} {unit}"
