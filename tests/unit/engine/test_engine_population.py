from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.engine.population import IncumbentOnly
from pytest_evo.engine.population import KeepAll
from pytest_evo.engine.population import ParetoTopN
from pytest_evo.models import Candidate
from pytest_evo.models import Member
from pytest_evo.testing.strategy_contracts import SurvivorSelectionContract


def member(name, *scores):
    vector = {str(at): score for at, score in enumerate(scores)}
    return Member(Candidate(name, name), vector, sum(scores) / max(1, len(scores)))


def names(members):
    return [each.candidate.id for each in members]


class TestParetoTopN(SurvivorSelectionContract):
    @pytest.fixture
    def selection(self):
        return ParetoTopN(3)


class TestKeepAll(SurvivorSelectionContract):
    @pytest.fixture
    def selection(self):
        return KeepAll()


class TestIncumbentOnly(SurvivorSelectionContract):
    @pytest.fixture
    def selection(self):
        return IncumbentOnly()


vectors = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=4, max_size=4),
    min_size=1,
    max_size=8,
)


def dominates(one, other):
    pairs = [(one.scores[case], other.scores[case]) for case in one.scores]
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


@settings(deadline=None)
@given(vectors, st.integers(1, 5))
def test_pareto_survivors_are_the_best_that_nobody_dominates(rows, size):
    members = [member(f"m{at}", *row) for at, row in enumerate(rows)]
    kept = ParetoTopN(size).select(members)
    assert 1 <= len(kept) <= size
    assert [m.mean for m in kept] == sorted((m.mean for m in kept), reverse=True)
    for each in kept:
        assert not any(dominates(other, each) for other in members)
        at = members.index(each)
        assert all(other.scores != each.scores for other in members[at + 1 :])
    assert kept[0].mean == max(m.mean for m in members)


def test_pareto_ties_keep_the_newer_generation():
    old, new = member("old", 1.0, 0.5), member("new", 1.0, 0.5 - 1e-9)
    assert names(ParetoTopN(3).select([old, new])) == ["new"]


def test_pareto_start_has_no_protection():
    start, child = member("c0000", 0.2, 0.2), member("c0001", 0.3, 0.2)
    assert names(ParetoTopN(3).select([start, child])) == ["c0001"]
    assert names(ParetoTopN(3).select([start])) == ["c0000"]


def test_pareto_top_n_cuts_by_mean_and_prefers_the_newer():
    rows = [member("a", 1, 0, 0), member("b", 0, 1, 0), member("c", 0, 0, 1)]
    assert names(ParetoTopN(2).select(rows)) == ["c", "b"]


def test_incomplete_vectors_never_enter():
    whole, part = member("whole", 0.1, 0.1), member("part", 1.0)
    for selection in (ParetoTopN(3), KeepAll(), IncumbentOnly()):
        assert names(selection.select([whole, part])) == ["whole"]


def test_pareto_survives_a_circle_made_of_tolerances():
    small = 0.9e-8
    rows = [
        member("a", 2 * small, 0.0, small),
        member("b", small, 2 * small, 0.0),
        member("c", 0.0, small, 2 * small),
    ]
    assert ParetoTopN(3).select(rows)


def test_population_of_nobody_is_refused():
    with pytest.raises(ValueError, match="at least 1"):
        ParetoTopN(0)


def test_keep_all_sorts_and_incumbent_keeps_one():
    rows = [member("a", 0.1), member("b", 0.9), member("c", 0.9)]
    assert names(KeepAll().select(rows)) == ["c", "b", "a"]
    assert names(IncumbentOnly().select(rows)) == ["c"]
