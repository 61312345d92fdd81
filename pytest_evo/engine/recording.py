"""Rollouts and candidates to journal records, and rollouts back."""

from __future__ import annotations

from pytest_evo.events import CandidateRecorded
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import Candidate
from pytest_evo.models import Purpose
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import Status


def rollout_record(
    rollout: Rollout, purpose: Purpose, iteration: int, split: Split | None
) -> RolloutRecorded:
    """The record of a finished rollout."""
    return RolloutRecorded(
        candidate=rollout.candidate,
        tree=rollout.tree,
        case=rollout.case,
        split=split,
        repeat=rollout.repeat,
        outcome=rollout.outcome,
        score=rollout.score,
        seconds=rollout.seconds,
        purpose=purpose,
        iteration=iteration,
        attempt=rollout.attempt,
        metrics=rollout.metrics,
        usage=rollout.usage,
        reach=rollout.reach.files,
        exact=rollout.reach.exact,
        network=rollout.reach.network,
        processes=rollout.reach.processes,
        violation=rollout.violation,
        worker=rollout.worker,
        trace=rollout.trace,
    )


def as_rollout(event: RolloutRecorded, candidate: Candidate) -> Rollout:
    """The rollout behind a record, as a rollout of ``candidate``."""
    return Rollout(
        candidate=candidate.id,
        tree=event.tree,
        case=event.case,
        repeat=event.repeat,
        outcome=event.outcome,
        score=event.score,
        seconds=event.seconds,
        attempt=event.attempt,
        metrics=event.metrics,
        usage=event.usage,
        reach=Reach(event.reach, event.exact, event.network, event.processes),
        violation=event.violation,
        worker=event.worker,
        trace=event.trace,
    )


def candidate_record(candidate: Candidate, status: Status) -> CandidateRecorded:
    """The record of a candidate."""
    return CandidateRecorded(
        id=candidate.id,
        parent=candidate.parent,
        tree=candidate.tree,
        status=status,
        base=candidate.base,
        iteration=candidate.iteration,
        step=candidate.step,
        changelog=candidate.changelog,
        data=candidate.data,
    )
