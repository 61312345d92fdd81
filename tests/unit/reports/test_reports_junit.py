from __future__ import annotations

import importlib.util
import io
import re
import sys
import xml.etree.ElementTree as ET

import junitparser
import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from report_runs import CASES
from report_runs import F
from report_runs import failed_detail
from report_runs import grown_run
from report_runs import P
from report_runs import rollout

from pytest_evo.events import CandidateRecorded
from pytest_evo.models import Case
from pytest_evo.models import Detail
from pytest_evo.models import Metric
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Purpose
from pytest_evo.models import Split
from pytest_evo.models import Status
from pytest_evo.reports import junit_xml
from pytest_evo.reports.junit import candidate_report
from pytest_evo.reports.junit import leaderboard_report
from pytest_evo.reports.junit import winner_report
from pytest_evo.reports.junit_xml import timestamp

ANY_TEXT = st.text(st.characters(codec=None, categories=None))


def read(parts) -> ET.Element:
    """The suite of a one-part report, read by all parsers there are."""
    (page,) = parts
    root = ET.fromstring(page)
    assert root.tag == "testsuites"
    (suite,) = root
    parsed = junitparser.xunit2.JUnitXml.fromfile(io.BytesIO(page))
    assert parsed.tests == len(suite.findall("testcase"))
    for attribute, tag in (
        ("failures", "failure"),
        ("errors", "error"),
        ("skipped", "skipped"),
    ):
        assert int(suite.get(attribute)) == len(suite.findall(f"testcase/{tag}"))
    names = [(c.get("classname"), c.get("name")) for c in suite.iter("testcase")]
    assert len(set(names)) == len(names)
    if importlib.util.find_spec("lxml"):
        from lxml import etree

        assert etree.fromstring(page).tag == "testsuites"
    return suite


def one_case(*rollouts, detail=None, mode="failures") -> ET.Element:
    run = grown_run(
        rollouts={"c0002": list(rollouts)}, detail=lambda _: detail or failed_detail()
    )
    (case,) = read(candidate_report(run, "c0002", mode)).findall("testcase")
    return case


def properties(element: ET.Element) -> dict[str, str]:
    return {p.get("name"): p.get("value") for p in element.findall("properties/*")}


def test_candidate_report_lists_what_the_candidate_ran():
    suite = read(candidate_report(grown_run(), "c0001"))
    assert suite.get("name") == "evo.c0001"
    assert suite.get("id") == "c0001"
    assert suite.get("timestamp") == "2026-01-01T00:00:00+00:00"
    assert (suite.get("tests"), suite.get("failures")) == ("6", "1")
    first = suite.find("testcase")
    assert first.get("classname") == "evo.c0001.tests.evals.test_a.TestIt"
    assert first.get("name") == "test_x[0]"
    assert first.get("file") == "tests/a.py"
    assert first.get("time") == "0.250000"
    assert properties(first)["evo.baseline"] == "0.000000"
    assert properties(first)["evo.delta"] == "+1.000000"


def test_candidate_report_says_what_the_candidate_is():
    found = properties(read(candidate_report(grown_run(), "c0001")))
    assert found["evo.parent"] == "c0000"
    assert found["evo.artifact.sha256"] == "t1"
    assert found["evo.status"] == "accepted"
    assert found["evo.verdict"] == "better"
    assert found["evo.score.mean.val"] == "1.000000"
    assert found["evo.cost.usd"] == "0.060000"
    assert found["evo.seed"] == "3"


def test_properties_come_first_and_one_verdict_follows():
    case = one_case(
        rollout("c0002", outcome=F),
        detail=failed_detail(sections=[("Captured stdout call", "said")]),
    )
    assert [child.tag for child in case] == ["properties", "failure", "system-out"]
    assert case.get("line") == "7"
    failure = case.find("failure")
    assert failure.get("message") == "boom"
    assert failure.text == "trace\nE  boom"
    assert case.find("system-out").text == "said"


@pytest.mark.parametrize(
    ("outcome", "tag", "kind"),
    [
        (Outcome.FAILED, "failure", "failed"),
        (Outcome.MISSING, "failure", "missing"),
        (Outcome.ERROR, "error", "error"),
        (Outcome.CRASHED, "error", "crashed"),
        (Outcome.TIMEOUT, "error", "timeout"),
        (Outcome.LOST, "error", "lost"),
        (Outcome.SKIPPED, "skipped", "pytest.skip"),
    ],
)
def test_each_outcome_has_its_element(outcome, tag, kind):
    case = one_case(rollout("c0002", outcome=outcome), detail=Detail())
    (verdict,) = (child for child in case if child.tag != "properties")
    assert (verdict.tag, verdict.get("type")) == (tag, kind)
    assert verdict.get("message")


def test_violation_is_a_failure_of_its_own_kind():
    case = one_case(rollout("c0002", outcome=P, violation="wrote into conftest.py"))
    assert case.find("failure").get("type") == "violation"
    assert case.find("failure").get("message") == "wrote into conftest.py"


def test_skipped_mode_writes_no_failure_and_no_error():
    for outcome in (F, Outcome.CRASHED, Outcome.MISSING):
        case = one_case(rollout("c0002", outcome=outcome), mode="skipped")
        assert case.find("skipped").get("message") == "failed: boom"
        assert case.find("failure") is None
        assert case.find("error") is None


def test_repeats_become_one_testcase():
    repeats = [rollout("c0002", outcome=o, repeat=n) for n, o in enumerate([F, P, P])]
    case = one_case(*repeats)
    assert case.find("failure") is None
    assert properties(case)["evo.runs"] == "3"
    assert properties(case)["evo.passes"] == "2"
    assert properties(case)["evo.score"] == "0.666667"
    assert one_case(*repeats[:2]).find("failure") is not None


def test_only_the_last_attempt_of_a_retried_rollout_counts():
    case = one_case(
        rollout("c0002", outcome=Outcome.CRASHED), rollout("c0002", attempt=1)
    )
    assert case.find("error") is None
    assert properties(case)["evo.runs"] == "1"


def test_infrastructure_errors_do_not_hide_what_was_measured():
    case = one_case(
        rollout("c0002", outcome=Outcome.TIMEOUT), rollout("c0002", outcome=P, repeat=1)
    )
    assert case.find("error") is None
    assert properties(case)["evo.score"] == "1.000000"


def test_probe_rollouts_are_not_the_candidate():
    run = grown_run(rollouts={"c0000": [rollout(purpose=Purpose.PROBE)]})
    assert read(candidate_report(run, "c0000")).findall("testcase") == []


def test_named_metrics_become_properties():
    case = one_case(rollout("c0002", metrics=(Metric("ndcg@10", 0.5),)))
    assert properties(case)["evo.score.ndcg@10"] == "0.500000"


def test_winner_report_has_plain_names_and_every_case():
    run = grown_run()
    rollouts = {**run.rollouts, "c0001": run.rollouts["c0001"][1:]}
    suite = read(winner_report(grown_run(rollouts=rollouts)))
    cases = suite.findall("testcase")
    assert [c.get("classname") for c in cases] == ["tests.evals.test_a.TestIt"] * 6
    assert cases[0].find("skipped").get("message") == "not run on the winner"
    assert cases[5].find("failure") is not None


def test_cases_without_a_score_at_the_baseline_are_told_and_no_part_of_the_run():
    closed = Case("tests/a.py::test_closed", Split.TRAIN)
    run = grown_run()
    said = [rollout(case=closed, outcome=Outcome.ERROR, purpose=Purpose.BASELINE)]
    told = grown_run(
        rollouts={**run.rollouts, "c0000": [*run.rollouts["c0000"], *said]},
        left_out=((closed.id, "error at the baseline"),),
    )
    start = read(candidate_report(told, "c0000")).findall("testcase")[-1]
    assert start.find("error").get("message") == "boom"
    assert properties(start)["evo.split"] == "none"
    assert len(read(candidate_report(told, "c0001")).findall("testcase")) == 6
    winner = read(winner_report(told)).findall("testcase")[-1]
    assert winner.get("name") == "test_closed"
    assert "error at the baseline" in winner.find("skipped").get("message")


def test_leaderboard_has_no_failures_and_the_best_first():
    suite = read(leaderboard_report(grown_run()))
    names = [case.get("name") for case in suite.findall("testcase")]
    assert names == [
        "c0001 val 1.0000 (+0.5000) $0.06 winner",
        "c0000 val 0.5000",
        "c0002 train 0.0000 on 1",
    ]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    skipped = suite.findall("testcase/skipped")
    assert [s.get("message") for s in skipped] == ["rejected: no gain"]


@pytest.mark.parametrize(
    ("node_id", "classname", "name"),
    [
        ("tests/a.py::test_x", "tests.a", "test_x"),
        ("tests/a.py::T::U::test_x[a::b]", "tests.a.T.U", "test_x[a::b]"),
        ("tests/a[1]/b.py::test_x[/.py]", "tests.a[1].b", "test_x[/.py]"),
        ("evals/a.yml::case one", "evals.a.yml", "case one"),
        ("evals/whole.txt", "evals.whole.txt", "whole.txt"),
    ],
)
def test_names_are_those_of_pytest(node_id, classname, name):
    case = Case(node_id, Split.VAL)
    run = grown_run(cases=(case,), rollouts={"c0001": [rollout("c0001", case)]})
    found = read(winner_report(run)).find("testcase")
    assert (found.get("classname"), found.get("name")) == (classname, name)


def test_names_that_collide_or_are_too_long_stay_apart():
    ids = ["a/b.py::t", "a.b.py::t", "a/b.py::t[" + "x" * 400 + "1]"]
    ids += ["a/b.py::t[" + "x" * 400 + "2]", "a/b.py::t[\x00]", "a/b.py::t[\x01]"]
    cases = tuple(Case(id_, Split.VAL) for id_ in ids)
    run = grown_run(cases=cases, rollouts={})
    found = [c.get("name") for c in read(winner_report(run)).findall("testcase")]
    assert len(found) == 6
    assert max(map(len, found)) == 250


@settings(max_examples=50, deadline=None)
@given(ANY_TEXT, ANY_TEXT, ANY_TEXT)
def test_hostile_text_anywhere_gives_readable_reports(name, message, output):
    case = Case(f"t/a.py::test_x[{name}]", Split.VAL, file=name)
    failed = rollout("c0001", case, F, metrics=(Metric(name, 0.5),))
    run = grown_run(
        cases=(case,),
        artifact=name,
        candidates=(
            CandidateRecorded("c0000", None, "t0", Status.START),
            CandidateRecorded("c0001", "c0000", "t1", Status.REJECTED, iteration=1),
        ),
        rollouts={"c0001": [failed]},
        detail=lambda _: failed_detail(
            message, output, [("Captured stderr call", output)]
        ),
    )
    for parts in (
        candidate_report(run, "c0001"),
        candidate_report(run, "c0001", "skipped"),
        winner_report(run),
        leaderboard_report(run),
    ):
        suite = read(parts)
        assert len(suite.findall("testcase")) in (1, 2)


def test_times_are_plain_decimals_whatever_was_measured():
    seconds = [1e-9, float("nan"), float("inf"), -1.0, 1e6]
    cases = CASES[:5]
    run = grown_run(
        rollouts={
            "c0001": [
                rollout("c0001", case, seconds=value)
                for case, value in zip(cases, seconds, strict=True)
            ]
        }
    )
    (page,) = candidate_report(run, "c0001")
    times = re.findall(rb'time="([^"]*)"', page)
    assert len(times) == 7
    assert [t for t in times if not re.fullmatch(rb"\d+\.\d{6}", t)] == []


def test_texts_are_capped():
    detail = failed_detail(
        "m" * 10_000, "t" * 1_000_000, [("Captured stdout call", "o" * 1_000_000)]
    )
    case = one_case(rollout("c0002", outcome=F), detail=detail)
    assert len(case.find("failure").get("message")) == 500
    assert len(case.find("failure").text) < 33_000
    assert len(case.find("system-out").text) < 4_200


def test_output_that_later_phases_repeat_is_written_once():
    section = ("Captured stdout setup", "hello\n")
    phases = (
        Phase("setup", "passed", 0, sections=(section,)),
        Phase("call", "failed", 0, "boom", "boom", (section,)),
    )
    case = one_case(rollout("c0002", outcome=F), detail=Detail(phases))
    assert case.find("system-out").text == "hello\n"


def test_details_of_passing_cases_are_not_read():
    def refuse(_):
        raise AssertionError("read a detail that is not shown")

    run = grown_run(
        rollouts={"c0001": [rollout("c0001", case) for case in CASES]}, detail=refuse
    )
    read(candidate_report(run, "c0001"))


@pytest.mark.parametrize("limit", ["MAX_CASES", "MAX_BYTES"])
def test_big_reports_come_in_parts(limit, monkeypatch):
    cases = tuple(Case(f"t/a.py::test_{n}", Split.VAL) for n in range(100))
    run = grown_run(
        cases=cases, rollouts={"c0001": [rollout("c0001", c) for c in cases]}
    )
    if limit == "MAX_BYTES":
        monkeypatch.setattr(junit_xml, limit, 15_000)
        parts = candidate_report(run, "c0001")
        assert max(map(len, parts)) <= 15_000
    else:
        parts = winner_report(run, max_cases=40)
    suites = [read((part,)) for part in parts]
    assert len(suites) >= 3
    assert sum(len(s.findall("testcase")) for s in suites) == 100
    assert len({s.get("name") for s in suites}) == len(suites)


def test_work_grows_with_the_cases_and_not_with_their_square():
    def calls(count: int) -> int:
        cases = tuple(Case(f"t/a.py::test_{n}", Split.VAL) for n in range(count))
        rollouts = {"c0001": [rollout("c0001", case, F) for case in cases]}
        run = grown_run(cases=cases, rollouts=rollouts)
        made = 0

        def count_call(frame: object, event: str, argument: object) -> None:
            nonlocal made
            made += event in ("call", "c_call")

        before = sys.getprofile()
        sys.setprofile(count_call)
        try:
            candidate_report(run, "c0001")
        finally:
            sys.setprofile(before)
        return made

    calls(10)
    assert calls(2_000) < 1.2 * 8 * calls(250)


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        ("2026-01-01T10:00:00.123456+02:00", "2026-01-01T10:00:00+02:00"),
        ("2026-01-01T10:00:00Z", "2026-01-01T10:00:00+00:00"),
        ("2026-01-01T10:00:00", "2026-01-01T10:00:00+00:00"),
        ("when?", "1970-01-01T00:00:00+00:00"),
    ],
)
def test_timestamp_has_an_offset(created, expected):
    assert timestamp(created) == expected


def test_line_of_another_file_is_not_written():
    phase = Phase("call", "failed", 0, "boom", "boom", file="tests/helper.py", line=3)
    case = one_case(rollout("c0002", outcome=F), detail=Detail((phase,)))
    assert case.get("line") is None
