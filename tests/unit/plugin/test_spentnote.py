from __future__ import annotations

import json
import os
import stat
from dataclasses import asdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.plugin.forking import fork
from pytest_evo.plugin.modelcalls import ModelCall
from pytest_evo.plugin.outcomes import RunningUsage
from pytest_evo.plugin.outcomes import usage_of
from pytest_evo.plugin.recording import Notes
from pytest_evo.plugin.spentnote import NAME
from pytest_evo.plugin.spentnote import spent_so_far
from pytest_evo.plugin.spentnote import SpentNote

LONG = Usage(12, 345_678, 1_000, 9_876, usd=0.123456789, seconds=12.5)
SHORT = Usage(1, 2, usd=None)


def test_last_note_counts_and_only_for_its_own_rollout(tmp_path):
    note = SpentNote(tmp_path)
    note("t.py::a[\udc80]", 0, lambda: LONG)
    assert spent_so_far(tmp_path, "t.py::a[\udc80]", 0) == LONG
    note("t.py::a", 1, lambda: SHORT)  # shorter than what was there
    assert spent_so_far(tmp_path, "t.py::a", 1) == SHORT
    assert spent_so_far(tmp_path, "t.py::a", 0) == NO_USAGE
    assert spent_so_far(tmp_path, "t.py::b", 1) == NO_USAGE


def test_fork_of_a_test_asks_nothing_and_notes_nothing(tmp_path):
    note = SpentNote(tmp_path)
    note("t.py::a", 0, lambda: SHORT)
    # what adds up may wait for ever there: for a lock that nobody gives back
    child = fork(lambda: note("t.py::a", 0, lambda: os._exit(1)))
    assert os.waitpid(child, 0)[1] == 0
    assert spent_so_far(tmp_path, "t.py::a", 0) == SHORT


def test_folder_that_is_not_there_is_made_for_its_owner_alone(tmp_path):
    folder = tmp_path / "new"
    SpentNote(folder)("t.py::a", 0, lambda: LONG)
    assert spent_so_far(folder, "t.py::a", 0) == LONG
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_place_where_no_folder_can_be_is_no_error(tmp_path):
    (tmp_path / "file").touch()
    SpentNote(tmp_path / "file" / "new")("t.py::a", 0, lambda: LONG)
    assert spent_so_far(tmp_path / "file" / "new", "t.py::a", 0) == NO_USAGE


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_tokens": -1},
        {"input_tokens": 2.5},
        {"calls": True},
        {"output_tokens": 10**40},
        {"usd": float("nan")},
        {"seconds": float("inf")},
        {"seconds": 10**400},
        {"known_usd": -0.5},
        {"estimated_usd": "1"},
        {"more": 1},
    ],
)
def test_figures_that_cannot_be_are_no_note(tmp_path, wrong):
    text = json.dumps(["t.py::a", 0, {**asdict(LONG), **wrong}])
    (tmp_path / NAME).write_text(text)
    assert spent_so_far(tmp_path, "t.py::a", 0) == NO_USAGE


@pytest.mark.parametrize("trap", [os.mkfifo, os.mkdir])
def test_what_is_no_file_is_no_note_and_hangs_nobody(tmp_path, trap):
    trap(tmp_path / NAME)
    SpentNote(tmp_path)("t.py::a", 0, lambda: LONG)
    assert spent_so_far(tmp_path, "t.py::a", 0) == NO_USAGE


def test_link_to_a_note_is_no_note(tmp_path):
    (tmp_path / "other").mkdir()
    SpentNote(tmp_path / "other")("t.py::a", 0, lambda: LONG)
    (tmp_path / NAME).symlink_to(tmp_path / "other" / NAME)
    assert spent_so_far(tmp_path, "t.py::a", 0) == NO_USAGE


def test_running_sum_is_the_sum_and_adds_a_call_that_is_over_once():
    notes = Notes(calls=1, input_tokens=5)
    running, asked = RunningUsage(notes), []

    class Counted(ModelCall):
        def usage(self):
            asked.append(self)
            return super().usage()

    for number in range(200):
        call = Counted(lambda data: None, {"model": "m"})
        asked.clear()
        notes.model_calls.append(call)
        assert running.total().calls == number + 2
        call.answered({"usage": {"prompt_tokens": 3, "completion_tokens": 1}})
        running.total()
        assert len(asked) <= 4  # also told of itself
    assert running.total() == usage_of(notes)


@given(data=st.binary(max_size=200))
def test_whatever_a_test_writes_there_is_no_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("note")
    (folder / NAME).write_bytes(data)
    assert spent_so_far(folder, "t.py::a", 0) == NO_USAGE


@given(
    usage=st.builds(
        Usage,
        st.integers(0, 9),
        st.integers(0, 10**9),
        st.integers(0, 9),
        st.integers(0, 10**9),
        st.none() | st.floats(0, 1e6),
        st.floats(0, 1e6),
    )
)
def test_any_sound_sum_comes_back(tmp_path_factory, usage):
    folder = tmp_path_factory.mktemp("note")
    SpentNote(folder)("t.py::a", 3, lambda: usage)
    assert spent_so_far(folder, "t.py::a", 3) == replace(usage)
