"""The gate as JUnit XML, under the class names of pytest's own report.

What counts against the change is a failure, what could not be measured an error, and
what says nothing of the change (it fails on both sides, is quarantined, tolerated, or
was not run) is skipped: a reporter that turns red on failures agrees with the gate. The
first testcase is the verdict itself, because a mean can fall without one guilty case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from junitparser import Error
from junitparser import Failure
from junitparser import Skipped

from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.values import CaseRow
from pytest_evo.gate.values import CaseStatus
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate_reports.words import against
from pytest_evo.gate_reports.words import effect_text
from pytest_evo.gate_reports.words import headline
from pytest_evo.gate_reports.words import runs_text
from pytest_evo.gate_reports.words import WORSE
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.reports.junit import add_output
from pytest_evo.reports.junit import MAX_MESSAGE
from pytest_evo.reports.junit import MAX_TRACE
from pytest_evo.reports.junit_names import Namer
from pytest_evo.reports.junit_xml import add_properties
from pytest_evo.reports.junit_xml import append
from pytest_evo.reports.junit_xml import Heading
from pytest_evo.reports.junit_xml import JunitCase
from pytest_evo.reports.junit_xml import pages
from pytest_evo.reports.junit_xml import Parts
from pytest_evo.reports.text import clean
from pytest_evo.reports.text import one_line
from pytest_evo.reports.text import short_id

_SAYS_NOTHING = frozenset(
    {
        CaseStatus.TOLERATED,
        CaseStatus.FAILING,
        CaseStatus.NOT_RUN,
        CaseStatus.QUARANTINED,
        CaseStatus.UNREACHED,
        CaseStatus.NOT_COMPARED,
    }
)


def gate_junit(
    decision: GateDecision, record: GateRecord, details: Mapping[CaseId, Detail]
) -> Parts:
    """The report; ``details`` are of a failed rollout of the head, where there is one.

    Cases stand in the order of their ids, so that the order never changes by itself.
    """
    namer = Namer()
    seconds = _seconds(record)
    cases = [_verdict(decision, record)]
    for row in sorted(decision.rows, key=lambda row: row.id):
        classname, name = namer(row.id)
        case = JunitCase(name, classname)
        place = record.places.get(row.id)
        case.file = short_id(place.file if place else row.id.partition("::")[0])
        if place is not None:
            case.line = place.line
        case.time = seconds.get(row.id, 0.0)
        add_properties(case, _properties(row))
        _judge(case, row, details.get(row.id))
        cases.append(case)
    heading = Heading(
        "pytest-evo", record.made, record.artifact, _facts(decision, record)
    )
    return pages(heading, cases)


def _verdict(decision: GateDecision, record: GateRecord) -> JunitCase:
    case = JunitCase("verdict", "evo.gate")
    case.file = short_id(record.artifact)
    case.time = record.seconds
    effect = effect_text(decision, record.policy.confidence)
    facts = [("evo.verdict", decision.verdict.value)]
    tolerated = sum(row.status is CaseStatus.TOLERATED for row in decision.rows)
    if tolerated:
        facts.append(("evo.tolerated", str(tolerated)))
    add_properties(case, facts)
    if decision.verdict is GateVerdict.PASSED:
        return case
    reasons = [reason.text for reason in decision.reasons]
    message = one_line("; ".join([headline(decision, record), *reasons]), MAX_MESSAGE)
    element: Any
    if decision.verdict is GateVerdict.REGRESSED:
        element = Failure(message, decision.verdict.value)
    elif decision.verdict is GateVerdict.INCOMPLETE or decision.exit_code:
        element = Error(message, decision.verdict.value)
    else:
        element = Skipped(message, "evo")
    element.text = clean("\n".join([*reasons, effect]), MAX_TRACE)
    append(case, element)
    return case


def _judge(case: JunitCase, row: CaseRow, detail: Detail | None) -> None:
    message = one_line(f"{row.status}, passes {runs_text(row)}", MAX_MESSAGE)
    if row.note:
        message = one_line(f"{message}: {row.note}", MAX_MESSAGE)
    phases = detail.phases if detail is not None else ()
    trace = clean("\n".join(p.longrepr for p in phases if p.longrepr), MAX_TRACE)
    element: Any
    if row.status in WORSE:
        element = Failure(message, "worse")
    elif row.status is CaseStatus.ERROR:
        element = Error(message, row.status.value)
    elif row.status in _SAYS_NOTHING:
        element = Skipped(message, "evo")
    else:
        return
    element.text = trace or None
    append(case, element)
    if detail is not None and row.status not in _SAYS_NOTHING:
        add_output(case, detail)


def _properties(row: CaseRow) -> list[tuple[str, str]]:
    found = [
        ("evo.status", row.status.value),
        ("evo.runs", str(row.head_n)),
        ("evo.passes", str(row.head_passes)),
        ("evo.baseline.runs", str(row.base_n)),
        ("evo.baseline.passes", str(row.base_passes)),
    ]
    for name, value in (
        ("evo.score", row.head),
        ("evo.baseline", row.base),
        ("evo.delta", row.difference),
        ("evo.p", row.p),
    ):
        if value is not None:
            found.append((name, f"{value:.6f}"))
    return found


def _facts(decision: GateDecision, record: GateRecord) -> list[tuple[str, str]]:
    found = [
        ("evo.schema", "1"),
        ("evo.verdict", decision.verdict.value),
        ("evo.against", against(record)),
        ("evo.artifact.sha256", record.head_tree),
    ]
    effect = decision.overall
    if effect is not None:
        found += [
            ("evo.score.mean", f"{effect.head:.6f}"),
            ("evo.baseline.mean", f"{effect.base:.6f}"),
            ("evo.delta.ci", f"{effect.low:+.6f} {effect.high:+.6f}"),
        ]
    return found


def _seconds(record: GateRecord) -> dict[CaseId, float]:
    """The mean time of the head's rollouts of each case."""
    spent: dict[CaseId, list[float]] = {}
    for seen in record.observations:
        if seen.arm.value == "head":
            spent.setdefault(seen.case, []).append(seen.seconds)
    return {case: sum(times) / len(times) for case, times in spent.items()}
