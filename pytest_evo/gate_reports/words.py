"""How a decision is said: the same words on a terminal, in Markdown and in XML."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence

from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.values import CaseRow
from pytest_evo.gate.values import CaseStatus
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate.values import LimitCheck
from pytest_evo.models import EPSILON
from pytest_evo.wording import count

HEADLINES: Mapping[GateVerdict, str] = {
    GateVerdict.REGRESSED: "regressed: this change makes the artifact worse",
    GateVerdict.PASSED: "passed: this change does not make the artifact worse",
    GateVerdict.INCONCLUSIVE: "inconclusive: what was measured does not settle it",
    GateVerdict.INCOMPLETE: "incomplete: it could not be measured",
}
WORSE = frozenset(
    {
        CaseStatus.MUST_PASS,
        CaseStatus.FLIPPED,
        CaseStatus.CONFIRMED,
        CaseStatus.SKIPPED,
        CaseStatus.UNCOLLECTED,
    }
)
"""What counts against the change by itself."""
DOUBTFUL = frozenset(
    {
        CaseStatus.TOLERATED,
        CaseStatus.SUSPECT,
        CaseStatus.LOWER,
        CaseStatus.ERROR,
        CaseStatus.QUARANTINED,
    }
)
BETTER = frozenset({CaseStatus.HIGHER, CaseStatus.FIXED})
STRICT = "pytest-evo gate GATE_JSON --policy strict"


def headline(decision: GateDecision, record: GateRecord) -> str:
    """The verdict in one sentence."""
    if record.nothing_run and decision.verdict is GateVerdict.PASSED:
        return "passed: nothing that any case reaches has changed"
    return HEADLINES[decision.verdict]


def against(record: GateRecord) -> str:
    """What the change was compared with."""
    if record.base_commit:
        return f"{record.base} ({record.base_commit[:12]})"
    return record.base


def effect_text(decision: GateDecision, confidence: float) -> str:
    """The difference of means with its interval; empty where nothing was compared."""
    effect = decision.overall
    if effect is None:
        return ""
    moves = [
        row.difference
        for row in decision.rows
        if row.difference is not None and row.status not in _ASIDE
    ]
    spared = sum(row.status is CaseStatus.UNREACHED for row in decision.rows)
    return (
        f"{effect.base:.3f} -> {effect.head:.3f} ({effect.difference:+.3f}, "
        f"{confidence:.0%} interval {effect.low:+.3f} to {effect.high:+.3f}) on "
        f"{count(effect.cases, 'case')}"
        + (f" ({spared} of them not run, as before)" if spared else "")
        + f": {sum(move < -EPSILON for move in moves)} worse, "
        f"{sum(move > EPSILON for move in moves)} better"
    )


_ASIDE = frozenset({CaseStatus.QUARANTINED, CaseStatus.ADDED, CaseStatus.NOT_COMPARED})
"""Cases that are shown and not counted."""


def runs_text(row: CaseRow) -> str:
    """How often a case passed on each side, like ``3/3 -> 0/3``."""
    return f"{row.base_passes}/{row.base_n} -> {row.head_passes}/{row.head_n}"


def score_text(value: float | None) -> str:
    """A mean score."""
    return "-" if value is None else f"{value:.3f}"


def limit_text(check: LimitCheck) -> str:
    """One limit held against the base."""
    state = "exceeded" if check.exceeded else "kept"
    return (
        f"{check.metric}: {check.base:g} -> {check.head:g}, {check.ratio:.2f} times "
        f"(limit {check.max_ratio:g}: {state})"
    )


def unrun_lines(decision: GateDecision) -> list[str]:
    """How many cases were not run, and why it ended before its plan did."""
    lines = []
    if decision.unreached and decision.change.files:
        cases = count(len(decision.unreached), "case")
        lines.append(f"{cases} cannot open a changed file: unchanged, not run")
    left = sum(row.status is CaseStatus.NOT_RUN for row in decision.rows)
    if left:
        why = f": {decision.stopped}" if decision.stopped else ""
        lines.append(f"{count(left, 'case')} not run{why}")
    elif decision.stopped:
        lines.append(f"ended early: {decision.stopped}")
    return lines


def suite_lines(decision: GateDecision) -> list[tuple[str, Sequence[str]]]:
    """What changed in the suite: a title with the number, and the cases."""
    change = decision.change
    gone = [row.id for row in change.removed if row.passed]
    failing = [row.id for row in change.removed if not row.passed]
    return [
        (f"{count(len(cases), 'case')} {title}", cases)
        for title, cases in (
            ("removed, and they passed before", gone),
            ("removed, and they failed before", failing),
            ("renamed", [f"{row.old} -> {row.new}" for row in change.renamed]),
            ("added", change.added),
        )
        if cases
    ]


def shown_rows(decision: GateDecision) -> list[CaseRow]:
    """The rows that say something, worst first as they come."""
    return [
        row
        for row in decision.rows
        if row.status in WORSE | DOUBTFUL | BETTER
        or (row.status is CaseStatus.ADDED and row.head_passes < row.head_n)
    ]


def next_steps(decision: GateDecision, record: GateRecord) -> list[str]:
    """What a person can do now; commands are given as they are typed."""
    steps = []
    if decision.settle:
        steps.append(decision.settle)
    if any(row.passed for row in decision.change.removed) and (
        not record.policy.accept_removed
    ):
        steps.append("to let the removed cases go: --evo-accept-removed")
    if decision.unreached and decision.change.files:
        steps.append("to run the cases that the change cannot reach: --evo-gate-all")
    if decision.verdict is GateVerdict.INCONCLUSIVE and not decision.strict:
        steps.append("to fail on this, decide again: pytest-evo gate --policy strict")
    return steps
