from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.reports.console import duration
from pytest_evo.reports.console import header_lines
from pytest_evo.reports.console import HeaderFacts
from pytest_evo.reports.console import progress_line
from pytest_evo.reports.console import ProgressState
from pytest_evo.reports.console import projection_line
from pytest_evo.reports.console import Spending

NOON = datetime(2026, 1, 1, 12, 0)


def facts(**changes) -> HeaderFacts:
    values = {
        "run": "20260101-120000-abcd",
        "artifact": "pipeline",
        "files": 3,
        "bytes": 4_321,
        "cases": {"train": 48, "val": 36, "test": 36},
        "cases_why": "marked evo",
        "split_why": "seeded hash",
        "proposer": "search (no model is set)",
        "isolation": "fork + mount",
        "isolation_why": "the artifact is read while a test runs",
        "budget": {"rollouts": "2,000", "time": "90 min"},
        "baseline": 120,
        "noise": 40,
        "reserve": 72,
        "proposals_left": 96,
        "validations_left": 30,
    }
    return HeaderFacts(**{**values, **changes})


def texts(lines) -> list[str]:
    return [line.text for line in lines]


def test_header_says_what_is_optimised_and_what_is_left_to_spend():
    assert texts(header_lines(facts(excluded=2, notes=("-x is ignored",)))) == [
        "pytest-evo",
        "run:       20260101-120000-abcd",
        "artifact:  pipeline (3 files, 4 kB)",
        "cases:     120 (marked evo): 48 train, 36 val, 36 test; 2 left out",
        "split:     seeded hash",
        "proposer:  search (no model is set)",
        "isolation: fork + mount: the artifact is read while a test runs",
        "budget:    rollouts 2,000, time 90 min",
        "of that:   baseline 120, noise 40, final measurement 72 = 232 rollouts",
        "leaves:    about 96 proposals and 30 validations",
        "note: -x is ignored",
    ]


@given(st.text(st.characters(codec=None, categories=None)))
def test_header_is_one_safe_line_per_fact_whatever_the_names_are(name):
    lines = header_lines(facts(artifact=name, warnings=(name,)), ascii_only=True)
    assert len(lines) == 11
    assert all(line.text.isascii() and line.text.isprintable() for line in lines)


def test_progress_line_shows_best_gain_and_what_is_left():
    state = ProgressState(
        phase="chain",
        iteration=7,
        best_val=0.75,
        start_val=0.5,
        rollouts_used=1_200,
        rollouts_limit=2_000,
        depth=2,
        in_flight=4,
        elapsed=200,
        accepted=3,
    )
    assert progress_line(state) == (
        "chain | iteration 7 | chain 2 | best val 0.750 (+0.250) | accepted 3 | "
        "1,200/2,000 rollouts, 800 left | 4 in flight | 3 min 20 s"
    )


def test_progress_line_before_anything_is_known_is_short():
    assert progress_line(ProgressState("baseline")) == (
        "baseline | accepted 0 | 0 rollouts | 0 s"
    )


def test_projection_names_the_limit_that_comes_first():
    spending = Spending(60.0, {"rollouts": (20, 120), "usd": (0.5, 1.0)})
    assert projection_line(spending, NOON) == (
        "at this pace the run ends in 1 min 00 s (12:01), limited by usd"
    )


def test_projection_over_days_has_a_date():
    spending = Spending(60.0, {"rollouts": (1, 10_000)})
    assert "(2026-01-08 10:39), limited by rollouts" in projection_line(spending, NOON)


@pytest.mark.parametrize(
    "spending",
    [Spending(60.0), Spending(60.0, {"usd": (0.0, 5.0)}), Spending(0, {"n": (1, 2)})],
)
def test_projection_without_a_pace_is_none(spending):
    assert projection_line(spending, NOON) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.4, "59 s"),
        (60, "1 min 00 s"),
        (3_600, "1 h 00 min"),
        (90_061, "25 h 01 min"),
        (float("nan"), "0 s"),
        (-5, "0 s"),
    ],
)
def test_durations_read_well(seconds, text):
    assert duration(seconds) == text
