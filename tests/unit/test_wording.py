"""Texts that say how many, with one and with many."""

from __future__ import annotations

import datetime

import pytest

from pytest_evo.plugin.pools.session import add_rollouts
from pytest_evo.wording import a_kind
from pytest_evo.wording import count


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 cases"), (1, "1 case"), (2000, "2,000 cases")]
)
def test_count_has_one_in_the_singular(number, text):
    assert count(number, "case") == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({}, "a table"),
        ([], "a list"),
        (None, "empty"),
        (datetime.date(2026, 1, 1), "a date"),
    ],
)
def test_kinds_of_values_have_the_names_that_files_have_for_them(value, text):
    assert a_kind(value) == text


class Reporter:
    """The part of pytest's reporter that its last line is made from."""

    def __init__(self):
        self.stats = {}

    def _add_stats(self, word, items):
        self.stats[word] = len(items)


@pytest.mark.parametrize(("number", "word"), [(1, "rollout"), (3, "rollouts")])
def test_last_line_of_pytest_counts_rollouts(number, word):
    reporter = Reporter()
    add_rollouts(reporter, number)
    assert reporter.stats == {word: number}
