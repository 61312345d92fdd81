"""JUnit XML: one report per candidate, one of the winner, one leaderboard.

Every report comes as parts, because some readers refuse more than 5,000 cases or 25 MB
in a file; nearly always it is one part. The shape is pytest's own (``xunit2``), with
properties first and at most one failure, error or skip per case.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from datetime import datetime
from datetime import UTC
from typing import Any
from typing import Literal
from typing import TypeAlias

from junitparser import Attr
from junitparser import Error
from junitparser import Failure
from junitparser import FloatAttr
from junitparser import IntAttr
from junitparser import Properties
from junitparser import Property
from junitparser import Skipped
from junitparser import SystemErr
from junitparser import SystemOut
from junitparser import xunit2

from pytest_evo.models import CandidateId
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import EPSILON
from pytest_evo.models import Outcome
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.reports.junit_names import Namer
from pytest_evo.reports.model import case_results
from pytest_evo.reports.model import CaseResult
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
Parts: TypeAlias = tuple[bytes, ...]

MAX_CASES = 5_000
MAX_BYTES = 25_000_000
MAX_MESSAGE = 500
MAX_TRACE = 32_768
MAX_OUTPUT = 4_096
NOT_RUN = "not run on the winner"


class _Seconds(FloatAttr):
    """Plain decimals: readers do not take ``1e-07``, ``nan`` or ``inf``."""

    def __set__(self, instance: Any, value: float) -> None:  # type: ignore[override]
        if not math.isfinite(value) or value < 0:
            value = 0.0
        Attr.__set__(self, instance, f"{value:.6f}")


class _Case(xunit2.TestCase):
    time = _Seconds()
    file = Attr()
    line = IntAttr()


class _Suite(xunit2.TestSuite):
    time = _Seconds()


class _Root(xunit2.JUnitXml):
    time = _Seconds()
    timestamp = Attr()
    testsuite = _Suite


def candidate_report(
    run: RunReport, candidate: CandidateId, mode: Mode = "failures"
) -> Parts:
    """The cases that a candidate ran, under class names of its own.

    With mode ``skipped`` whatever failed is written as skipped, for pipelines that
    read every report into one check.
    """
    name = short_id(f"evo.{candidate}")
    testcases = Namer(prefix=f"{name}.")
    start = scores(run, START)
    built = [
        _testcase(run, result, testcases, start, mode)
        for result in case_results(run, candidate)
    ]
    return _parts(run, name, _candidate_properties(run, candidate), built, candidate)


def winner_report(run: RunReport, *, max_cases: int = MAX_CASES) -> Parts:
    """The winner's cases under their plain class names, all cases of the suite.

    Cases that the winner never ran are skipped, so that the set of names stays the
    same from run to run.
    """
    namer = Namer()
    results = {result.case.id: result for result in case_results(run, run.winner)}
    start = scores(run, START)
    built = []
    for case in run.cases:
        result = results.get(case.id)
        if result is None:
            testcase = _named(case, namer)
            _append(testcase, Skipped(NOT_RUN, "pytest.skip"))
        else:
            testcase = _testcase(run, result, namer, start, "failures")
        built.append(testcase)
    properties = _candidate_properties(run, run.winner)
    return _parts(run, "pytest-evo", properties, built, None, max_cases)


def leaderboard_report(run: RunReport) -> Parts:
    """One testcase per candidate, best first; nothing in it is a failure."""
    namer = Namer()
    built = [_leader(run, one, namer) for one in standings(run)]
    properties = [("evo.schema", "1"), ("evo.run", run.id), ("evo.winner", run.winner)]
    return _parts(run, "evo.leaderboard", properties, built, None)


def _named(case: Case, namer: Namer) -> _Case:
    classname, name = namer(case.id)
    testcase = _Case(name, classname)
    testcase.file = short_id(case.file or case.id.partition("::")[0])
    testcase.time = 0.0
    return testcase


def _testcase(
    run: RunReport,
    result: CaseResult,
    namer: Namer,
    start: Mapping[CaseId, float],
    mode: Mode,
) -> _Case:
    testcase = _named(result.case, namer)
    testcase.time = result.seconds / max(1, result.runs)
    _add_properties(testcase, _case_properties(result, start))
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
    _append(testcase, verdict)
    if result.outcome is not Outcome.SKIPPED:
        _add_output(testcase, detail)
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


def _add_output(testcase: _Case, detail: Detail) -> None:
    # pytest's later phases repeat the sections of the earlier ones
    sections = dict.fromkeys(s for phase in detail.phases for s in phase.sections)
    for element, word in ((SystemOut, "stdout"), (SystemErr, "stderr")):
        texts = [text for title, text in sections if word in title and text.strip()]
        if texts:
            _append(testcase, element(clean("\n".join(texts), MAX_OUTPUT)))


def _case_properties(
    result: CaseResult, start: Mapping[CaseId, float]
) -> Iterable[tuple[str, str]]:
    yield "evo.split", result.case.split.value
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
    if status is Status.ACCEPTED:
        return "better"
    if status is not Status.REJECTED or gain is None or abs(gain) <= EPSILON:
        return "same"
    return "undecided" if gain > 0 else "worse"


def _leader(run: RunReport, one: Standing, namer: Namer) -> _Case:
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
    testcase = _Case(name, classname)
    testcase.time = one.seconds
    properties = [("evo.candidate", record.id), ("evo.status", record.status.value)]
    if record.parent:
        properties.append(("evo.parent", record.parent))
    properties.append(("evo.rollouts", str(one.rollouts)))
    _add_properties(testcase, [*properties, *_means(one)])
    if record.status not in (Status.START, Status.ACCEPTED):
        reason = reason_of(run, record) or record.status.value
        message = one_line(f"{record.status.value}: {reason}", MAX_MESSAGE)
        _append(testcase, Skipped(message, "evo"))
    return testcase


def _add_properties(testcase: _Case, pairs: Iterable[tuple[str, str]]) -> None:
    properties = _container(Properties)
    for name, value in pairs:
        properties.add_property(Property(one_line(name, 100), one_line(value, 1_000)))
    _append(testcase, properties)


# junitparser has types, but not on its containers and not on append


def _container(kind: Any, *arguments: str) -> Any:
    return kind(*arguments)


def _append(parent: Any, child: Any) -> None:
    parent.append(child)


def _number(value: float) -> str:
    return f"{value:.6f}" if math.isfinite(value) else "0.000000"


def timestamp(created: str) -> str:
    """ISO 8601 to the second with an offset; the epoch where there is no time."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        moment = datetime.fromtimestamp(0, UTC)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.isoformat(timespec="seconds")


def _parts(
    run: RunReport,
    name: str,
    properties: Sequence[tuple[str, str]],
    testcases: Sequence[_Case],
    suite_id: str | None,
    max_cases: int = MAX_CASES,
) -> Parts:
    chunks = [
        testcases[first : first + max_cases]
        for first in range(0, len(testcases), max_cases)
    ] or [[]]
    pages: list[bytes] = []
    while chunks:
        chunk = chunks.pop(0)
        title = name if not pages else f"{name}.part{len(pages) + 1}"
        page = _page(run, title, properties, chunk, suite_id)
        if len(page) > MAX_BYTES and len(chunk) > 1:
            half = len(chunk) // 2
            chunks[:0] = [chunk[:half], chunk[half:]]
        else:
            pages.append(page)
    return tuple(pages)


def _page(
    run: RunReport,
    name: str,
    properties: Sequence[tuple[str, str]],
    testcases: Sequence[_Case],
    suite_id: str | None,
) -> bytes:
    suite = _container(_Suite, name)
    if suite_id is not None:
        suite.id = short_id(suite_id)
    suite.timestamp = timestamp(run.created)
    suite.file = short_id(run.artifact)
    for key, value in properties:
        suite.add_property(one_line(key, 100), one_line(value, 1_000))
    suite.add_testcases(testcases)
    root = _container(_Root, name)
    root.timestamp = suite.timestamp
    root.append(suite)
    root.update_statistics()
    target = io.BytesIO()
    root.write(target)
    return target.getvalue()
