"""From raw rollouts to scores: the one place where an outcome becomes a number."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace

from pytest_evo.engine import statistics
from pytest_evo.models import CaseId
from pytest_evo.models import COPY_CHANGED
from pytest_evo.models import Outcome
from pytest_evo.models import Rollout

SCORED = frozenset({Outcome.PASSED, Outcome.FAILED})


def score_rollout(rollout: Rollout, *, suite_writes: bool = False) -> Rollout:
    """Give a rollout of a frozen case its score, or None where it has none.

    A case that the candidate makes uncollectable, skips, or cheats on scores 0,
    however it ended: it passed or failed at the baseline. An infrastructure error says
    nothing and stays without a score. ``suite_writes``: the start's copies of the
    artifact were written into too, so that is what this suite does and no cheating.
    """
    if _cheats(rollout, suite_writes):
        score: float | None = 0.0
    elif rollout.outcome.is_infrastructure:
        score = None
    elif rollout.outcome not in SCORED:
        score = 0.0
    else:
        score = rollout.score
    return rollout if score == rollout.score else replace(rollout, score=score)


def wrote_into_copy(violation: str | None) -> bool:
    """Whether a violation is a change of the throw-away copy, and nothing else."""
    return violation is not None and violation.startswith(COPY_CHANGED)


def _cheats(rollout: Rollout, suite_writes: bool) -> bool:
    if suite_writes and wrote_into_copy(rollout.violation):
        return False
    return rollout.violation is not None


def scores_by_case(rollouts: Iterable[Rollout]) -> dict[CaseId, tuple[float, ...]]:
    """The scores of each case in repeat order; cases without any are left out."""
    found: dict[CaseId, list[tuple[int, float]]] = {}
    for rollout in rollouts:
        if rollout.score is not None:
            found.setdefault(rollout.case, []).append((rollout.repeat, rollout.score))
    return {
        case: tuple(score for _, score in sorted(pairs))
        for case, pairs in found.items()
    }


def means(scores: Mapping[CaseId, Sequence[float]]) -> dict[CaseId, float]:
    """The mean over the repeats of each case."""
    return statistics.case_means(scores)
