from __future__ import annotations

from datetime import date

import pytest

from pytest_evo.gate.affected import unreached_cases
from pytest_evo.gate.baseline import Baseline
from pytest_evo.gate.baseline import BaselineCase
from pytest_evo.gate.baseline import short_fingerprint
from pytest_evo.gate.suite import compare_suites
from pytest_evo.gate.suite import KnownCase
from pytest_evo.gate.values import Removed
from pytest_evo.gate.values import Renamed
from pytest_evo.models import Outcome


def test_cases_that_are_gone_or_new_are_told() -> None:
    found = compare_suites(
        [KnownCase("a", "1", True), KnownCase("b", "2", False), KnownCase("c", "3")],
        {"a": "1", "d": "4"},
    )
    assert found.added == ("d",)
    # what is not known to have failed counts as passed
    assert found.removed == (Removed("b", False), Removed("c", True))
    assert found.renamed == ()


def test_a_case_is_the_same_where_it_does_the_same() -> None:
    found = compare_suites([KnownCase("t.py::old", "1", True)], {"t.py::new": "1"})
    assert found.renamed == (Renamed("t.py::old", "t.py::new"),)
    assert (found.added, found.removed) == ((), ())


def test_twins_are_matched_in_their_file_first() -> None:
    base = [KnownCase("a.py::x", "1"), KnownCase("b.py::x", "1")]
    found = compare_suites(base, {"b.py::y": "1", "a.py::y": "1"})
    assert found.renamed == (
        Renamed("a.py::x", "a.py::y"),
        Renamed("b.py::x", "b.py::y"),
    )


def test_twins_of_another_number_are_not_guessed() -> None:
    base = [KnownCase("a.py::x", "1"), KnownCase("a.py::y", "1")]
    found = compare_suites(base, {"a.py::z": "1"})
    assert found.renamed == ()
    assert found.added == ("a.py::z",)
    assert len(found.removed) == 2


def test_unknown_bodies_match_nothing() -> None:
    found = compare_suites([KnownCase("a", "", True)], {"b": ""})
    assert found.renamed == ()


# -- reach -------------------------------------------------------------------------


def known(reach: tuple[str, ...] | None, digest: str = "") -> Baseline:
    case = BaselineCase(
        id="t",
        fingerprint=short_fingerprint("f"),
        body="",
        outcome=Outcome.PASSED,
        runs=1,
        passes=1,
        mean=1.0,
        variance=0.0,
        noisy=False,
        reach=reach,
        project_digest=digest,
    )
    return Baseline("art", "t", {}, 0, {"t": case}, date(2026, 1, 31))


@pytest.mark.parametrize(
    ("reach", "changed", "fingerprint", "digest", "unreached"),
    [
        (("a",), [("b", "modified")], "f", "", True),
        ((), [("b", "modified")], "f", "", True),
        (("a",), [], "f", "", True),
        (("b",), [("b", "modified")], "f", "", False),
        (None, [("b", "modified")], "f", "", False),
        (("a",), [("b", "added")], "f", "", False),
        (("a",), [("b", "deleted")], "f", "", False),
        (("a",), [("b", "modified"), ("c", "added")], "f", "", False),
        (("a",), [("b", "modified")], "another test", "", False),
        (("a",), [("b", "modified")], "f", "other code", False),
    ],
)
def test_only_what_is_surely_not_reached_is_left_out(
    reach, changed, fingerprint, digest, unreached
) -> None:
    found = unreached_cases(known(reach), changed, {"t": fingerprint}, {"t": digest})
    assert found == ({"t"} if unreached else frozenset())


def test_cases_that_the_baseline_does_not_know_are_reached() -> None:
    assert unreached_cases(known(()), [("b", "modified")], {"new": "f"}, {}) == set()
