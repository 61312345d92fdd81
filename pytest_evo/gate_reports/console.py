"""The verdict on a terminal: reasons, the table worst first, what to do next."""

from __future__ import annotations

from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.values import CaseRow
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate_reports.words import against
from pytest_evo.gate_reports.words import BETTER
from pytest_evo.gate_reports.words import effect_text
from pytest_evo.gate_reports.words import headline
from pytest_evo.gate_reports.words import limit_text
from pytest_evo.gate_reports.words import next_steps
from pytest_evo.gate_reports.words import runs_text
from pytest_evo.gate_reports.words import score_text
from pytest_evo.gate_reports.words import shown_rows
from pytest_evo.gate_reports.words import suite_lines
from pytest_evo.gate_reports.words import unrun_lines
from pytest_evo.gate_reports.words import WORSE
from pytest_evo.reports.console import Line
from pytest_evo.reports.text import visible
from pytest_evo.wording import count

SHOWN = 30
SHOWN_NAMES = 10
_WIDEST = 70
_STYLES = {
    GateVerdict.REGRESSED: "red",
    GateVerdict.PASSED: "green",
    GateVerdict.INCONCLUSIVE: "yellow",
    GateVerdict.INCOMPLETE: "yellow",
}


def verdict_lines(
    decision: GateDecision, record: GateRecord, *, limit: int = SHOWN
) -> list[Line]:
    """Everything that a person wants to read at the end of a gate."""
    style = _STYLES[decision.verdict]
    lines = [Line(f"gate: {headline(decision, record)}", style)]
    lines += [Line(f"  {visible(reason.text)}") for reason in decision.reasons]
    effect = effect_text(decision, record.policy.confidence)
    if effect:
        lines.append(Line(f"  mean: {effect}"))
    for other in decision.effects[1:]:
        lines.append(
            Line(
                f"  {other.scope} {visible(other.name)}: {other.base:.3f} -> "
                f"{other.head:.3f} ({other.difference:+.3f}, p {other.p_adjusted:.3f}"
                f"{'' if other.counts else ', shown only'})"
            )
        )
    lines += [Line(f"  {visible(limit_text(check))}") for check in decision.limits]
    lines += _table(decision, limit)
    lines += _suite(decision)
    notes = (*decision.warnings, *record.notes)
    if decision.saving_off:
        notes = (decision.saving_off, *notes)
    lines += [Line(f"note: {visible(note)}", "yellow") for note in notes]
    lines.append(Line(_spent(decision, record)))
    lines += [Line(f"next: {visible(s)}", "bold") for s in next_steps(decision, record)]
    return [Line(_no_command(line.text), line.style) for line in lines]


def _no_command(text: str) -> str:
    """A line that GitHub's runner, which reads the log, takes for no command."""
    if text.lstrip().startswith("::"):
        text = text.replace("::", ": :", 1)
    return text.replace("##[", "# #[")


def _table(decision: GateDecision, limit: int) -> list[Line]:
    rows = shown_rows(decision)
    if not rows:
        return []
    names = [_short(visible(row.id)) for row in rows[:limit]]
    wide = max(len("case"), *(len(name) for name in names))
    status = max(len(row.status) for row in rows[:limit])
    head = f"{'case':<{wide}}  {'':<{status}}  {'base':>6}  {'head':>6}  passes"
    lines = [Line(""), Line(head, "bold")]
    for name, row in zip(names, rows, strict=False):
        text = (
            f"{name:<{wide}}  {row.status:<{status}}  {score_text(row.base):>6}  "
            f"{score_text(row.head):>6}  {runs_text(row)}{_aside(row)}"
        )
        lines.append(Line(text, _colour(row)))
    if len(rows) > limit:
        lines.append(Line(f"and {len(rows) - limit} more, in evo-reports/junit.xml"))
    return [*lines, Line("")]


def _aside(row: CaseRow) -> str:
    parts = [] if row.p is None or row.p >= 1 else [f"p {row.p:.3g}"]
    if row.note:
        note = visible(" ".join(row.note.split()))
        parts.append(note if len(note) <= _WIDEST else f"{note[: _WIDEST - 3]}...")
    return f"  {', '.join(parts)}" if parts else ""


def _colour(row: CaseRow) -> str:
    if row.status in WORSE:
        return "red"
    return "green" if row.status in BETTER else "yellow"


def _suite(decision: GateDecision) -> list[Line]:
    lines = []
    for title, cases in suite_lines(decision):
        lines.append(Line(f"{title}:"))
        lines += [Line(f"  {visible(case)}") for case in cases[:SHOWN_NAMES]]
        if len(cases) > SHOWN_NAMES:
            lines.append(Line(f"  and {len(cases) - SHOWN_NAMES} more"))
    return [*lines, *(Line(visible(text)) for text in unrun_lines(decision))]


def _spent(decision: GateDecision, record: GateRecord) -> str:
    spent = decision.spent
    if not spent.rollouts:
        return f"against {visible(against(record))}: no rollout was run"
    cost = f", {spent.tokens:,} tokens" if spent.tokens else ""
    cost += f", ${spent.usd:.4f}" if spent.usd else ""
    return (
        f"against {visible(against(record))}: {count(spent.rollouts, 'rollout')} "
        f"({spent.base:,} base, {spent.head:,} head){cost}"
    )


def _short(name: str) -> str:
    if len(name) <= _WIDEST:
        return name
    return f"{name[:20]}...{name[-(_WIDEST - 23) :]}"
