"""The gate's arithmetic: exact tests, an interval, an early stop.

The standard library only. Every p is one-sided and small where the head is worse. What
is drawn at random comes from a generator that the caller seeds.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from itertools import accumulate
from math import comb
from math import exp
from math import fsum
from math import lgamma
from math import log
from math import log1p
from math import sqrt
from random import Random
from statistics import NormalDist
from typing import TypeAlias

from pytest_evo.models import EPSILON

DRAWS = 10_000
ENOUGH = 50  # draws as extreme as what was seen, after which p is known well enough
_ENUMERATED = 16  # pairs up to which all 2 ** n signs are looked at
_BETS = (0.25, 0.5, 0.75)  # shares of the money on every next bet
_EXACT = 500  # the largest n of which all binomial coefficients are floats
_MOST_SMALL = 20  # of the smallest p-values that are looked at together
_NORMAL = NormalDist()

Stratum: TypeAlias = tuple[Sequence[float], Sequence[float]]
"""Scores of one case: base, head."""


# -- binomial ----------------------------------------------------------------------


def binomial_tail(k: int, n: int, p: float = 0.5) -> float:
    """P(X >= k) of a binomial."""
    if k <= 0:
        return 1.0
    if p == 0.5:
        return sum(comb(n, i) for i in range(k, n + 1)) / (1 << n)
    if n > _EXACT or not 0 < p < 1:
        return _long_tail(k, n, p)
    return min(
        1.0, fsum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k, n + 1))
    )


def _long_tail(k: int, n: int, p: float) -> float:
    """The same by logarithms: the coefficients are too large for floats."""
    if not 0 < p < 1:
        return float(p >= 1 and k <= n)
    terms = (
        lgamma(n + 1)
        - lgamma(i + 1)
        - lgamma(n - i + 1)
        + i * log(p)
        + (n - i) * log1p(-p)
        for i in range(k, n + 1)
    )
    return min(1.0, fsum(map(exp, terms)))


def clopper_pearson(k: int, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """The exact interval of a share, of which ``k`` in ``n`` were seen (n <= 1000)."""
    tail = (1 - confidence) / 2
    low = 0.0 if k == 0 else _bisect(lambda p: binomial_tail(k, n, p) < tail)
    high = 1.0 if k == n else _bisect(lambda p: 1 - binomial_tail(k + 1, n, p) > tail)
    return low, high


def _bisect(below: Callable[[float], bool]) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if below(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


# -- exchangeable rollouts ---------------------------------------------------------


def fisher_less(head_passes: int, head_n: int, base_passes: int, base_n: int) -> float:
    """Fisher's exact test: p of so few passes at the head, given all passes."""
    chances = _hypergeometric(head_n, base_n, head_passes + base_passes)
    return min(1.0, fsum(chance for k, chance in chances.items() if k <= head_passes))


def _hypergeometric(head_n: int, base_n: int, passes: int) -> dict[int, float]:
    """How the passes fall to the head where the arms are alike."""
    total = comb(head_n + base_n, passes)
    least, most = max(0, passes - base_n), min(head_n, passes)
    return {
        k: comb(head_n, k) * comb(base_n, passes - k) / total
        for k in range(least, most + 1)
    }


def exchange_p(strata: Iterable[Stratum], rng: Random) -> float:
    """P of so low a head, where within a case it does not matter which arm ran.

    Passes and fails are convolved exactly (one case: Fisher's test); other scores are
    exchanged within each case at random, ``DRAWS`` times at most.
    """
    kept = [(base, head) for base, head in strata if base and head]
    if not kept:
        return 1.0
    if all(_binary(base) and _binary(head) for base, head in kept):
        return _convolved(kept)
    seen = fsum(fsum(head) for _, head in kept)
    pools = [([*base, *head], len(head)) for base, head in kept]
    hits = 0
    for draw in range(1, DRAWS + 1):
        total = fsum(fsum(rng.sample(pool, size)) for pool, size in pools)
        hits += total <= seen + EPSILON
        if hits == ENOUGH:
            return hits / draw
    return (hits + 1) / (DRAWS + 1)


def _binary(scores: Sequence[float]) -> bool:
    return all(score in (0.0, 1.0) for score in scores)


def _convolved(strata: Sequence[Stratum]) -> float:
    total = {0: 1.0}
    for base, head in strata:
        single = _hypergeometric(len(head), len(base), round(fsum(base) + fsum(head)))
        wider: dict[int, float] = {}
        for have, chance in total.items():
            for more, other in single.items():
                wider[have + more] = wider.get(have + more, 0.0) + chance * other
        total = wider
    seen = round(fsum(fsum(head) for _, head in strata))
    return min(1.0, fsum(chance for k, chance in total.items() if k <= seen))


# -- paired differences ------------------------------------------------------------


def sign_flip(differences: Iterable[float], rng: Random) -> float:
    """P of so low a sum, where each difference could as well have the other sign.

    Exact up to 16 differences that are not 0, and for any number of equal size (then it
    is the sign test, McNemar's exact test); ``DRAWS`` seeded draws otherwise.
    """
    moved = [d for d in differences if abs(d) > EPSILON]
    if not moved:
        return 1.0
    sizes = [abs(d) for d in moved]
    if max(sizes) - min(sizes) <= EPSILON:
        return binomial_tail(sum(d < 0 for d in moved), len(moved))
    tables = [_subset_sums(sizes[i : i + 8]) for i in range(0, len(sizes), 8)]
    # a sum with signs is all sizes minus twice those that are negative
    needed = fsum(-d for d in moved if d < 0) - EPSILON
    if len(moved) <= _ENUMERATED:
        first, second = tables[0], tables[1] if len(tables) > 1 else [0.0]
        hits = sum(a + b >= needed for a in first for b in second)
        return hits / (len(first) * len(second))
    hits = 0
    for draw in range(1, DRAWS + 1):
        hits += sum(rng.choice(table) for table in tables) >= needed
        if hits == ENOUGH:
            return hits / draw
    return (hits + 1) / (DRAWS + 1)


def _subset_sums(values: Sequence[float]) -> list[float]:
    sums = [0.0]
    for value in values:
        sums += [have + value for have in sums]
    return sums


def paired_interval(
    differences: Sequence[float], confidence: float, repeats: float = 1.0
) -> tuple[float, float]:
    """An interval of the mean of paired differences in [-1, 1].

    Two pairs that were never seen are added, one for and one against, so that a few
    equal pairs do not prove silence. Of single rollouts that pass or fail this is the
    adjusted Wald interval of Bonett and Price (2012); with ``repeats`` rollouts behind
    each side the added pairs are smaller by their root. Where most pairs differ, as
    graded scores do, the noise shows itself: then they are as large as the largest.
    """
    if not differences:
        return -1.0, 1.0
    count = len(differences) + 2
    sizes = [abs(d) for d in differences if abs(d) > EPSILON]
    graded = 2 * len(sizes) > len(differences)
    extra = max(sizes) if graded else 1 / sqrt(max(1.0, repeats))
    values = [*differences, extra, -extra]
    centre = fsum(values) / count
    variance = fsum((value - centre) ** 2 for value in values) / count
    half = normal_quantile((1 + confidence) / 2) * sqrt(variance / count)
    mean = fsum(differences) / len(differences)
    return max(-1.0, min(mean, centre - half)), min(1.0, max(mean, centre + half))


def bootstrap_ratio(
    pairs: Sequence[tuple[float, float]],
    confidence: float,
    rng: Random,
    draws: int = 2000,
) -> tuple[float, float]:
    """An interval of sum(head) / sum(base): cases are drawn again, with their pairs.

    Raises:
        ValueError: no pair has a base above 0.
    """
    if not any(base > 0 for base, _ in pairs):
        raise ValueError("a ratio needs a base above 0")
    ratios: list[float] = []
    while len(ratios) < draws:
        drawn = rng.choices(pairs, k=len(pairs))
        below = fsum(base for base, _ in drawn)
        if below > 0:
            ratios.append(fsum(head for _, head in drawn) / below)
    ratios.sort()
    cut = int((1 - confidence) / 2 * draws)
    return ratios[cut], ratios[-1 - cut]


class Bettor:
    """Bets against "no case is worse", one difference in [-1, 1] after the other.

    He stakes a fixed share of his money on every next difference being negative, and
    does so three times side by side: a quarter, a half, three quarters. If differences
    are at least 0 in expectation, whatever came before, ``wealth`` reaches 1 / alpha
    with a chance of at most alpha, however often one looks (Ville's inequality).
    """

    def __init__(self) -> None:
        self._purses = [1.0 / len(_BETS)] * len(_BETS)

    @property
    def wealth(self) -> float:
        """What he owns; he began with 1."""
        return fsum(self._purses)

    def see(self, difference: float) -> float:
        """Settle the bets on one difference; what he owns then."""
        self._purses = [
            purse * (1 - bet * difference)
            for purse, bet in zip(self._purses, _BETS, strict=True)
        ]
        return self.wealth


# -- several at once ---------------------------------------------------------------


def holm(ps: Sequence[float], family: int | None = None) -> list[float]:
    """P-values after Holm, in the given order.

    ``family`` counts tests that could have been made, where it is more than were.
    """
    order = sorted(range(len(ps)), key=lambda index: ps[index])
    size = max(len(ps), family or 0)
    raised = accumulate(
        (min(1.0, ps[index] * (size - rank)) for rank, index in enumerate(order)), max
    )
    adjusted = dict(zip(order, raised, strict=True))
    return [adjusted[index] for index in range(len(ps))]


def several_small(ps: Iterable[float], family: int) -> float:
    """A p-value for having as many small ones among ``family`` independent p-values.

    For each k, how likely the k-th smallest is as small by chance (a binomial tail, as
    in the statistic of Berk and Jones, 1979); the least of those, times how many were
    looked at (Bonferroni). Those that are not given count as 1.
    """
    ordered = sorted(ps)[:_MOST_SMALL]
    looks = min(family, _MOST_SMALL)
    tails = [binomial_tail(k, family, p) for k, p in enumerate(ordered, start=1)]
    return min(1.0, looks * min(tails)) if tails else 1.0


def combine(parts: Sequence[tuple[float, float]]) -> float:
    """One p from (p, weight) of independent stages: the weighted inverse normal.

    Weights are fixed beforehand; a later stage may choose what it looks at by what the
    earlier ones found.
    """
    total = sqrt(fsum(weight * weight for _, weight in parts))
    z = fsum(
        weight * _NORMAL.inv_cdf(1 - min(1 - 1e-12, max(1e-12, p)))
        for p, weight in parts
    )
    return 1 - _NORMAL.cdf(z / total)


def normal_quantile(probability: float) -> float:
    """The z that a standard normal stays below with this probability."""
    return _NORMAL.inv_cdf(probability)
