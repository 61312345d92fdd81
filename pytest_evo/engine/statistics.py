"""The arithmetic behind decisions and claims; the standard library only."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from math import fsum
from math import lgamma
from math import log
from math import log1p
from math import sqrt
from statistics import NormalDist
from typing import Literal

from pytest_evo.events import NoiseMeasured
from pytest_evo.means import mean
from pytest_evo.means import weighted_mean
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Claim
from pytest_evo.models import EPSILON
from pytest_evo.models import Rollout
from pytest_evo.models import ScoreVector
from pytest_evo.models import Split

CONFIDENCE = 0.95
METHOD = "Student t over cases"
"""How the interval of a claim is made, for reports."""

_NORMAL = NormalDist()
_LARGEST_VARIANCE = 0.25  # of a score in [0, 1]: a fair coin


# -- means and variances -----------------------------------------------------------


def case_means(repeats: Mapping[CaseId, Sequence[float]]) -> dict[CaseId, float]:
    """Repeats averaged per case."""
    return {case: mean(scores) for case, scores in repeats.items()}


def pooled_variance(groups: Iterable[Sequence[float]]) -> float:
    """Within-case variance of one rollout, pooled over cases with repeats.

    A few repeats that agree do not prove silence, so the fair coin (0.25) counts as one
    further degree of freedom, shared among the cases that were seen to vary: with no
    repeats at all the answer is 0.25, with none differing in 20 x 3 it is 0.006, and
    where many cases vary the measured figure stands.
    """
    squares = 0.0
    freedom = 0
    varied = 0
    for scores in groups:
        if len(scores) < 2:
            continue
        centre = mean(scores)
        squares += fsum((score - centre) ** 2 for score in scores)
        freedom += len(scores) - 1
        varied += max(scores) - min(scores) > EPSILON
    prior = 1 / (1 + varied)
    return (squares + prior * _LARGEST_VARIANCE) / (freedom + prior)


# -- noise -------------------------------------------------------------------------


def agree(scores: Sequence[float]) -> bool:
    """Whether repeats of one case came out the same."""
    return not scores or max(scores) - min(scores) <= EPSILON


def is_noisy(
    rollouts: Sequence[Rollout],
    declared: bool | None = None,
    *,
    peers_agree: bool = True,
    trust_repeats: bool = False,
) -> bool:
    """Whether a case may come out differently when it is run again.

    Deterministic is only what is ``declared`` so, or what opened no socket, started no
    process and agreed in its repeats; a case without repeats needs the sampled ones of
    its kind to have agreed (``peers_agree``). ``trust_repeats`` believes repeats
    although the case uses the network or processes.
    """
    if declared is not None:
        return not declared
    outside = any(r.reach.network or r.reach.processes for r in rollouts)
    if outside and not trust_repeats:
        return True
    scores = [r.score for r in rollouts if r.score is not None]
    if not agree(scores) or len({r.outcome for r in rollouts}) > 1:
        return True
    return not peers_agree and len(scores) < 2


def measure_noise(
    cases: Sequence[Case],
    rollouts: Mapping[CaseId, Sequence[Rollout]],
    mode: Literal["auto", "none", "repeats"] = "auto",
) -> NoiseMeasured:
    """Read the baseline's repeats: which cases are noisy, and how much.

    Args:
        cases: all frozen cases.
        rollouts: every baseline rollout by case; some cases have several.
        mode: ``none`` calls everything deterministic, ``repeats`` believes repeats even
            of cases that use the network or processes.
    """
    if mode == "none":
        return NoiseMeasured(tuple(case.id for case in cases), (), 0.0)
    trust = mode == "repeats"
    sampled = [c for c in cases if len(rollouts.get(c.id, ())) > 1]
    local = [c for c in sampled if trust or not _outside(rollouts[c.id])]
    peers_agree = not any(
        is_noisy(rollouts[case.id], case.deterministic, trust_repeats=trust)
        for case in local
        if case.deterministic is None
    )
    noisy = tuple(
        case.id
        for case in cases
        if is_noisy(
            rollouts.get(case.id, ()),
            case.deterministic,
            peers_agree=peers_agree,
            trust_repeats=trust,
        )
    )
    restless = frozenset(noisy)
    return NoiseMeasured(
        deterministic=tuple(c.id for c in cases if c.id not in restless),
        noisy=noisy,
        variance=pooled_variance(_scores(rollouts.get(case, ())) for case in noisy)
        if noisy
        else 0.0,
        maybe_cached=tuple(
            case.id
            for case in sampled
            if any(r.reach.network for r in rollouts[case.id])
            and agree(_scores(rollouts[case.id]))
        ),
    )


def _outside(rollouts: Sequence[Rollout]) -> bool:
    return any(r.reach.network or r.reach.processes for r in rollouts)


def _scores(rollouts: Sequence[Rollout]) -> list[float]:
    return [r.score for r in rollouts if r.score is not None]


# -- tests and intervals -----------------------------------------------------------


def upper_z(alpha: float) -> float:
    """The point that a standard normal exceeds with probability ``alpha``."""
    return -_NORMAL.inv_cdf(alpha)


def p_value(effect: float, error: float) -> float:
    """One-sided p of a mean with a known standard error; the claim is ``> 0``."""
    if error <= 0:
        return 0.0 if effect > 0 else 1.0
    return _NORMAL.cdf(-effect / error)


def paired_error(
    repeats: Iterable[tuple[float, int, int]], variance: float, total_weight: float
) -> float:
    """Standard error of the weighted mean difference.

    Args:
        repeats: per noisy case its weight and the rollouts of either arm.
        variance: of one rollout of a noisy case.
        total_weight: of all cases, the deterministic ones included.
    """
    return (
        sqrt(fsum(w * w * variance * (1 / a + 1 / b) for w, a, b in repeats))
        / total_weight
    )


def incomplete_beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function I_x(a, b)."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side
        return 1 - incomplete_beta(b, a, 1 - x)
    front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x))
    return front * _beta_fraction(a, b, x) / a


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of I_x(a, b), evaluated from the front (Lentz)."""
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    result = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            result *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return result


def t_cdf(t: float, freedom: float) -> float:
    """P(T <= t) of Student's t."""
    tail = 0.5 * incomplete_beta(freedom / 2, 0.5, freedom / (freedom + t * t))
    return 1 - tail if t > 0 else tail


def t_quantile(probability: float, freedom: float) -> float:
    """The t with P(T <= t) = probability, by bisection."""
    if not 0 < probability < 1 or freedom <= 0:
        raise ValueError(
            f"a t quantile needs 0 < probability < 1 and freedom > 0, "
            f"not {probability} and {freedom}"
        )
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while t_cdf(high, freedom) < probability:
        low, high = high, high * 2
    while high - low > 1e-12 * (1 + high):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_cdf(middle, freedom) < probability:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """A mean difference over cases with its 95 % interval."""

    mean: float
    low: float
    high: float
    cases: int


def paired_difference(
    start: ScoreVector,
    winner: ScoreVector,
    weights: Mapping[CaseId, float] | None = None,
) -> PairedDifference:
    """Winner minus start over the cases that both have, with a 95 % interval.

    The unit is the case: Student's t over the differences of the cases, whatever the
    repeats behind each were. Where all differ equally (one case only is the plain
    example) t has no width; then the interval allows for the share of cases that can
    have been missed with 97.5 % confidence, ``1 - 0.025 ** (1 / n)``, at either end of
    the scale. The interval is cut at -1 and 1.

    Raises:
        ValueError: no case is in both.
    """
    cases = [case for case in start if case in winner]
    if not cases:
        raise ValueError("a paired difference needs a case that both sides have")
    pairs = [winner[case] - start[case] for case in cases]
    heavy = [(weights or {}).get(case, 1.0) for case in cases]
    total = fsum(heavy)
    count = len(cases)
    centre = fsum(w * d for w, d in zip(heavy, pairs, strict=True)) / total
    if max(pairs) - min(pairs) <= EPSILON:
        missed = 1 - ((1 - CONFIDENCE) / 2) ** (1 / count)
        low, high = centre - missed * (1 + centre), centre + missed * (1 - centre)
    else:
        squares = fsum(
            (w * (d - centre)) ** 2 for w, d in zip(heavy, pairs, strict=True)
        )
        error = sqrt(squares * count / (count - 1)) / total
        margin = t_quantile((1 + CONFIDENCE) / 2, count - 1) * error
        low, high = centre - margin, centre + margin
    return PairedDifference(centre, max(-1.0, low), min(1.0, high), count)


def make_claim(
    split: Split,
    start: ScoreVector,
    winner: ScoreVector,
    *,
    in_sample: bool,
    weights: Mapping[CaseId, float] | None = None,
    audit: Mapping[str, tuple[float, float]] | None = None,
) -> Claim:
    """Start against winner on the cases that both have a score for."""
    found = paired_difference(start, winner, weights)
    both = [case for case in start if case in winner]
    before = weighted_mean({case: start[case] for case in both}, weights)
    after = weighted_mean({case: winner[case] for case in both}, weights)
    return Claim(
        split=split,
        in_sample=in_sample,
        cases=found.cases,
        start=before or 0.0,
        winner=after or 0.0,
        difference=found.mean,
        low=found.low,
        high=found.high,
        worse=tuple(c for c in both if winner[c] < start[c] - EPSILON),
        better=tuple(c for c in both if winner[c] > start[c] + EPSILON),
        audit=dict(audit or {}),
    )
