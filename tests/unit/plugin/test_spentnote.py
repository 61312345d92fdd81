from __future__ import annotations

import json
from dataclasses import asdict
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.plugin.spentnote import NAME
from pytest_evo.plugin.spentnote import spent_so_far
from pytest_evo.plugin.spentnote import SpentNote

LONG = Usage(12, 345_678, 1_000, 9_876, usd=0.123456789, seconds=12.5)
SHORT = Usage(1, 2, usd=None)


def test_last_note_counts_and_only_for_its_own_rollout(tmp_path):
    note = SpentNote(tmp_path)
    note("t.py::a[\udc80]", 0, LONG)
    assert spent_so_far(tmp_path, "t.py::a[\udc80]", 0) == LONG
    note("t.py::a", 1, SHORT)  # shorter than what was there
    assert spent_so_far(tmp_path, "t.py::a", 1) == SHORT
    assert spent_so_far(tmp_path, "t.py::a", 0) == NO_USAGE
    assert spent_so_far(tmp_path, "t.py::b", 1) == NO_USAGE


def test_folder_that_a_test_removed_is_no_error(tmp_path):
    SpentNote(tmp_path / "gone")("t.py::a", 0, LONG)
    assert spent_so_far(tmp_path / "gone", "t.py::a", 0) == NO_USAGE


@pytest.mark.parametrize(
    "wrong",
    [
        {"input_tokens": -1},
        {"input_tokens": 2.5},
        {"calls": True},
        {"output_tokens": 10**40},
        {"usd": float("nan")},
        {"seconds": float("inf")},
        {"known_usd": -0.5},
        {"estimated_usd": "1"},
        {"more": 1},
    ],
)
def test_figures_that_cannot_be_are_no_note(tmp_path, wrong):
    text = json.dumps(["t.py::a", 0, {**asdict(LONG), **wrong}])
    (tmp_path / NAME).write_text(text)
    assert spent_so_far(tmp_path, "t.py::a", 0) == NO_USAGE


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
    SpentNote(folder)("t.py::a", 3, usage)
    assert spent_so_far(folder, "t.py::a", 3) == replace(usage)
