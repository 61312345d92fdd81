from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path

import junitparser
import pytest
from gate_sample import EVIL
from gate_sample import make_record
from gate_sample import MESSAGE

from pytest_evo.errors import UsageProblem
from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.values import Removed
from pytest_evo.gate_reports.annotations import workflow_commands
from pytest_evo.gate_reports.console import verdict_lines
from pytest_evo.gate_reports.junit import gate_junit
from pytest_evo.gate_reports.markdown import gate_markdown
from pytest_evo.gate_reports.metrics import gate_metrics
from pytest_evo.gate_reports.publish import publish_gate
from pytest_evo.models import Detail
from pytest_evo.models import Phase

UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e]")


def shown(record: GateRecord) -> list[str]:
    return [line.text for line in verdict_lines(record.decision(), record)]


# -- GitHub ------------------------------------------------------------------------


def test_commands_are_one_line_each_and_nothing_in_them_begins_another() -> None:
    record = make_record(files=["a:b,c%0A\n::error::x.md"])
    commands = workflow_commands(record.decision(), record)
    assert len(commands) == 2
    for command in commands:
        assert command.startswith("::error file=art/")
        assert "\n" not in command
        assert "\r" not in command
        # the runner knows these three escapes; every other percent is one of ours
        assert not re.search(r"%(?!25|3A|2C|0A|0D)", command)
        properties = command[2:].partition("::")[0]
        assert re.fullmatch("error file=[^,]*,title=[^,]*", properties)


def test_annotated_files_are_named_as_in_the_repository() -> None:
    record = replace(make_record(), prefix="services/desk/")
    (first, _) = workflow_commands(record.decision(), record)
    assert first.startswith("::error file=services/desk/art/prompts/a.md,")


def test_at_most_ten_commands_and_the_first_says_how_many_more() -> None:
    record = make_record([f"t.py::test_{n}" for n in range(40)])
    commands = workflow_commands(record.decision(), record)
    assert len(commands) == 10
    assert "31 more cases" in commands[0]


def test_what_passed_annotates_nothing_and_what_is_open_only_warns() -> None:
    record = make_record([])
    assert workflow_commands(record.decision(), record) == []
    record = replace(make_record([]), problems=("the workers were lost",))
    (command,) = workflow_commands(record.decision(), record)
    assert command.startswith("::error ")
    assert "the workers were lost" in command


# -- Markdown ----------------------------------------------------------------------


def test_markdown_shows_names_and_messages_as_code_only() -> None:
    record = make_record(notes=[MESSAGE], removed=[Removed(EVIL, True)])
    text = gate_markdown(record.decision(), record)
    assert "\n::error" not in text
    assert not UNSAFE.search(text.replace("\n", ""))
    outside = re.sub(r"(`+).*?\1", "", text)
    assert "@everyone" not in outside
    assert "<b>" not in outside
    assert "<script>" not in outside
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == 1
    assert len(re.findall(r"(?<!\\)\|", rows[0])) == 7


@pytest.mark.parametrize("count", [1, 200, 3_000])
def test_markdown_fits_a_comment(count: int) -> None:
    names = [f"t.py::test[{n:05}{'x' * 300}]" for n in range(count)]
    record = make_record(names, removed=[Removed(name + "y", True) for name in names])
    text = gate_markdown(record.decision(), record)
    assert len(text) < 65_536
    assert text.startswith("## ")


def test_nothing_that_changed_is_said_first() -> None:
    record = replace(make_record([]), nothing_run=True)
    record = replace(
        record,
        observations=(),
        cases=tuple(replace(case, reached=False) for case in record.cases),
    )
    assert record.decision().exit_code == 0
    assert "nothing that any case reaches" in gate_markdown(record.decision(), record)
    assert shown(record)[0] == "gate: passed: nothing that any case reaches has changed"


# -- terminal ----------------------------------------------------------------------


def test_terminal_shows_what_could_act_on_it_as_escapes() -> None:
    lines = shown(make_record(notes=[MESSAGE], removed=[Removed(EVIL, True)]))
    assert not any(UNSAFE.search(line) for line in lines)


def test_terminal_lines_are_no_workflow_commands() -> None:
    name = "::add-mask::x.py::test_it"
    record = make_record(
        [name], notes=["##[add-path]/tmp"], removed=[Removed(name, True)]
    )
    for line in shown(record):
        assert not line.lstrip().startswith("::")
        assert "##[" not in line


def test_table_is_bounded_and_worst_first() -> None:
    record = make_record([f"t.py::test_{n}" for n in range(500)], same=50)
    lines = shown(record)
    assert len(lines) < 60
    assert any("470 more" in line for line in lines)
    assert not any("test_same" in line for line in lines)


def test_cases_that_were_not_run_are_counted_not_listed() -> None:
    record = make_record([f"t.py::test_{n}" for n in range(20)], same=0)
    some = tuple(row for row in record.observations if row.case < "t.py::test_15")
    record = replace(record, observations=some, stopped="plainly worse")
    lines = shown(record)
    left = 20 - len({row.case for row in some})
    assert f"{left} cases not run: plainly worse" in lines
    assert not any("not run  " in line for line in lines)
    record = replace(make_record([]), stopped="the budget is spent")
    assert "ended early: the budget is spent" in shown(record)


def test_removed_cases_say_which_option_lets_them_go() -> None:
    record = make_record([], removed=[Removed("t.py::gone", True)])
    assert record.decision().exit_code == 1
    assert any("--evo-accept-removed" in line for line in shown(record))
    assert record.with_policy(accept_removed=True).decision().exit_code == 0


# -- JUnit -------------------------------------------------------------------------


def test_junit_is_read_back_by_others(tmp_path: Path) -> None:
    record = make_record(same=3, quarantined=EVIL)
    phases = (Phase("call", "failed", 0.1, MESSAGE, "trace \x1b[31m\x00"),)
    (page,) = gate_junit(record.decision(), record, {EVIL: Detail(phases)})
    path = tmp_path / "junit.xml"
    path.write_bytes(page)
    suite = ElementTree.parse(path).getroot()[0]
    assert suite.get("tests") == "5"
    assert next(case.get("name") for case in suite.iter("testcase")) == "verdict"
    read = junitparser.JUnitXml.fromfile(str(path))
    assert read.tests == 5


@pytest.mark.parametrize(
    ("worse", "element"), [([EVIL], "failure"), ([], None)], ids=["worse", "passed"]
)
def test_junit_fails_where_the_gate_does(worse: list[str], element: str | None) -> None:
    record = make_record(worse)
    (page,) = gate_junit(record.decision(), record, {})
    suite = ElementTree.fromstring(page)[0]
    failed = [
        case for case in suite.iter("testcase") if case.find("failure") is not None
    ]
    assert bool(failed) is (element == "failure")
    assert len(failed) == (2 if worse else 0)


def test_tolerated_case_is_said_everywhere_and_fails_nothing() -> None:
    record = make_record(["t.py::test_worse"]).with_policy(tolerance=0.5)
    decision = record.decision()
    assert decision.exit_code == 0
    for text in ("\n".join(shown(record)), gate_markdown(decision, record)):
        assert "1 case came out worse and is tolerated" in text.replace("\\", "")
        assert "worse, tolerated" in text
    (page,) = gate_junit(decision, record, {})
    suite = ElementTree.fromstring(page)[0]
    assert not list(suite.iter("failure"))
    facts = {p.get("name"): p.get("value") for p in suite.iter("property")}
    assert facts["evo.tolerated"] == "1"
    assert "tolerated" in str(next(suite.iter("skipped")).get("message"))


def test_junit_is_an_error_where_nothing_could_be_measured() -> None:
    record = replace(make_record([]), problems=("the workers were lost",))
    (page,) = gate_junit(record.decision(), record, {})
    verdict = next(ElementTree.fromstring(page).iter("testcase"))
    assert verdict.find("error") is not None


# -- figures -----------------------------------------------------------------------


def test_metrics_have_the_same_names_whatever_the_verdict() -> None:
    def names(record: GateRecord) -> set[str]:
        text = gate_metrics(record.decision(), record)
        assert text.endswith("# EOF\n")
        return {line.rpartition(" ")[0] for line in text.splitlines() if line[0] != "#"}

    assert names(make_record()) == names(make_record([]))


# -- files -------------------------------------------------------------------------


def test_everything_is_written_and_the_summary_is_added(tmp_path: Path) -> None:
    record = make_record()
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    variables = {"GITHUB_STEP_SUMMARY": str(summary), "GITHUB_ACTIONS": "true"}
    done = publish_gate(
        record.decision(), record, tmp_path / "out", details={}, environment=variables
    )
    assert {path.name for path in done.files} == {
        "junit.xml",
        "summary.md",
        "metrics.txt",
        "gate.json",
    }
    assert summary.read_text().startswith("before\n## ")
    assert len(done.commands) == 2
    data = json.loads((tmp_path / "out" / "gate.json").read_text())
    assert data["decision"] == {
        "verdict": "regressed",
        "exit_code": 1,
        "reasons": [reason.text for reason in record.decision().reasons],
    }


def test_a_summary_that_would_be_dropped_is_left_alone(tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("x" * 999_999)
    record = make_record()
    publish_gate(
        record.decision(),
        record,
        tmp_path / "out",
        details={},
        environment={"GITHUB_STEP_SUMMARY": str(summary)},
    )
    assert summary.stat().st_size == 999_999


def test_outside_of_github_nothing_is_annotated(tmp_path: Path) -> None:
    record = make_record()
    done = publish_gate(
        record.decision(), record, tmp_path / "out", details={}, environment={}
    )
    assert done.commands == ()


def test_reports_that_cannot_be_written_say_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("a file")
    record = make_record()
    with pytest.raises(UsageProblem, match="--evo-reports=DIR"):
        publish_gate(
            record.decision(), record, tmp_path / "out", details={}, environment={}
        )
