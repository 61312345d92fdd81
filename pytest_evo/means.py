"""Means of scores: one rule for the engine, the store and the reports."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from math import fsum

from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import ScoreVector


def mean(values: Sequence[float]) -> float:
    """The plain mean of at least one value, exactly rounded."""
    return fsum(values) / len(values)


def weighted_mean(
    scores: ScoreVector, weights: Mapping[CaseId, float] | None = None
) -> float | None:
    """The mean of a score vector; None where nothing has a weight.

    A case that ``weights`` does not name weighs 1. Sums are exactly rounded, so the
    order of the cases does not matter.
    """
    known = weights or {}
    total = fsum(known.get(case, 1.0) for case in scores)
    if total <= 0:
        return None
    return fsum(known.get(case, 1.0) * score for case, score in scores.items()) / total


def mean_of(scores: ScoreVector, cases: Iterable[Case]) -> float | None:
    """The weighted mean over the cases that have a score; None if none has."""
    weights = {case.id: case.weight for case in cases if case.id in scores}
    return weighted_mean({case: scores[case] for case in weights}, weights)
