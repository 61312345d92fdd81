from __future__ import annotations

from random import Random

import pytest

from pytest_evo.engine.acceptance import EqualOrBetter
from pytest_evo.engine.acceptance import Paired
from pytest_evo.engine.acceptance import ROUNDS
from pytest_evo.engine.acceptance import SumDelta
from pytest_evo.models import Decision
from pytest_evo.protocols import Comparison
from pytest_evo.testing.strategy_contracts import AcceptanceContract


def comparison(parent, child, noisy=(), variance=0.0, attempts=1, fresh=False, **more):
    as_lists = [
        {
            str(at): list(value) if isinstance(value, tuple) else [value]
            for at, value in enumerate(side)
        }
        for side in (parent, child)
    ]
    return Comparison(
        *as_lists, frozenset(noisy), variance, more, attempts=attempts, fresh=fresh
    )


class TestPaired(AcceptanceContract):
    @pytest.fixture
    def acceptance(self):
        return Paired()


class TestSumDelta(AcceptanceContract):
    @pytest.fixture
    def acceptance(self):
        return SumDelta()


class TestEqualOrBetter(AcceptanceContract):
    @pytest.fixture
    def acceptance(self):
        return EqualOrBetter()


def test_paired_takes_any_gain_where_nothing_is_noisy():
    gained = comparison([0.0, 0.5], [0.0, 0.5 + 1e-6])
    assert Paired().decide(gained).decision is Decision.ACCEPTED
    lost = comparison([0.0, 0.5], [0.0, 0.5 + 1e-9])
    assert Paired().decide(lost).decision is Decision.REJECTED


def test_paired_weighs_cases():
    up_and_down = comparison([0.0, 1.0], [1.0, 0.0], **{"0": 3.0})
    verdict = Paired().decide(up_and_down)
    assert (verdict.decision, verdict.effect) == (Decision.ACCEPTED, 0.5)


def test_paired_waits_within_noise_and_accepts_beyond():
    names = [str(at) for at in range(8)]
    small = comparison([0.0] * 8, [1.0] + [0.0] * 7, names, 0.25)
    large = comparison([0.0] * 8, [1.0] * 7 + [0.0], names, 0.25)
    worse = comparison([1.0] * 8, [1.0] * 7 + [0.0], names, 0.25)
    assert Paired().decide(small).decision is Decision.UNDECIDED
    assert Paired().decide(large).decision is Decision.ACCEPTED
    assert Paired().decide(worse).decision is Decision.REJECTED


def test_paired_confirmation_is_one_look_and_never_undecided():
    names = [str(at) for at in range(8)]
    gains = ([0.0] * 8, [1.0] * 4 + [0.0] * 4)
    chain = Paired().decide(comparison(*gains, names, 0.25, attempts=6))
    fresh = Paired().decide(comparison(*gains, names, 0.25, attempts=6, fresh=True))
    assert chain.decision is Decision.UNDECIDED
    assert fresh.decision is Decision.ACCEPTED
    assert fresh.threshold < chain.threshold
    weak = comparison([0.0] * 8, [1.0] + [0.0] * 7, names, 0.25, fresh=True)
    assert Paired().decide(weak).decision is Decision.REJECTED


def test_paired_counts_only_noisy_cases_as_uncertain():
    sides = ([0.0] * 8, [1.0, 1.0] + [0.0] * 6)
    few = Paired().decide(comparison(*sides, ["7"], 0.25))
    many = Paired().decide(comparison(*sides, map(str, range(8)), 0.25))
    assert few.decision is Decision.ACCEPTED
    assert many.decision is Decision.UNDECIDED


def test_paired_repeats_narrow_the_threshold():
    names = ["0", "1"]
    once = Paired().decide(comparison([0.0, 0.0], [1.0, 0.0], names, 0.25))
    often = Paired().decide(
        comparison([(0.0,) * 4] * 2, [(1.0,) * 4, (0.0,) * 4], names, 0.25)
    )
    assert often.threshold == pytest.approx(once.threshold / 2)


def test_smallest_batch_is_the_first_that_can_be_accepted():
    rule = Paired()
    assert rule.smallest_batch(4, 0.0, 0.0, 6) == 4
    assert rule.smallest_batch(1, 1.0, 0.5, 6) > 1
    assert rule.smallest_batch(8, 1.0, 5000.0, 6) is None
    for variance in (0.1, 0.25, 0.5, 2.0):
        size = rule.smallest_batch(1, 1.0, variance, 6)
        arms = 1 + ROUNDS
        names = [str(at) for at in range(size)]
        child = [(1.0,) * arms] * max(1, size // 2) + [(0.0,) * arms] * size
        best = comparison(
            [(0.0,) * arms] * size, child[:size], names, variance, attempts=6
        )
        assert rule.decide(best).decision is Decision.ACCEPTED


def test_sum_delta_needs_its_delta_or_a_perfect_child():
    rule = SumDelta(1.0)
    below = comparison([0.0, 0.0], [0.9, 0.0])
    enough = comparison([0.0, 0.0], [1.0, 0.0])
    perfect = comparison([1.0, 0.5], [1.0, 1.0])
    assert rule.decide(below).decision is Decision.REJECTED
    assert rule.decide(enough).decision is Decision.ACCEPTED
    assert rule.decide(perfect).decision is Decision.ACCEPTED
    same = comparison([1.0, 1.0], [1.0, 1.0])
    assert SumDelta().decide(same).decision is Decision.REJECTED


def test_equal_or_better_takes_a_draw():
    rule = EqualOrBetter()
    assert rule.decide(comparison([0.5], [0.5])).decision is Decision.ACCEPTED
    assert rule.decide(comparison([0.5], [0.4])).decision is Decision.REJECTED


# -- a whole slot, simulated --------------------------------------------------------

DEPTH = 5


def _coin(rng, share):
    return float(rng.random() < share)


def _arm(rng, shares, count):
    return {
        str(at): [_coin(rng, share) for _ in range(count)]
        for at, share in enumerate(shares)
    }


def _one_node(rng, rule, parent, shares, shifted):
    """Direct test with up to three rounds of fresh repeats, then confirmation."""
    child = _arm(rng, shifted, 1)
    for round_ in range(ROUNDS + 1):
        verdict = rule.decide(
            Comparison(parent, child, frozenset(child), 0.25, {}, DEPTH + 1)
        )
        if verdict.decision is not Decision.UNDECIDED or round_ == ROUNDS:
            break
        for at, (before, after) in enumerate(zip(shares, shifted, strict=True)):
            name = str(at)
            child[name].append(_coin(rng, after))
            if len(parent[name]) < len(child[name]):
                parent[name].append(_coin(rng, before))
    if verdict.decision is not Decision.ACCEPTED:
        return False
    fresh = Comparison(
        _arm(rng, shares, 2),
        _arm(rng, shifted, 2),
        frozenset(child),
        0.25,
        {},
        DEPTH + 1,
        fresh=True,
    )
    return rule.decide(fresh).decision is Decision.ACCEPTED


def _validated_share(batch, shift, slots):
    rng = Random(20260)
    rule = Paired()
    reached = 0
    for _ in range(slots):
        shares = [0.5] * batch
        parent = _arm(rng, shares, 1)
        shifted = [share + shift for share in shares]
        reached += any(
            _one_node(rng, rule, parent, shares, shifted) for _ in range(DEPTH + 1)
        )
    return reached / slots


@pytest.mark.parametrize("batch", [4, 8, 16])
def test_slot_without_improvement_rarely_reaches_validation(batch):
    assert _validated_share(batch, 0.0, 400) <= 0.05


def test_slot_with_real_improvement_mostly_reaches_validation():
    assert _validated_share(16, 0.25, 200) >= 0.8
    assert _validated_share(8, 0.4, 200) >= 0.8
