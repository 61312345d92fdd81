"""Texts that are found by their hashes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.spots import hide as hide_all
from pytest_evo.spots import is_long
from pytest_evo.spots import LONGEST
from pytest_evo.spots import SIZE
from pytest_evo.spots import split
from pytest_evo.spots import Spots
from pytest_evo.spots import spots_of
from pytest_evo.spots import windows

WORDS = st.text("abcdefgh", min_size=1, max_size=6)
SENTENCES = st.lists(WORDS, min_size=3, max_size=40).map(" ".join)


def hide(value: str, text: str) -> str:
    return Spots(spots_of(value)).hide(text, "#")


@pytest.mark.parametrize(
    "shown",
    [
        "The Mill on the Floss",
        repr("The Mill on the Floss"),
        json.dumps({"title": "the mill on\nthe floss"}),
        "THE MILL ON THE FLOSS",
        "the mill\n    on the floss",
    ],
)
def test_value_is_found_however_it_is_printed(shown: str) -> None:
    hidden = hide("The Mill on the Floss", f"it says {shown}, said the test")
    assert "#" in hidden
    assert "floss" not in hidden.lower()
    assert hidden.startswith("it says")
    assert hidden.endswith(", said the test")


def test_part_of_a_word_is_not_found() -> None:
    assert hide("art", "the artifact and its art.") == "the artifact and its #."


@pytest.mark.parametrize("value", ["", "x", "42", "..", "+++", " a "])
def test_what_is_too_short_is_not_looked_for(value: str) -> None:
    assert list(spots_of(value)) == []


def test_parts_of_a_long_value_are_found() -> None:
    value = " ".join(f"word{number}" for number in range(30))
    part = " ".join(f"word{number}" for number in range(10, 20))
    assert hide(value, f"a {part} b") == "a # b"
    few = " ".join(f"word{number}" for number in range(10, 10 + LONGEST - 1))
    assert hide(value, few) == few


def test_lines_of_a_value_are_found_alone() -> None:
    value = "first of all lines\nend\nand the second one"
    assert hide(value, "- and the second one\n? end") == "- #\n? end"


def test_escaped_line_ends_are_no_part_of_a_word() -> None:
    printed = r"'one line and\nnext line too'"
    assert hide("one line and\nnext line too", printed) == "'#'"


@given(SENTENCES, SENTENCES, SENTENCES)
def test_no_value_survives_in_a_text(before: str, value: str, after: str) -> None:
    hidden = hide(value, f"{before} {value} {after}")
    assert f" {value} " not in f" {hidden} "


@given(SENTENCES)
def test_spots_are_of_one_size_and_split_again(value: str) -> None:
    spots = list(spots_of(value))
    assert all(len(spot) == SIZE for spot in spots)
    assert list(split("".join(spots))) == spots


@given(SENTENCES)
def test_windows_hold_all_spots(value: str) -> None:
    assert set(spots_of(value)) <= set(windows(value))


def test_long_ones_are_told_from_short_ones() -> None:
    assert [is_long(spot) for spot in spots_of("exactly nineteen ch")] == [False]
    assert [is_long(spot) for spot in spots_of("exactly twenty chars")] == [True]


def test_hashes_do_not_hold_the_text() -> None:
    assert "floss" not in "".join(spots_of("floss floss floss"))


@given(SENTENCES, SENTENCES, st.lists(st.booleans(), max_size=4))
def test_hiding_several_is_the_same_as_one_after_the_other(
    one: str, other: str, order: list[bool]
) -> None:
    text = "\\n, ".join(one if first else other for first in order)
    first, second = Spots(spots_of(one)), Spots(spots_of(f"{other} {one}"))
    told = hide_all(text, (first, "<1>"), (Spots(()), "<2>"), (second, "<3>"))
    assert told == second.hide(first.hide(text, "<1>"), "<3>")
