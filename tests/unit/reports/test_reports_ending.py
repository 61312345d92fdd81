from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
from report_runs import CASES
from report_runs import grown_run
from report_runs import rollout

from pytest_evo.events import CandidateRecorded
from pytest_evo.events import RunStopped
from pytest_evo.models import Claim
from pytest_evo.models import Split
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.models import Usage
from pytest_evo.reports.ending import claim_lines
from pytest_evo.reports.ending import cost_lines
from pytest_evo.reports.ending import diff_lines
from pytest_evo.reports.ending import is_gain
from pytest_evo.reports.ending import Line
from pytest_evo.reports.ending import lineage
from pytest_evo.reports.ending import next_commands
from pytest_evo.reports.ending import result_lines
from pytest_evo.reports.ending import short_claim
from pytest_evo.reports.ending import table_lines
from pytest_evo.reports.ending import warning_lines
from pytest_evo.reports.ending import worse_lines
from pytest_evo.reports.model import RunReport

ANY_TEXT = st.text(st.characters(codec=None, categories=None))


def texts(lines) -> list[str]:
    return [line.text for line in lines]


def with_claim(run: RunReport, **changes) -> RunReport:
    claim = replace(run.final.claim, **changes)
    return replace(run, final=replace(run.final, claim=claim))


@pytest.mark.parametrize(
    ("in_sample", "difference", "low", "gain"),
    [
        (False, 0.2, 0.01, True),
        (False, 0.2, 0.0, False),
        (False, 0.2, -0.1, False),
        (True, 0.2, -0.1, True),
        (True, 0.0, 0.0, False),
    ],
)
def test_gain_is_what_the_interval_puts_above_nothing(in_sample, difference, low, gain):
    claim = Claim(Split.TEST, in_sample, 9, 0.1, 0.3, difference, low, 0.5)
    assert is_gain(claim) is gain


def test_table_is_aligned_and_marks_the_winner():
    lines = table_lines(grown_run())
    assert texts(lines) == [
        "candidate  parent  status    train    val    gain   test  rollouts     usd",
        "c0001 *    c0000   accepted  1.000  1.000  +0.500  0.500         6  0.0600",
        "c0000      -       start     0.500  0.500       -  0.500         6       -",
        "c0002      c0001   rejected  0.000      -       -      -         1       -",
    ]
    assert [line.style for line in lines] == ["bold", "green", "", ""]


def test_table_keeps_the_start_when_it_is_cut():
    run = grown_run()
    more = tuple(
        CandidateRecorded(f"c{n:04}", START, "t", Status.ACCEPTED, iteration=n)
        for n in range(3, 30)
    )
    rollouts = {
        **run.rollouts,
        **{one.id: [rollout(one.id, case) for case in CASES] for one in more},
    }
    lines = texts(
        table_lines(
            replace(run, candidates=run.candidates + more, rollouts=rollouts), limit=5
        )
    )
    assert len(lines) == 7
    assert lines[1].startswith("c0001 *")
    assert lines[5].startswith("c0000")
    assert lines[6] == "and 25 more"


def test_claim_is_paired_with_interval_and_labelled():
    run = grown_run()
    assert texts(claim_lines(run)) == [
        "start 0.500 -> winner 0.750 on test, 2 cases: +0.250, 95 % interval "
        "[-0.100, +0.600], paired"
    ]
    assert claim_lines(run)[0].style == "yellow"
    assert claim_lines(with_claim(run, low=0.1))[0].style == "green"
    partial = with_claim(run, unmeasured=3, budget="usd")
    (line,) = texts(claim_lines(partial))
    assert line.endswith(", paired, PARTIAL: --budget-usd did not pay for 3 cases")
    in_sample = claim_lines(with_claim(run, low=0.1, in_sample=True))[0]
    assert in_sample.text.endswith(", paired, IN-SAMPLE, biased upward by selection")
    assert in_sample.style == "yellow"


def test_claim_in_a_list_of_runs_is_short():
    claim = grown_run().final.claim
    assert short_claim(claim) == "0.500 -> 0.750 on test (+0.250)"
    in_sample = replace(claim, in_sample=True)
    assert short_claim(in_sample) == "0.500 -> 0.750 on test (+0.250, in-sample)"


def test_claim_is_not_made_without_a_measurement_or_a_gain():
    run = grown_run()
    assert "not measured" in claim_lines(replace(run, final=None))[0].text
    stays = replace(run, final=None, stop=replace(run.stop, winner=START))
    assert "the start stays" in claim_lines(stays)[0].text


def test_worse_cases_are_listed_and_counted():
    assert texts(worse_lines(grown_run())) == [
        "worse on 1 case:",
        f"  {CASES[5].id}: 1.000 -> 0.000",
    ]
    many = with_claim(grown_run(), worse=tuple(f"t.py::t{n}" for n in range(14)))
    assert texts(worse_lines(many))[-1] == "  and 4 more"


def test_falling_audit_metric_is_warned_about_only_with_a_rising_score():
    run = with_claim(grown_run(), audit={"polite": (0.9, 0.6), "short": (0.1, 0.2)})
    assert texts(warning_lines(run)) == [
        "warning: audit metric polite fell from 0.900 to 0.600 while the score rose"
    ]
    assert warning_lines(with_claim(run, difference=-0.1)) == []


def test_diff_lines_are_styled_and_escaped():
    diff = "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new \x1b[31m[red]\x00\n ctx\n"
    assert diff_lines(diff) == [
        Line("--- a/x", "bold"),
        Line("+++ b/x", "bold"),
        Line("@@ -1 +1 @@", "cyan"),
        Line("-old", "red"),
        Line("+new \\x1b[31m[red]\\x00", "green"),
        Line(" ctx"),
    ]
    assert texts(diff_lines(diff, limit=2))[-1] == "... 4 more lines: pytest-evo diff"


def test_cost_lines_show_every_role_and_never_a_made_up_price():
    usage = {
        "proposer": Usage(2, 1_000, 900, 500, None, 12.0),
        "suite": Usage(1, 1, 0, 1, 0.5, 0.2),
    }
    assert texts(cost_lines(grown_run(usage=usage))) == [
        "rollouts: 13 (baseline 6, child 7)",
        "model calls by  calls  tokens  cached  seconds"
        "                                usd",
        "suite               1       2       0      0.2"
        "                             0.5000",
        "proposer            2   1,500     900     12.0"
        "                      unknown price",
        "all                 3   1,502     900     12.2"
        "  0.5000 + 2 calls of unknown price",
    ]


def test_a_single_role_is_not_added_up():
    usage = {"suite": Usage(6, 60, 0, 30, 0.06), "proposer": Usage()}
    assert texts(cost_lines(grown_run(usage=usage)))[1:] == [
        "model calls by  calls  tokens  cached  seconds     usd",
        "suite               6      90       0      0.0  0.0600",
    ]


def test_next_commands_fit_the_state_of_the_run():
    run = grown_run()
    assert next_commands(run) == ["pytest-evo apply last", "pytest-evo show last"]
    assert next_commands(run, look="git diff")[0] == "git diff"
    stopped = replace(run, stop=replace(run.stop, complete=False))
    assert "pytest --evolve --evo-resume=last" in next_commands(stopped)
    nothing = replace(run, final=None, stop=replace(run.stop, winner=START))
    assert next_commands(nothing, "r1") == ["pytest-evo show r1"]


def test_lineage_has_one_line_per_iteration_with_its_chain():
    assert list(lineage(grown_run())) == [
        "   1  c0000 > c0001: accepted c0001; 0 rollouts; gain",
        "   2  c0001 > c0002: nothing accepted; 0 rollouts; no gain",
    ]


def test_result_of_a_run_that_never_finished_its_baseline_is_shown():
    run = RunReport("r", "", "prompts", (), (), {})
    assert "the run has not ended, or it was killed" in texts(result_lines(run))


@settings(max_examples=50)
@given(ANY_TEXT)
def test_result_lines_are_safe_whatever_candidates_wrote(text):
    run = grown_run(diff=f"+{text}\n")
    run = with_claim(run, worse=(text,), audit={text: (1.0, 0.0)})
    run = replace(run, stop=replace(run.stop, detail=text))
    for line in result_lines(run, ascii_only=True):
        assert line.text.isascii()
        assert line.text.isprintable()


def test_budget_that_ended_the_measurement_is_in_what_to_type_next():
    run = grown_run()
    partial = with_claim(run, unmeasured=3, budget="usd")
    assert "pytest --evolve --budget-usd=MORE" in next_commands(partial)
    stop = RunStopped("budget: tokens", "", "c0001", 3, 9, {}, complete=False)
    commands = next_commands(replace(run, final=None, stop=stop))
    assert "pytest --evolve --evo-resume=last --budget-tokens=MORE" in commands
