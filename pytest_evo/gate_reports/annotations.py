"""GitHub workflow commands that pin the verdict to the artifact's files.

A workflow command is a line of a log, so a line feed in a name or a message would begin
a new one: everything that comes from the change is escaped, and nothing else of it is
printed at the start of a line.
"""

from __future__ import annotations

from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.values import CaseRow
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate_reports.words import headline
from pytest_evo.gate_reports.words import runs_text
from pytest_evo.gate_reports.words import shown_rows
from pytest_evo.gate_reports.words import WORSE
from pytest_evo.reports.text import one_line
from pytest_evo.reports.text import visible

MOST = 10
"""Annotations of one kind that GitHub shows of a step."""
_TITLE = 200
_MESSAGE = 1_000


def workflow_commands(decision: GateDecision, record: GateRecord) -> list[str]:
    """The commands, worst first; none where the gate passed."""
    if decision.verdict is GateVerdict.PASSED:
        return []
    kind = "error" if decision.exit_code else "warning"
    worse = [row for row in shown_rows(decision) if row.status in WORSE]
    files = decision.change.files
    place = f"{record.prefix}{record.artifact}/{files[0]}" if files else ""
    shown = worse[: MOST - 1]
    more = len(worse) - len(shown)
    reasons = "; ".join(reason.text for reason in decision.reasons)
    text = f"{headline(decision, record)}. {reasons}"
    if more:
        text += f" (and {more} more cases)"
    return [
        _command(kind, place, "pytest-evo gate", text),
        *(_command(kind, place, row.id, _about(row)) for row in shown),
    ]


def _about(row: CaseRow) -> str:
    note = f": {row.note}" if row.note else ""
    return f"{row.status}, passes {runs_text(row)}{note}"


def _command(kind: str, file: str, title: str, message: str) -> str:
    where = f"file={_property(file)}," if file else ""
    said = _data(visible(one_line(message, _MESSAGE)))
    return f"::{kind} {where}title={_property(title)}::{said}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    flat = _data(visible(one_line(text, _TITLE)))
    return flat.replace(":", "%3A").replace(",", "%2C")
