from __future__ import annotations

import json
from collections import namedtuple
from enum import StrEnum
from fractions import Fraction
from pathlib import Path

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.plugin.plain import cut
from pytest_evo.plugin.plain import LONGEST_LIST
from pytest_evo.plugin.plain import LONGEST_TEXT
from pytest_evo.plugin.plain import plain


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class HostileList(list):
    def __iter__(self):
        raise RuntimeError("no")


class Colour(StrEnum):
    RED = "red"


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.binary()
    | st.fractions()
    | st.complex_numbers()
    | st.dates(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.integers(), inner)
        | st.tuples(inner, inner)
    ),
)


@given(anything)
def test_plain_is_what_json_gives_back(value):
    result = plain(value)
    assert json.loads(json.dumps(result, allow_nan=False)) == result


@given(st.recursive(st.text() | st.integers(-9, 9), st.lists))
def test_plain_keeps_plain_data(value):
    assert plain(value) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "nan"),
        (Colour.RED, "red"),
        (numpy.float32(0.5), 0.5),
        (numpy.int64(3), 3),
        (Fraction(1, 2), 0.5),
        (Path("a"), "PosixPath('a')"),
        ({"b", "a"}, ["'a'", "'b'"]),
        (namedtuple("P", "x y")(1, 2), [1, 2]),
        (HostileList([1]), [1]),
        ({1: "x"}, {"1": "x"}),
        (object(), "<object object at 0x...>"),
    ],
)
def test_plain_coerces_the_rest(value, expected):
    assert plain(value) == expected


def test_plain_writes_huge_numbers_as_text():
    huge = plain(16**5000)
    assert huge.startswith("0x1000")
    assert json.loads(json.dumps(huge)) == huge
    assert plain({"a": {Fraction(10**400)}})["a"]


def test_plain_survives_a_repr_that_fails():
    assert plain(Hostile()) == "<Hostile instance at 0x...>"


def test_plain_is_bounded():
    assert len(plain("x" * (LONGEST_TEXT * 2))) < LONGEST_TEXT + 100
    assert len(plain(list(range(LONGEST_LIST * 2)))) == LONGEST_LIST
    nested: list[object] = []
    for _ in range(100_000):
        nested = [nested]
    json.dumps(plain(nested))


def test_cut_keeps_both_ends():
    assert cut("abc", 3) == "abc"
    assert cut("a" * 50 + "b" * 50, 10).startswith("aaaaa\n... 90 characters left out")
