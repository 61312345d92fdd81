"""The tests of the gate: what may be said of the cases one by one and together.

The policy's ``alpha`` is shared out among four looks at noisy cases, so that their
union keeps it: the early stop, the mean of unselected rollouts, the suspects together,
and the suspects one by one. Deterministic cases need no share: they cannot flip by
chance.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from math import fsum
from math import sqrt
from random import Random

from pytest_evo.gate import statistics
from pytest_evo.gate.caseevidence import CaseEvidence
from pytest_evo.gate.caseevidence import Pair
from pytest_evo.gate.evidence import Evidence
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Effect
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Scope
from pytest_evo.gate.values import Stage
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON

SHARE_PLAIN = 0.10
SHARE_MEAN = 0.20
SHARE_SUSPECTS = 0.35
SHARE_CASES = 0.35
_UNSELECTED = (Stage.FIRST, Stage.MORE)


def rng(policy: GatePolicy, purpose: str) -> Random:
    """A generator of its own for one test, so that tests do not disturb each other."""
    return Random(f"{policy.seed}:gate:{purpose}")


def look_share(rounds: int) -> float:
    """The part of a share that the look after this many rounds may spend.

    1/2, 1/6, 1/12, ... add up to 1, so going on until something shows costs nothing.
    """
    return 1 / (rounds * (rounds + 1))


# -- the early stop ----------------------------------------------------------------


def plainly_broken(evidence: Evidence) -> bool:
    """Whether betting over the first pairs, in plan order, ever reached its goal."""
    heaviest = max((e.case.weight for e in evidence.order), default=0.0)
    if heaviest <= 0 or evidence.policy.tolerance > 0:
        return False  # bets are on any loss at all
    bettor = statistics.Bettor()
    goal = plain_goal(evidence.policy)
    return any(
        bettor.see(e.first.difference * e.case.weight / heaviest) >= goal
        for e in evidence.measured
        if e.first
    )


def plain_goal(policy: GatePolicy) -> float:
    """The wealth at which a head is plainly broken."""
    return 1 / (policy.alpha * SHARE_PLAIN)


# -- suspects ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SuspectTest:
    """Fresh rollouts of the suspects: together, and each by itself."""

    p: float = 1.0
    loss: float = 0.0  # of the suspects, as a share of the weight of all cases
    mean: float = 0.0  # head minus base over the suspects
    by_case: tuple[tuple[CaseId, float, float], ...] = ()  # p, p after Holm


def judge_suspects(evidence: Evidence) -> SuspectTest:
    """Test the suspects on their confirmations.

    Together: a stratified exchange test for each round, joined by the inverse normal;
    the second round looks only at who was still worse after the first. The weights are
    the planned sizes. One by one: both rounds pooled, Holm over all suspects. A case
    that left after the first round has p = 1, which can only lose power. Where stored
    counts stand for the base: whether several cases are worse by themselves.
    """
    suspects = evidence.suspects
    if not suspects:
        return SuspectTest()
    rounds = {e.case.id: evidence.confirmations(e) for e in suspects}
    stored = any(not e.seen(Arm.BASE, Stage.CONFIRMATION) for e in suspects)
    ones = [_one_by_itself(evidence, e, *rounds[e.case.id]) for e in suspects]
    # Stored counts took part in the suspicion; Holm over all cases pays for that.
    family = len(evidence.noisy) if stored else len(suspects)
    by_case = tuple(
        (e.case.id, p, adjusted)
        for e, p, adjusted in zip(
            suspects, ones, statistics.holm(ones, family), strict=True
        )
    )
    moves = {e.case.id: _mean_difference(rounds[e.case.id]) for e in suspects}
    weight = fsum(e.case.weight for e in (*evidence.measured, *evidence.spared))
    loss = fsum(e.case.weight * moves[e.case.id] for e in suspects)
    return SuspectTest(
        p=statistics.several_small(ones, family)
        if stored  # whose counts were seen before: they cannot be exchanged
        else _all_together(evidence, rounds),
        loss=loss / weight if weight else 0.0,
        mean=fsum(moves.values()) / len(moves),
        by_case=by_case,
    )


def _one_by_itself(
    evidence: Evidence, e: CaseEvidence, first: list[Pair], second: list[Pair]
) -> float:
    if not second:
        return 1.0
    stratum = _stratum(e, [*first, *second])
    return statistics.exchange_p([stratum], rng(evidence.policy, f"case:{e.case.id}"))


def _all_together(
    evidence: Evidence, rounds: Mapping[CaseId, tuple[list[Pair], list[Pair]]]
) -> float:
    policy = evidence.policy
    parts = []
    for index, size in enumerate(policy.confirm):
        strata = [_stratum(e, rounds[e.case.id][index]) for e in evidence.suspects]
        p = statistics.exchange_p(strata, rng(policy, f"round:{index}"))
        parts.append((p, sqrt(size)))
    return statistics.combine(parts)


def _stratum(evidence: CaseEvidence, pairs: Sequence[Pair]) -> statistics.Stratum:
    heads = [pair.head.score for pair in pairs]
    stored = evidence.case.stored
    if stored is None or evidence.seen(Arm.BASE, Stage.CONFIRMATION):
        return [pair.base.score for pair in pairs], heads
    if abs(stored.mean * stored.n - stored.passes) <= EPSILON * stored.n:
        return [1.0] * stored.passes + [0.0] * (stored.n - stored.passes), heads
    return [stored.mean] * stored.n, heads


def _mean_difference(rounds: tuple[list[Pair], list[Pair]]) -> float:
    pairs = [*rounds[0], *rounds[1]]
    return fsum(pair.difference for pair in pairs) / len(pairs) if pairs else 0.0


# -- effects -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Point:
    """One case of an effect: its means over unselected rollouts."""

    base: float
    head: float
    weight: float
    exact: bool
    rollouts: int


def overall(evidence: Evidence) -> Effect | None:
    """The effect over everything that counts; None where nothing was measured."""
    points = [_point(evidence, e) for e in evidence.measured]
    if not points:
        return None
    return _effect(
        evidence, Scope.OVERALL, "", [*points, *_unchanged(points, evidence.spared)]
    )


def by_group(evidence: Evidence) -> list[Effect]:
    """One effect for each group that is not everything."""
    names = sorted({e.case.group for e in evidence.measured if e.case.group})
    groups = {e.case.group for e in (*evidence.measured, *evidence.spared)}
    if len(groups) < 2:
        return []
    found = []
    for name in names:
        points = [
            _point(evidence, e) for e in evidence.measured if e.case.group == name
        ]
        spared = [e for e in evidence.spared if e.case.group == name]
        points += _unchanged(points, spared)
        found.append(_effect(evidence, Scope.GROUP, name, points))
    return found


def by_metric(evidence: Evidence) -> list[Effect]:
    """One effect for each named metric that both arms have."""
    values: dict[str, list[_Point]] = {}
    audit: set[str] = set()
    for e in evidence.measured:
        sides = [_metric_means(e, arm, audit) for arm in Arm]
        for name in sides[0].keys() & sides[1].keys():
            values.setdefault(name, []).append(
                _Point(
                    sides[0][name],
                    sides[1][name],
                    e.case.weight,
                    e.case.id in evidence.exact_ids,
                    len(e.pairs(*_UNSELECTED)),
                )
            )
    return [
        _effect(evidence, Scope.METRIC, name, values[name], counts=name not in audit)
        for name in sorted(values)
    ]


def adjust(effects: Sequence[Effect]) -> list[Effect]:
    """Groups and metrics after Holm; those that do not count keep their p."""
    counting = [effect for effect in effects if effect.counts]
    adjusted = iter(statistics.holm([effect.p for effect in counting]))
    return [
        replace(effect, p_adjusted=next(adjusted)) if effect.counts else effect
        for effect in effects
    ]


def _point(evidence: Evidence, e: CaseEvidence) -> _Point:
    pairs = e.pairs(*_UNSELECTED)
    exact = e.case.id in evidence.exact_ids
    return _Point(
        fsum(pair.base.score for pair in pairs) / len(pairs),
        fsum(pair.head.score for pair in pairs) / len(pairs),
        e.case.weight,
        exact,
        len(pairs),
    )


def _unchanged(
    points: Sequence[_Point], spared: Sequence[CaseEvidence]
) -> list[_Point]:
    """Cases that were not run: what is stored of them, or the mean of the others."""
    total = fsum(point.weight for point in points) or 1.0
    mean = fsum(point.weight * point.base for point in points) / total
    found = []
    for e in spared:
        stored = e.case.stored
        known = mean if stored is None else stored.mean
        found.append(_Point(known, known, e.case.weight, exact=True, rollouts=0))
    return found


def _metric_means(e: CaseEvidence, arm: Arm, audit: set[str]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    seen = [m for o in e.seen(arm, *_UNSELECTED) for m in o.metrics]
    if arm is Arm.BASE and not seen and e.case.stored is not None:
        seen = list(e.case.stored.metrics)
    for metric in seen:
        values.setdefault(metric.name, []).append(metric.value)
        if metric.audit:
            audit.add(metric.name)
    return {name: fsum(found) / len(found) for name, found in values.items()}


def _effect(
    evidence: Evidence,
    scope: Scope,
    name: str,
    points: Sequence[_Point],
    *,
    counts: bool = True,
) -> Effect:
    total = fsum(point.weight for point in points) or 1.0
    noisy = [point for point in points if not point.exact]
    exact = fsum(p.weight * (p.head - p.base) for p in points if p.exact) / total
    share = fsum(point.weight for point in noisy) / total
    low = high = 0.0
    p = 1.0
    if noisy and share > 0:
        scale = len(noisy) / (share * total)
        moves = [point.weight * scale * (point.head - point.base) for point in noisy]
        repeats = fsum(point.rollouts for point in noisy) / len(noisy)
        low, high = statistics.paired_interval(
            moves, evidence.policy.confidence, repeats
        )
        p = statistics.sign_flip(moves, rng(evidence.policy, f"{scope}:{name}"))
        tolerance = evidence.policy.tolerance
        if tolerance > 0:  # the null is a loss of all that is tolerated, not of nothing
            moves = [move + (tolerance + exact) / share for move in moves]
            draws = rng(evidence.policy, f"{scope}:{name}:tolerance")
            p = max(p, statistics.sign_flip(moves, draws))  # draws vary a little
    if exact < 0 and evidence.policy.is_loss(exact):
        p = 0.0
    base = fsum(point.weight * point.base for point in points) / total
    head = fsum(point.weight * point.head for point in points) / total
    return Effect(
        scope=scope,
        name=name,
        cases=len(points),
        base=base,
        head=head,
        difference=head - base,
        low=exact + share * low,
        high=exact + share * high,
        p=p,
        p_adjusted=p,
        worse=sum(point.head < point.base - EPSILON for point in points),
        better=sum(point.head > point.base + EPSILON for point in points),
        counts=counts,
    )
