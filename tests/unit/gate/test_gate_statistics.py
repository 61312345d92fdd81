from __future__ import annotations

from itertools import product
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.gate import statistics

scipy_stats = pytest.importorskip("scipy.stats")

counts = st.integers(1, 40)
differences = st.lists(
    st.sampled_from([-1.0, -0.5, -0.25, 0.0, 0.25, 0.5, 1.0]), max_size=9
)


@given(counts, st.data(), st.sampled_from([0.5, 0.1, 0.73, 0.999]))
def test_binomial_tail_equals_scipy(n, data, p):
    k = data.draw(st.integers(0, n))
    expected = scipy_stats.binom.sf(k - 1, n, p)
    assert statistics.binomial_tail(k, n, p) == pytest.approx(expected, abs=1e-12)


@given(counts, st.data(), st.sampled_from([0.8, 0.95, 0.99]))
@settings(max_examples=50, deadline=None)
def test_clopper_pearson_equals_scipy(n, data, confidence):
    k = data.draw(st.integers(0, n))
    expected = scipy_stats.binomtest(k, n).proportion_ci(confidence, "exact")
    found = statistics.clopper_pearson(k, n, confidence)
    assert found == pytest.approx((expected.low, expected.high), abs=1e-9)


@given(counts, counts, st.data())
@settings(deadline=None)
def test_fisher_equals_scipy(head_n, base_n, data):
    head = data.draw(st.integers(0, head_n))
    base = data.draw(st.integers(0, base_n))
    table = [[head, head_n - head], [base, base_n - base]]
    expected = scipy_stats.fisher_exact(table, alternative="less").pvalue
    found = statistics.fisher_less(head, head_n, base, base_n)
    assert found == pytest.approx(expected, abs=1e-9)


@given(counts, counts, st.data())
def test_exchange_of_one_case_is_fishers_test(head_n, base_n, data):
    head = data.draw(st.integers(0, head_n))
    base = data.draw(st.integers(0, base_n))
    stratum = (
        [1.0] * base + [0.0] * (base_n - base),
        [1.0] * head + [0.0] * (head_n - head),
    )
    found = statistics.exchange_p([stratum], Random(0))
    expected = statistics.fisher_less(head, head_n, base, base_n)
    assert found == pytest.approx(expected, abs=1e-12)


def test_exchange_over_cases_equals_enumeration():
    strata = [([1.0, 1.0, 0.0], [0.0, 0.0, 1.0]), ([1.0, 1.0], [0.0, 1.0])]
    sums = []
    for first in product([0, 1], repeat=6):
        for second in product([0, 1], repeat=4):
            if sum(first) == 3 and sum(second) == 2:  # who of the six, of the four
                pools = [1, 1, 0, 0, 0, 1], [1, 1, 0, 1]
                chosen = zip([*pools[0], *pools[1]], [*first, *second], strict=True)
                sums.append(sum(value for value, here in chosen if here))
    assert len(sums) == comb(6, 3) * comb(4, 2)
    expected = sum(total <= 2 for total in sums) / len(sums)
    assert statistics.exchange_p(strata, Random(0)) == pytest.approx(expected)


def test_exchange_of_scores_agrees_with_scipy():
    base, head = [0.91, 0.84, 0.77, 0.93, 0.88], [0.42, 0.86, 0.51, 0.63, 0.79]
    expected = scipy_stats.permutation_test(
        (head, base),
        lambda x, y: sum(x) - sum(y),
        permutation_type="independent",
        alternative="less",
        n_resamples=10_000,
    ).pvalue
    found = statistics.exchange_p([(base, head)], Random(3))
    assert found == pytest.approx(expected, rel=0.35, abs=0.005)


def test_exchange_without_rollouts_says_nothing():
    assert statistics.exchange_p([([], [])], Random(0)) == 1.0


@given(differences)
@settings(max_examples=60, deadline=None)
def test_sign_flip_equals_enumeration(values):
    moved = [value for value in values if value]
    signs = product([1, -1], repeat=len(moved))
    sums = [sum(s * abs(v) for s, v in zip(row, moved, strict=True)) for row in signs]
    expected = sum(total <= sum(moved) + 1e-9 for total in sums) / len(sums)
    assert statistics.sign_flip(values, Random(0)) == pytest.approx(expected)


@given(st.lists(st.sampled_from([-1.0, 1.0]), min_size=17, max_size=60))
def test_sign_flip_of_equal_sizes_is_mcnemars_exact_test(values):
    worse = sum(value < 0 for value in values)
    expected = scipy_stats.binomtest(worse, len(values), alternative="greater").pvalue
    assert statistics.sign_flip(values, Random(0)) == pytest.approx(expected)


@given(st.integers(0, 10_000))
@settings(max_examples=15, deadline=None)
def test_sign_flip_by_draws_agrees_with_scipy(seed):
    rng = Random(seed)
    values = [rng.uniform(-1, 0.7) for _ in range(24)]
    expected = scipy_stats.permutation_test(
        (values,),
        sum,
        permutation_type="samples",
        alternative="less",
        n_resamples=10_000,
        rng=seed,
    ).pvalue
    found = statistics.sign_flip(values, Random(seed))
    assert found == pytest.approx(expected, rel=0.6, abs=0.006)


def test_sign_flip_repeats_itself_with_its_seed():
    values = [(-1) ** i * (0.1 + i / 50) for i in range(30)]
    first, second = (statistics.sign_flip(values, Random(5)) for _ in range(2))
    assert first == second


def test_interval_of_flips_is_bonett_and_prices():
    n, worse, better, z = 40, 9, 3, scipy_stats.norm.ppf(0.95)
    p, q = (worse + 1) / (n + 2), (better + 1) / (n + 2)
    half = z * ((p + q - (p - q) ** 2) / (n + 2)) ** 0.5
    values = [-1.0] * worse + [1.0] * better + [0.0] * (n - worse - better)
    found = statistics.paired_interval(values, 0.90)
    assert found == pytest.approx((q - p - half, q - p + half), abs=1e-9)


def test_interval_of_few_equal_pairs_stays_wide():
    low, high = statistics.paired_interval([0.0] * 6, 0.90)
    assert low < -0.2
    assert high > 0.2


def test_interval_of_graded_scores_is_as_wide_as_they_vary():
    rng = Random(1)
    values = [rng.gauss(-0.05, 0.05) for _ in range(60)]
    low, high = statistics.paired_interval(values, 0.90)
    expected = scipy_stats.ttest_1samp(values, 0).confidence_interval(0.90)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.006)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_interval_holds_the_mean(values):
    low, high = statistics.paired_interval(values, 0.90)
    assert -1 <= low <= sum(values) / len(values) + 1e-9
    assert sum(values) / len(values) - 1e-9 <= high <= 1


def test_ratio_interval_agrees_with_scipy():
    rng = Random(2)
    pairs = [
        (base := rng.uniform(50, 150), base * rng.gauss(1.3, 0.2)) for _ in range(60)
    ]
    low, high = statistics.bootstrap_ratio(pairs, 0.90, Random(0))
    columns = tuple(zip(*pairs, strict=True))
    expected = scipy_stats.bootstrap(
        columns,
        lambda base, head, axis: head.sum(axis) / base.sum(axis),
        paired=True,
        method="percentile",
        confidence_level=0.90,
        rng=0,
    ).confidence_interval
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.01)


def test_ratio_without_a_base_is_refused():
    with pytest.raises(ValueError, match="base above 0"):
        statistics.bootstrap_ratio([(0.0, 3.0)], 0.9, Random(0))


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=20))
def test_holm_equals_its_definition(ps):
    order = sorted(range(len(ps)), key=lambda i: ps[i])
    highest, expected = 0.0, {}
    for rank, index in enumerate(order):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        expected[index] = highest
    found = statistics.holm(ps)
    assert found == pytest.approx([expected[i] for i in range(len(ps))])


def test_holm_counts_tests_that_were_not_made():
    assert statistics.holm([0.001, 0.5], family=10) == [0.01, 1.0]


@given(st.floats(0.001, 0.999), st.floats(0.001, 0.999))
@settings(deadline=None)
def test_combination_equals_scipy(p, q):
    expected = scipy_stats.combine_pvalues([p, q], "stouffer", [2, 3]).pvalue
    assert statistics.combine([(p, 2), (q, 3)]) == pytest.approx(expected, abs=1e-9)


def test_bettor_is_seldom_rich_by_chance():
    rich = 0
    for trial in range(1000):
        rng, bettor = Random(f"bettor:{trial}"), statistics.Bettor()
        owned = [bettor.see(rng.choice([-1, 0, 0, 1])) for _ in range(100)]
        rich += max(owned) >= 20
    assert rich <= 65  # 5 % of 1000, and chance


def test_bettor_finds_a_broken_half_soon():
    bettor, rng = statistics.Bettor(), Random(4)
    owned = [bettor.see(-rng.randrange(2)) for _ in range(40)]
    assert next(i for i, wealth in enumerate(owned) if wealth >= 500) < 35


@pytest.mark.parametrize("n", [499, 501, 3_000])
@pytest.mark.parametrize("p", [0.0, 0.001, 0.3, 1.0])
def test_binomial_tail_of_a_large_suite_equals_scipy(n, p):
    for k in (1, 3, 20, n):
        expected = scipy_stats.binom.sf(k - 1, n, p)
        assert statistics.binomial_tail(k, n, p) == pytest.approx(expected, abs=1e-10)


def test_several_small_p_values_are_rare_by_chance():
    rng = Random(4)
    found = sum(
        statistics.several_small([rng.random() for _ in range(40)], 40) <= 0.05
        for _ in range(4_000)
    )
    assert found / 4_000 < 0.05
    assert statistics.several_small([0.001] * 4, 40) < 0.0001
    assert statistics.several_small([0.001], 40) > 0.03
    assert statistics.several_small([], 40) == 1.0


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(0, 20))
def test_several_small_never_beats_its_own_binomial_tail(ps, more):
    family = len(ps) + more
    p = statistics.several_small(ps, family)
    assert 0 <= p <= 1
    tails = [
        scipy_stats.binom.sf(k - 1, family, one)
        for k, one in enumerate(sorted(ps)[:20], start=1)
    ]
    expected = min(1.0, min(family, 20) * min(tails, default=1.0)) if tails else 1.0
    assert p == pytest.approx(expected, abs=1e-9)
