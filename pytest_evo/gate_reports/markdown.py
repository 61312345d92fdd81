"""The verdict as Markdown, for a job's summary or a comment.

Names and messages come from the change that is judged. They stand in code spans that
they cannot leave and mention nobody; the whole fits the 65,536 characters of a comment.
"""

from __future__ import annotations

from collections.abc import Sequence

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
from pytest_evo.reports.text import code
from pytest_evo.reports.text import plain

LONGEST = 60_000
SHOWN = 100
SHOWN_BETTER = 20
SHOWN_NAMES = 20
_SIGNS = {
    GateVerdict.REGRESSED: "❌",
    GateVerdict.PASSED: "✅",
    GateVerdict.INCONCLUSIVE: "⚠️",
    GateVerdict.INCOMPLETE: "⚠️",
}


def gate_markdown(decision: GateDecision, record: GateRecord) -> str:
    """The text; rows are left out from the end where it would be too long."""
    for shown in (SHOWN, 40, 10, 0):
        text = _text(decision, record, shown)
        if len(text) <= LONGEST:
            return text
    return text[:LONGEST]


def _text(decision: GateDecision, record: GateRecord, shown: int) -> str:
    rows = shown_rows(decision)
    worse = [row for row in rows if row.status not in BETTER]
    better = [row for row in rows if row.status in BETTER]
    sections = [
        f"## {_SIGNS[decision.verdict]} pytest-evo gate: {headline(decision, record)}",
        f"{code(record.artifact)} against {code(against(record))}",
        _bullets([reason.text for reason in decision.reasons]),
        _effect(decision, record),
        _bullets([limit_text(check) for check in decision.limits]),
        _table("Cases", worse, shown),
        _table("Better", better, min(shown, SHOWN_BETTER)),
        _suite(decision),
        _files(decision),
        _bullets([*filter(None, [decision.saving_off]), *decision.warnings]),
        _bullets(record.notes),
        _spent(decision),
        _bullets(next_steps(decision, record)),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _bullets(texts: Sequence[str]) -> str:
    return "\n".join(f"- {plain(text, 600)}" for text in texts[:SHOWN_NAMES])


def _effect(decision: GateDecision, record: GateRecord) -> str:
    text = effect_text(decision, record.policy.confidence)
    return f"**Mean score:** {text}" if text else ""


def _table(title: str, rows: Sequence[CaseRow], shown: int) -> str:
    if not rows or not shown:
        return ""
    lines = [
        f"### {title}",
        "",
        "| case | | base | head | passes | |",
        "| --- | --- | ---: | ---: | --- | --- |",
    ]
    for row in rows[:shown]:
        note = code(row.note, 200, cell=True) if row.note else ""
        lines.append(
            f"| {code(row.id, 200, cell=True)} | {row.status} | "
            f"{score_text(row.base)} | {score_text(row.head)} | {runs_text(row)} | "
            f"{note} |"
        )
    if len(rows) > shown:
        lines += ["", f"and {len(rows) - shown} more"]
    return "\n".join(lines)


def _suite(decision: GateDecision) -> str:
    lines = []
    for title, cases in suite_lines(decision):
        lines.append(f"**{title}:**\n")
        lines += [f"- {code(case, 200)}" for case in cases[:SHOWN_NAMES]]
        if len(cases) > SHOWN_NAMES:
            lines.append(f"- and {len(cases) - SHOWN_NAMES} more")
        lines.append("")
    lines += [f"{plain(text)}.\n" for text in unrun_lines(decision)]
    return "\n".join(lines).strip()


def _files(decision: GateDecision) -> str:
    files = decision.change.files
    if not files:
        return ""
    named = ", ".join(code(path, 120) for path in files[:SHOWN_NAMES])
    more = len(files) - SHOWN_NAMES
    return f"Changed: {named}" + (f" and {more} more" if more > 0 else "")


def _spent(decision: GateDecision) -> str:
    spent = decision.spent
    if not spent.rollouts:
        return "No rollout was run."
    cost = f", {spent.tokens:,} tokens" if spent.tokens else ""
    cost += f", ${spent.usd:.4f}" if spent.usd else ""
    return (
        f"{spent.rollouts:,} rollouts ({spent.base:,} base, {spent.head:,} head){cost}."
    )
