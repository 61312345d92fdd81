"""Limits: how much more than the base the head may use."""

from __future__ import annotations

from collections.abc import Sequence
from math import fsum
from math import inf

from pytest_evo.gate import statistics
from pytest_evo.gate.caseevidence import CaseEvidence
from pytest_evo.gate.evidence import Evidence
from pytest_evo.gate.judging import rng
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import Limit
from pytest_evo.gate.values import LimitCheck
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Stage
from pytest_evo.gate.values import Stored

_METRICS = ("tokens", "seconds", "usd")


def check_limits(
    evidence: Evidence, change: Change
) -> tuple[tuple[LimitCheck, ...], tuple[str, ...]]:
    """Hold the head against every limit; and say which could not be held."""
    checks: list[LimitCheck] = []
    unknown: list[str] = []
    for limit in evidence.policy.limits:
        if limit.metric == "bytes":
            pairs = _bytes(change)
        elif limit.metric in _METRICS:
            pairs = _pairs(evidence.measured, limit.metric)
        else:
            pairs = []
        if pairs:
            checks.append(_check(evidence, limit, pairs))
        else:
            unknown.append(
                f"limit on {limit.metric}: not held, for it is not known on both sides"
            )
    return tuple(checks), tuple(unknown)


def _bytes(change: Change) -> list[tuple[float, float]]:
    if change.base_bytes is None or change.head_bytes is None:
        return []
    return [(float(change.base_bytes), float(change.head_bytes))]


def _pairs(cases: Sequence[CaseEvidence], metric: str) -> list[tuple[float, float]]:
    found = []
    for e in cases:
        base, head = _mean(e, Arm.BASE, metric), _mean(e, Arm.HEAD, metric)
        if base is not None and head is not None:
            found.append((base * e.case.weight, head * e.case.weight))
    return found


def _mean(e: CaseEvidence, arm: Arm, metric: str) -> float | None:
    seen = e.seen(arm, Stage.FIRST, Stage.MORE)
    kept = [o for o in seen if not o.outcome.is_infrastructure]
    if arm is Arm.BASE and not kept:
        return _stored(e.case.stored, metric)
    values = [_used(o, metric) for o in kept]
    known = [value for value in values if value is not None]
    return fsum(known) / len(known) if known and len(known) == len(values) else None


def _used(observation: Observation, metric: str) -> float | None:
    if metric == "tokens":
        return float(observation.tokens)
    return observation.seconds if metric == "seconds" else observation.usd


def _stored(stored: Stored | None, metric: str) -> float | None:
    if stored is None:
        return None
    if metric == "tokens":
        return stored.tokens
    return stored.seconds if metric == "seconds" else stored.usd


def _check(
    evidence: Evidence, limit: Limit, pairs: Sequence[tuple[float, float]]
) -> LimitCheck:
    base, head = (fsum(side) for side in zip(*pairs, strict=True))
    if base <= 0:
        ratio = low = high = inf if head > 0 else 1.0
    else:
        ratio = head / base
        low, high = statistics.bootstrap_ratio(
            pairs, evidence.policy.confidence, rng(evidence.policy, limit.metric)
        )
    return LimitCheck(
        metric=limit.metric,
        base=base,
        head=head,
        ratio=ratio,
        low=low,
        high=high,
        max_ratio=limit.max_ratio,
        exceeded=min(ratio, low) > limit.max_ratio * (1 + 1e-9),
    )
