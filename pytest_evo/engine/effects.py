"""What rollouts say of each changed file: the measured effect of a changelog entry."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from math import fsum

from pytest_evo.engine.scoring import means
from pytest_evo.engine.scoring import scores_by_case
from pytest_evo.models import Candidate
from pytest_evo.models import CaseId
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Effect
from pytest_evo.models import EPSILON
from pytest_evo.models import Node
from pytest_evo.models import Rollout


def with_effects(
    candidate: Candidate, rollouts: Sequence[Rollout], base: Node
) -> Candidate:
    """The candidate with the effect of each of its changelog's entries.

    Args:
        candidate: that has run on its batch.
        rollouts: how it ran.
        base: the node whose files it was made from, with its rollouts.
    """
    before = means(scores_by_case(base.rollouts))
    after = means(scores_by_case(rollouts))
    entries = tuple(
        replace(entry, effect=_effect(entry, base, rollouts, before, after))
        for entry in candidate.changelog
    )
    return replace(candidate, changelog=entries)


def _effect(
    entry: ChangelogEntry,
    base: Node,
    rollouts: Sequence[Rollout],
    before: Mapping[CaseId, float],
    after: Mapping[CaseId, float],
) -> Effect:
    sure, unsure = _reaching(entry, base.rollouts, rollouts)
    order = dict.fromkeys(rollout.case for rollout in rollouts)
    cases = tuple(case for case in order if case in sure or case in unsure)
    both = [case for case in cases if case in before and case in after]
    changes = {case: after[case] - before[case] for case in both}
    return Effect(
        base=base.candidate.id,
        cases=cases,
        unsure=tuple(case for case in cases if case not in sure),
        before=_mean([before[case] for case in both]),
        after=_mean([after[case] for case in both]),
        better=tuple(case for case, by in changes.items() if by > EPSILON),
        worse=tuple(case for case, by in changes.items() if by < -EPSILON),
    )


def _reaching(
    entry: ChangelogEntry, before: Sequence[Rollout], after: Sequence[Rollout]
) -> tuple[set[CaseId], set[CaseId]]:
    """Cases that reach a file, and those that could.

    A file that comes or goes can be noticed without being read (a listing, a test for
    its existence), so every other case could.
    """
    seen = [*before, *after] if entry.change == "deleted" else after
    sure = {rollout.case for rollout in seen if entry.file in rollout.reach.files}
    if entry.change == "modified":
        unsure = {rollout.case for rollout in after if not rollout.reach.exact}
    else:
        unsure = {rollout.case for rollout in after}
    return sure, unsure - sure


def _mean(values: Sequence[float]) -> float | None:
    return fsum(values) / len(values) if values else None
