"""JUnit XML: one report per candidate, one of the winner, one leaderboard.

Every report comes as parts, because some readers refuse more than 5,000 cases or 25 MB
in a file; nearly always it is one part. The shape is pytest's own (``xunit2``), with
properties first and at most one failure, error or skip per case.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Literal
from typing import TypeAlias

from junitparser import Error
from junitparser import Failure
from junitparser import Skipped
from junitparser import SystemErr
from junitparser import SystemOut

from pytest_evo.models import CandidateId
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import EPSILON
from pytest_evo.models import Outcome
from pytest_evo.models import Split
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.reports.junit_names import Namer
from pytest_evo.reports.junit_xml import add_properties
from pytest_evo.reports.junit_xml import append
from pytest_evo.reports.junit_xml import Heading
from pytest_evo.reports.junit_xml import JunitCase
from pytest_evo.reports.junit_xml import MAX_CASES
from pytest_evo.reports.junit_xml import pages
from pytest_evo.reports.junit_xml import Parts
from pytest_evo.reports.model import case_results
from pytest_evo.reports.model import CaseResult
from pytest_evo.reports.model import left_out_results
from pytest_evo.reports.model import reason_of
from pytest_evo.reports.model import RunReport
from pytest_evo.reports.model import scores
from pytest_evo.reports.model import Standing
from pytest_evo.reports.model import standing
from pytest_evo.reports.model import standings
from pytest_evo.reports.text import clean
from pytest_evo.reports.text import one_line
from pytest_evo.reports.text import short_id

Mode: TypeAlias = Literal["failures", "skipped"]

MAX_MESSAGE = 500
MAX_TRACE = 32_768
MAX_OUTPUT = 4_096
NOT_RUN = "not run on the winner"
LEFT_OUT = "left out of the run: {why}, so nothing can be measured against it"


def candidate_report(
    run: RunReport, candidate: CandidateId, mode: Mode = "failures"
) -> Parts:
    """The cases that a candidate ran, under class names of its own.

    The start's has the cases that were left out after the baseline, too.
    With mode ``skipped`` whatever failed is written as skipped, for pipelines that
    read every report into one check.
    """
    name = short_id(f"evo.{candidate}")
    testcases = Namer(prefix=f"{name}.")
    start = scores(run, START)
    built = [
        _testcase(run, result, testcases, start, mode)
        for result in (
            *case_results(run, candidate),
            *(left_out_results(run) if candidate == START else ()),
        )
    ]
    return _pages(run, name, _candidate_properties(run, candidate), built, candidate)


def winner_report(run: RunReport, *, max_cases: int = MAX_CASES) -> Parts:
    """The winner's cases under their plain class names, all cases of the suite.

    Cases that the winner never ran, and those that were left out after the baseline,
    are skipped, so that the set of names stays the same from run to run.
    """
    namer = Namer()
    results = {result.case.id: result for result in case_results(run, run.winner)}
    start = scores(run, START)
    built = []
    for case in run.cases:
        result = results.get(case.id)
        if result is None:
            testcase = _named(case, namer)
            append(testcase, Skipped(NOT_RUN, "pytest.skip"))
        else:
            testcase = _testcase(run, result, namer, start, "failures")
        built.append(testcase)
    for case_id, why in run.left_out:
        testcase = _named(Case(case_id, Split.TRAIN), namer)
        append(testcase, Skipped(LEFT_OUT.format(why=why), "pytest.skip"))
        built.append(testcase)
    properties = _candidate_properties(run, run.winner)
    return _pages(run, "pytest-evo", properties, built, None, max_cases)


def leaderboard_report(run: RunReport) -> Parts:
    """One testcase per candidate, best first; nothing in it is a failure."""
    namer = Namer()
    built = [_leader(run, one, namer) for one in standings(run)]
    properties = [("evo.schema", "1"), ("evo.run", run.id)]
    if run.has_start:
        properties.append(("evo.winner", run.winner))
    return _pages(run, "evo.leaderboard", properties, built, None)


def _named(case: Case, namer: Namer) -> JunitCase:
    classname, name = namer(case.id)
    testcase = JunitCase(name, classname)
    testcase.file = short_id(case.file or case.id.partition("::")[0])
    testcase.time = 0.0
    return testcase


def _testcase(
    run: RunReport,
    result: CaseResult,
    namer: Namer,
    start: Mapping[CaseId, float],
    mode: Mode,
) -> JunitCase:
    testcase = _named(result.case, namer)
    testcase.time = result.seconds / max(1, result.runs)
    add_properties(testcase, _case_properties(result, start))
    shown = result.shown
    if shown is None or (result.outcome is Outcome.PASSED and not result.violation):
        return testcase
    detail = run.detail(shown)
    # where it failed, unless that is in a helper: readers pair it with the test's file
    places = (p.line for p in detail.phases if p.file == testcase.file and p.line)
    line = next(places, None)
    if line is not None:
        testcase.line = line
    verdict = _verdict(result, detail)
    if mode == "skipped" and not isinstance(verdict, Skipped):
        text = verdict.text
        verdict = Skipped(one_line(f"failed: {verdict.message}", MAX_MESSAGE), "evo")
        verdict.text = text
    append(testcase, verdict)
    if result.outcome is not Outcome.SKIPPED:
        add_output(testcase, detail)
    return testcase


_ELEMENTS: dict[Outcome, tuple[type[Any], str, str]] = {
    Outcome.FAILED: (Failure, "failed", "the test failed"),
    Outcome.ERROR: (Error, "error", "set-up or teardown failed"),
    Outcome.TIMEOUT: (Error, "timeout", "killed after its time limit"),
    Outcome.CRASHED: (Error, "crashed", "the process died"),
    Outcome.LOST: (Error, "lost", "no result came back"),
    Outcome.MISSING: (Failure, "missing", "this candidate cannot collect the case"),
    Outcome.SKIPPED: (Skipped, "pytest.skip", "skipped"),
}


def _verdict(result: CaseResult, detail: Detail) -> Any:
    if result.violation:
        verdict = Failure(one_line(result.violation, MAX_MESSAGE), "violation")
        verdict.text = clean(result.violation, MAX_TRACE)
        return verdict
    element, kind, otherwise = _ELEMENTS[result.outcome]
    told = [p for p in detail.phases if p.outcome != "passed"] or detail.phases
    message = next((p.message for p in told if p.message.strip()), otherwise)
    verdict = element(one_line(message, MAX_MESSAGE) or otherwise, kind)
    trace = "\n".join(p.longrepr for p in told if p.longrepr)
    verdict.text = clean(trace, MAX_TRACE) or None
    return verdict


def add_output(testcase: JunitCase, detail: Detail) -> None:
    """Give a testcase what its rollout printed."""
    # pytest's later phases repeat the sections of the earlier ones
    sections = dict.fromkeys(s for phase in detail.phases for s in phase.sections)
    for element, word in ((SystemOut, "stdout"), (SystemErr, "stderr")):
        texts = [text for title, text in sections if word in title and text.strip()]
        if texts:
            append(testcase, element(clean("\n".join(texts), MAX_OUTPUT)))


def _case_properties(
    result: CaseResult, start: Mapping[CaseId, float]
) -> Iterable[tuple[str, str]]:
    yield "evo.split", "none" if result.left_out else result.case.split.value
    yield "evo.outcome", result.outcome.value
    yield "evo.runs", str(result.runs)
    yield "evo.passes", str(result.passes)
    if result.score is not None:
        yield "evo.score", _number(result.score)
        if result.case.id in start:
            before = start[result.case.id]
            yield "evo.baseline", _number(before)
            yield "evo.delta", f"{result.score - before:+.6f}"
        yield "dd_tags[evo.score]", _number(result.score)
    for name, value in result.metrics.items():
        yield short_id(f"evo.score.{name}", 100), _number(value)
    if result.usd:
        yield "evo.cost.usd", _number(result.usd)


def _candidate_properties(
    run: RunReport, candidate: CandidateId
) -> list[tuple[str, str]]:
    found = [("evo.schema", "1"), ("evo.run", run.id), ("evo.candidate", candidate)]
    record = run.candidate(candidate)
    if record is not None:
        figures = standing(run, record)
        if record.parent:
            found.append(("evo.parent", record.parent))
        found.append(("evo.artifact.sha256", record.tree))
        found.append(("evo.status", record.status.value))
        found.append(("evo.verdict", _judged(figures)))
        found += _means(figures)
    found.append(("evo.seed", str(run.seed)))
    found.append(("dd_tags[evo.candidate]", candidate))
    return found


def _means(one: Standing) -> Iterable[tuple[str, str]]:
    for split, mean in (
        ("val", one.val),
        ("test", one.test),
        ("train", one.train),
    ):
        if mean is not None:
            yield f"evo.score.mean.{split}", _number(mean)
    if one.usd:
        yield "evo.cost.usd", _number(one.usd)


def _judged(one: Standing) -> str:
    """Against its parent: better, same, worse, undecided or incomplete."""
    status, gain = one.record.status, one.parent_gain
    if status is Status.INCOMPLETE:
        return "incomplete"
    if status in (Status.ACCEPTED, Status.UNPROVEN):
        return "better"
    if status is not Status.REJECTED or gain is None or abs(gain) <= EPSILON:
        return "same"
    return "undecided" if gain > 0 else "worse"


def _leader(run: RunReport, one: Standing, namer: Namer) -> JunitCase:
    record = one.record
    words = [record.id]
    if one.val is not None:
        words.append(f"val {one.val:.4f}")
        if record.id != START and one.val_gain is not None:
            words.append(f"({one.val_gain:+.4f})")
    elif one.train is not None:
        words.append(f"train {one.train:.4f} on {one.train_cases}")
    if one.usd:
        words.append(f"${one.usd:.2f}")
    if record.id == run.winner:
        words.append("winner")
    classname, name = namer.unique("evo.leaderboard", " ".join(words), record.id)
    testcase = JunitCase(name, classname)
    testcase.time = one.seconds
    properties = [("evo.candidate", record.id), ("evo.status", record.status.value)]
    if record.parent:
        properties.append(("evo.parent", record.parent))
    properties.append(("evo.rollouts", str(one.rollouts)))
    add_properties(testcase, [*properties, *_means(one)])
    if record.status not in (Status.START, Status.ACCEPTED):
        reason = reason_of(run, record) or record.status.value
        message = one_line(f"{record.status.value}: {reason}", MAX_MESSAGE)
        append(testcase, Skipped(message, "evo"))
    return testcase


def _number(value: float) -> str:
    return f"{value:.6f}" if math.isfinite(value) else "0.000000"


def _pages(
    run: RunReport,
    name: str,
    properties: Sequence[tuple[str, str]],
    testcases: Sequence[JunitCase],
    suite_id: str | None,
    max_cases: int = MAX_CASES,
) -> Parts:
    heading = Heading(name, run.created, run.artifact, properties, suite_id)
    return pages(heading, testcases, max_cases)
