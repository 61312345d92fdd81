from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.engine.draws import SeededDraws
from pytest_evo.engine.sampling import Epoch
from pytest_evo.engine.sampling import Guards
from pytest_evo.engine.sampling import HighVariance
from pytest_evo.engine.sampling import Incumbent
from pytest_evo.engine.sampling import LeadCount
from pytest_evo.engine.sampling import ParetoFrequency
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import Member
from pytest_evo.models import Split
from pytest_evo.protocols import BatchRequest
from pytest_evo.testing.strategy_contracts import BatchSamplerContract
from pytest_evo.testing.strategy_contracts import ParentSamplerContract


def member(name, *scores):
    vector = {str(at): score for at, score in enumerate(scores)}
    return Member(Candidate(name, name), vector, sum(scores) / max(1, len(scores)))


def cases(count):
    return tuple(Case(f"t.py::c{at}", Split.TRAIN) for at in range(count))


def drawn(sampler, population, count=2000):
    rng = Random(3)
    return Counter(sampler.sample(population, rng).candidate.id for _ in range(count))


class TestLeadCount(ParentSamplerContract):
    @pytest.fixture
    def sampler(self):
        return LeadCount()


class TestParetoFrequency(ParentSamplerContract):
    @pytest.fixture
    def sampler(self):
        return ParetoFrequency()


class TestIncumbent(ParentSamplerContract):
    @pytest.fixture
    def sampler(self):
        return Incumbent()


class TestEpoch(BatchSamplerContract):
    @pytest.fixture
    def sampler(self):
        return Epoch()


class TestGuards(BatchSamplerContract):
    @pytest.fixture
    def sampler(self):
        return Guards()


class TestHighVariance(BatchSamplerContract):
    @pytest.fixture
    def sampler(self):
        return HighVariance()


def test_lead_count_draws_in_proportion_to_leads():
    found = drawn(LeadCount(), [member("a", 1, 1, 1, 0), member("b", 0, 0, 0, 1)])
    assert 0.70 < found["a"] / found.total() < 0.80


def test_lead_count_lets_ties_within_the_tolerance_lead_together():
    found = drawn(LeadCount(), [member("a", 0.5), member("b", 0.5 - 1e-9)])
    assert 0.45 < found["a"] / found.total() < 0.55
    never = drawn(LeadCount(), [member("a", 0.5), member("b", 0.5 - 1e-6)])
    assert never["b"] == 0


def test_lead_count_draws_evenly_where_nobody_leads():
    assert len(drawn(LeadCount(), [member("a"), member("b")])) == 2


def test_pareto_frequency_leaves_out_who_leads_nowhere_alone():
    population = [member("a", 1, 1, 0), member("b", 0, 0, 1), member("c", 1, 0, 0)]
    found = drawn(ParetoFrequency(), population)
    assert set(found) == {"a", "b"}
    assert found["a"] > found["b"]


def test_incumbent_is_the_best_and_of_equals_the_first():
    population = [member("a", 0.5), member("b", 0.7), member("c", 0.7)]
    assert Incumbent().sample(population, Random(1)).candidate.id == "b"


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 50))
def test_epoch_brings_every_case_equally_often(count, size, seed):
    train = cases(count)
    draws = SeededDraws(seed)
    size = min(size, count)
    seen = Counter()
    for iteration in range(1, count + 1):  # count batches are `size` whole epochs
        batch = Epoch().sample(BatchRequest(train, size, iteration, {}), draws)
        assert len(set(batch)) == size
        seen.update(case.id for case in batch)
        done, rest = divmod(iteration * size, count)
        # never more than one ahead, but for what closes a batch over an epoch's end
        assert all(seen[c.id] >= done for c in train)
        assert sum(seen[c.id] > done for c in train) == rest
    assert set(seen.values()) == {size}


def test_epoch_needs_no_memory():
    train = cases(7)
    draws = SeededDraws(1)
    forward = [
        Epoch().sample(BatchRequest(train, 3, at, {}), draws) for at in range(1, 20)
    ]
    backward = [
        Epoch().sample(BatchRequest(train, 3, at, {}), draws) for at in range(19, 0, -1)
    ]
    assert forward == backward[::-1]
    assert len(set(forward)) > 10


@settings(deadline=None)
@given(st.integers(1, 20), st.data())
def test_guards_are_half_of_the_batch_where_both_sides_have_enough(count, data):
    train = cases(count)
    believed = {case.id: data.draw(st.sampled_from([0.0, 0.5, 1.0])) for case in train}
    size = data.draw(st.integers(1, 24))
    request = BatchRequest(train, size, 4, believed)
    batch = Guards().sample(request, SeededDraws(0))
    wrong = sum(believed[case.id] < 1 for case in batch)
    failing = sum(score < 1 for score in believed.values())
    size = min(size, count)
    passing = count - failing
    assert wrong == min(failing, max(size - size // 2, size - passing))


def test_guards_take_unknown_cases_for_failing():
    train = cases(4)
    request = BatchRequest(train, 1, 1, {case.id: 1.0 for case in train[1:]})
    assert Guards().sample(request, SeededDraws(0)) == (train[0],)


def test_guards_change_with_the_iteration_only_by_its_key():
    train = cases(30)
    request = [BatchRequest(train, 4, at, {}) for at in (1, 2)]
    one, two = (Guards().sample(each, SeededDraws(5)) for each in request)
    assert one != two
    assert Guards().sample(request[0], SeededDraws(5)) == one
    assert Guards().sample(request[0], SeededDraws(6)) != one


def test_high_variance_comes_first_and_leaves_nobody_out():
    train = cases(10)
    variance = {train[0].id: 0.25, train[1].id: 0.25}
    seen = Counter()
    for at in range(1, 300):
        request = BatchRequest(train, 2, at, {}, variance)
        seen.update(c.id for c in HighVariance().sample(request, SeededDraws(0)))
    assert min(seen[train[0].id], seen[train[1].id]) > 5 * seen[train[5].id]
    assert len(seen) == 10
