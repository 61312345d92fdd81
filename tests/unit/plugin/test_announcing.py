"""Notes of the header that come from what the start's rollouts said."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_evo.models import Case
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.plugin.announcing import failing_notes
from pytest_evo.testing.doubles import MemoryRollouts

CASES = [
    Case("t.py::b", Split.VAL, outcome=Outcome.FAILED),
    Case("t.py::a", Split.TRAIN, outcome=Outcome.FAILED),
]
OSERROR = "FileNotFoundError: no such file: 'a.mdd'"


@pytest.fixture
def notes():
    """The notes of a start whose first case, by name, ended in these phases."""

    def make(*phases: Phase, cases=CASES) -> list[str]:
        store = MemoryRollouts()
        row = Rollout("c0000", "tree", "t.py::a", 0, Outcome.FAILED, 0.0)
        trace = store.keep(replace(row, detail=Detail(phases))).trace
        return list(failing_notes(cases, {"t.py::a": trace}, store))

    return make


def test_start_that_fails_in_every_case_is_told_with_its_first_failure(notes):
    passed = Phase("setup", "passed", 0.0, "")
    (note,) = notes(passed, Phase("call", "failed", 0.0, OSERROR, file="t.py", line=7))
    assert note.startswith(
        "every case fails on the start, 2 cases in all; t.py::a says: "
        f"{OSERROR} (t.py:7). If no edit"
    )


def test_failure_is_shown_in_one_visible_line_that_is_cut(notes):
    told = f"oops\n\x1b[31mred\x07 {'x' * 5_000}"
    (note,) = notes(Phase("call", "failed", 0.0, told, file="/usr/lib/x.py", line=3))
    assert note.isprintable()
    assert "says: oops red\\x07 x" in note
    assert "/usr/lib" not in note
    assert len(note) < 500


def test_failures_that_are_expected_are_told_too(notes):
    (note,) = notes(Phase("call", "skipped", 0.0, "not yet", xfail="later"))
    assert "says: not yet." in note


def test_failure_of_which_nothing_is_known_is_counted_all_the_same(notes):
    assert notes()[0].startswith("every case fails on the start, 2 cases in all. If")
    store = MemoryRollouts()
    assert len([*failing_notes(CASES, {}, store)]) == 1


def test_start_that_passes_in_some_case_needs_no_note(notes):
    cases = [CASES[0], replace(CASES[1], outcome=Outcome.PASSED)]
    assert notes(Phase("call", "failed", 0.0, OSERROR), cases=cases) == []
