"""What can be measured over a chain: score history, reach, oscillation, lost wins."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import fsum

from pytest_evo.models import CandidateId
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Node
from pytest_evo.models import Outcome


@dataclass(frozen=True, slots=True)
class CaseHistory:
    """One case over the nodes of a chain, parent first.

    A score is the mean over repeats; None where the node has no score for the case.
    """

    case: CaseId
    scores: tuple[float | None, ...]
    outcomes: tuple[tuple[Outcome, ...], ...]  # per node, one per repeat

    @property
    def against_parent(self) -> float | None:
        """The newest score minus the parent's."""
        return _change(self.scores[-1], self.scores[0])

    @property
    def against_before(self) -> float | None:
        """The newest score minus that of the node before."""
        before = self.scores[-2] if len(self.scores) > 1 else None
        return _change(self.scores[-1], before)

    @property
    def turns(self) -> int:
        """How often the score changed its direction."""
        known = [score for score in self.scores if score is not None]
        moves = [b - a for a, b in pairwise(known)]
        signs = [move > 0 for move in moves if abs(move) > EPSILON]
        return sum(a != b for a, b in pairwise(signs))


@dataclass(frozen=True, slots=True)
class EditReach:
    """Whether the rollouts of a node read a file that it edited.

    ``unsure`` rollouts could have read it unseen (a process, a native library).
    """

    node: CandidateId
    file: str
    reached: int
    unsure: int
    rollouts: int

    @property
    def never(self) -> bool:
        """Whether it is certain that nobody read the edited file."""
        return self.rollouts > 0 and not self.reached and not self.unsure


@dataclass(frozen=True, slots=True)
class Facts:
    """What is measured, not read into it."""

    reach: tuple[EditReach, ...]
    oscillating: tuple[CaseId, ...]
    lost: tuple[CaseId, ...]  # perfect at the parent, no more at the newest node
    won: tuple[CaseId, ...]
    unmoved: tuple[CaseId, ...]  # below 1, and the same at every node
    twins: tuple[tuple[CandidateId, CandidateId], ...]  # nodes with equal files


def score_history(nodes: Sequence[Node]) -> tuple[CaseHistory, ...]:
    """Scores of every case over the nodes, in the order the cases appear."""
    cases = dict.fromkeys(r.case for node in nodes for r in node.rollouts)
    scores: list[Mapping[CaseId, list[float]]] = []
    outcomes: list[Mapping[CaseId, list[Outcome]]] = []
    for node in nodes:
        points: dict[CaseId, list[float]] = {}
        ends: dict[CaseId, list[Outcome]] = {}
        for rollout in node.rollouts:
            ends.setdefault(rollout.case, []).append(rollout.outcome)
            if rollout.score is not None:
                points.setdefault(rollout.case, []).append(rollout.score)
        scores.append(points)
        outcomes.append(ends)
    return tuple(
        CaseHistory(
            case,
            tuple(_mean(points.get(case, ())) for points in scores),
            tuple(tuple(ends.get(case, ())) for ends in outcomes),
        )
        for case in cases
    )


def measure(nodes: Sequence[Node]) -> Facts:
    """Facts about a chain, parent first."""
    rows = score_history(nodes)
    reach = tuple(
        _reach(node, entry.file)
        for node in nodes[1:]
        for entry in node.candidate.changelog
        if entry.change != "deleted"
    )
    seen: dict[str, CandidateId] = {}
    twins = []
    for node in nodes:
        first = seen.setdefault(node.candidate.tree, node.candidate.id)
        if first != node.candidate.id:
            twins.append((first, node.candidate.id))
    return Facts(
        reach=reach,
        oscillating=tuple(row.case for row in rows if row.turns),
        lost=tuple(r.case for r in rows if _is_perfect(r, 0) and _falls(r)),
        won=tuple(r.case for r in rows if _is_perfect(r, -1) and _rises(r)),
        unmoved=tuple(row.case for row in rows if _is_unmoved(row)),
        twins=tuple(twins),
    )


def _reach(node: Node, file: str) -> EditReach:
    reached = sum(file in rollout.reach.files for rollout in node.rollouts)
    unsure = sum(
        file not in rollout.reach.files and not rollout.reach.exact
        for rollout in node.rollouts
    )
    return EditReach(node.candidate.id, file, reached, unsure, len(node.rollouts))


def _is_perfect(row: CaseHistory, at: int) -> bool:
    score = row.scores[at]
    return score is not None and score >= 1 - EPSILON


def _falls(row: CaseHistory) -> bool:
    return row.against_parent is not None and row.against_parent < -EPSILON


def _rises(row: CaseHistory) -> bool:
    return row.against_parent is not None and row.against_parent > EPSILON


def _is_unmoved(row: CaseHistory) -> bool:
    known = [score for score in row.scores if score is not None]
    return (
        len(known) > 1 and max(known) - min(known) <= EPSILON and known[0] < 1 - EPSILON
    )


def _mean(points: Sequence[float]) -> float | None:
    return fsum(points) / len(points) if points else None


def _change(new: float | None, old: float | None) -> float | None:
    return None if new is None or old is None else new - old
