from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.engine import statistics
from pytest_evo.models import Case
from pytest_evo.models import Outcome
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import Split

scores = st.floats(0, 1, allow_nan=False)
unhurried = settings(deadline=None)  # the first example imports scipy


def rollout(case="a", score=1.0, repeat=0, **reach):
    outcome = Outcome.PASSED if score == 1 else Outcome.FAILED
    return Rollout("c0000", "t", case, repeat, outcome, score, reach=Reach(**reach))


def case(name="a", **more):
    return Case(name, Split.TRAIN, **more)


@unhurried
@given(st.floats(0.5, 60), st.floats(0.5, 60), st.floats(0, 1))
def test_incomplete_beta_agrees_with_scipy(a, b, x):
    special = pytest.importorskip("scipy.special")
    assert statistics.incomplete_beta(a, b, x) == pytest.approx(
        special.betainc(a, b, x), rel=1e-9, abs=1e-12
    )


@unhurried
@given(st.floats(0.001, 0.999), st.integers(1, 500))
def test_t_quantile_agrees_with_scipy(probability, freedom):
    stats = pytest.importorskip("scipy.stats")
    assert statistics.t_quantile(probability, freedom) == pytest.approx(
        stats.t.ppf(probability, freedom), rel=1e-7, abs=1e-7
    )


@pytest.mark.parametrize(("probability", "freedom"), [(0, 3), (1, 3), (0.5, 0)])
def test_t_quantile_refuses_what_has_no_answer(probability, freedom):
    with pytest.raises(ValueError, match="probability"):
        statistics.t_quantile(probability, freedom)


@unhurried
@given(st.lists(st.tuples(scores, scores), min_size=2, max_size=40))
def test_paired_difference_agrees_with_scipy(pairs):
    stats = pytest.importorskip("scipy.stats")
    differences = [after - before for before, after in pairs]
    if max(differences) - min(differences) <= 1e-6:
        return
    start = {str(at): before for at, (before, _) in enumerate(pairs)}
    winner = {str(at): after for at, (_, after) in enumerate(pairs)}
    found = statistics.paired_difference(start, winner)
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert found.mean == pytest.approx(math.fsum(differences) / len(pairs), abs=1e-12)
    assert found.low == pytest.approx(max(-1, low), abs=1e-6)
    assert found.high == pytest.approx(min(1, high), abs=1e-6)


@unhurried
@given(st.lists(scores, min_size=1, max_size=30), st.floats(0.5, 4))
def test_paired_difference_is_the_same_for_any_common_weight(values, weight):
    start = {str(at): 0.0 for at in range(len(values))}
    winner = {str(at): value for at, value in enumerate(values)}
    plain = statistics.paired_difference(start, winner)
    heavy = statistics.paired_difference(start, winner, dict.fromkeys(start, weight))
    assert heavy.mean == pytest.approx(plain.mean, abs=1e-9)
    assert heavy.low == pytest.approx(plain.low, abs=1e-6)
    assert plain.low <= plain.mean + 1e-12
    assert plain.mean <= plain.high + 1e-12


def test_paired_difference_of_one_case_claims_nearly_nothing():
    found = statistics.paired_difference({"a": 0.0}, {"a": 1.0})
    assert found.mean == 1.0
    assert found.low == pytest.approx(-0.95)


def test_paired_difference_without_a_common_case_is_an_error():
    with pytest.raises(ValueError, match="both sides"):
        statistics.paired_difference({"a": 0.0}, {"b": 1.0})


def test_claim_names_what_got_worse_and_better():
    claim = statistics.make_claim(
        Split.TEST,
        {"a": 1.0, "b": 0.0, "c": 0.5, "gone": 1.0},
        {"a": 0.0, "b": 1.0, "c": 0.5},
        in_sample=False,
        weights={"b": 2.0},
    )
    assert (claim.cases, claim.worse, claim.better) == (3, ("a",), ("b",))
    assert claim.difference == pytest.approx(claim.winner - claim.start)
    assert claim.difference == pytest.approx(0.25)


def test_pooled_variance_without_repeats_is_the_worst_case():
    assert statistics.pooled_variance([[1.0], [0.0]]) == 0.25


def test_pooled_variance_is_never_zero_although_all_repeats_agree():
    assert 0 < statistics.pooled_variance([[1.0] * 3] * 20) < 0.01


@unhurried
@given(
    st.lists(st.lists(scores, min_size=2, max_size=4), min_size=5, max_size=20),
)
def test_pooled_variance_is_close_to_the_measured_one(groups):
    freedom = sum(len(group) - 1 for group in groups)
    squares = sum(
        sum((x - sum(group) / len(group)) ** 2 for x in group) for group in groups
    )
    varied = sum(max(group) - min(group) > 1e-8 for group in groups)
    found = statistics.pooled_variance(groups)
    assert abs(found - squares / freedom) <= 0.5 / (freedom * (1 + varied)) + 1e-9


def test_noise_follows_reach_and_repeats():
    same = [rollout(repeat=n) for n in range(3)]
    assert not statistics.is_noisy(same)
    assert statistics.is_noisy([rollout(network=True)])
    assert statistics.is_noisy([rollout(processes=True)])
    assert statistics.is_noisy([rollout(), rollout(score=0.0, repeat=1)])
    assert not statistics.is_noisy([rollout(network=True)], declared=True)
    assert statistics.is_noisy(same, declared=False)
    assert not statistics.is_noisy([rollout(network=True)], trust_repeats=True)


def test_noise_of_the_sampled_cases_is_believed_of_the_others():
    cases = [case("a"), case("b"), case("c", deterministic=True)]
    found = statistics.measure_noise(
        cases,
        {
            "a": [rollout("a"), rollout("a", 0.0, 1), rollout("a", repeat=2)],
            "b": [rollout("b")],
            "c": [rollout("c")],
        },
    )
    assert (found.deterministic, found.noisy) == (("c",), ("a", "b"))
    assert found.variance == pytest.approx((2 / 3 + 0.125) / 2.5)


def test_noise_of_network_cases_is_not_believed_of_local_ones():
    online = [rollout("a", n % 2, n, network=True) for n in range(3)]
    found = statistics.measure_noise(
        [case("a"), case("b")], {"a": online, "b": [rollout("b")]}
    )
    assert found.noisy == ("a",)


def test_noise_says_which_network_cases_never_vary():
    online = [rollout("a", repeat=n, network=True) for n in range(3)]
    found = statistics.measure_noise([case("a")], {"a": online})
    assert (found.noisy, found.maybe_cached) == (("a",), ("a",))
    assert found.variance > 0


def test_noise_modes_overrule_what_is_measured():
    online = [rollout("a", repeat=n, network=True) for n in range(3)]
    none = statistics.measure_noise([case("a")], {"a": online}, "none")
    repeats = statistics.measure_noise([case("a")], {"a": online}, "repeats")
    assert none.deterministic == repeats.deterministic == ("a",)
    flaky = [*online[:2], rollout("a", 0.0, 2, network=True)]
    assert statistics.measure_noise([case("a")], {"a": flaky}, "repeats").noisy


@unhurried
@given(st.floats(-1, 1), st.floats(0.01, 1))
def test_p_value_agrees_with_scipy(effect, error):
    stats = pytest.importorskip("scipy.stats")
    assert statistics.p_value(effect, error) == pytest.approx(
        stats.norm.sf(effect / error), abs=1e-12
    )
    assert statistics.p_value(effect, 0.0) == (0.0 if effect > 0 else 1.0)
