"""What can be measured over a chain: score history, reach, oscillation, lost wins."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from math import fsum

from pytest_evo.artifact.schema import kind_of
from pytest_evo.evidence import Bypass
from pytest_evo.evidence import CaseHistory
from pytest_evo.evidence import EditReach
from pytest_evo.evidence import Facts
from pytest_evo.evidence import Repetition
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Attempt
from pytest_evo.models import CandidateId
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash

NO_SCHEMA = ArtifactSchema("")


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


def measure(
    nodes: Sequence[Node],
    *,
    schema: ArtifactSchema = NO_SCHEMA,
    attempts: Sequence[Attempt] = (),
    tree: Callable[[TreeHash], Tree] | None = None,
    rows: Sequence[CaseHistory] | None = None,
) -> Facts:
    """Facts about a chain.

    Args:
        nodes: parent first.
        schema: says which kind a file is.
        attempts: of closed iterations, to find what was tried before.
        tree: reads a version; without it contents are not compared.
        rows: the nodes' score history, where it is known already.
    """
    if rows is None:
        rows = score_history(nodes)
    return Facts(
        reach=tuple(
            _reach(node, entry.file)
            for node in nodes[1:]
            for entry in node.candidate.changelog
            if entry.change != "deleted"
        ),
        oscillating=tuple(row.case for row in rows if row.turns),
        lost=tuple(r.case for r in rows if _is_perfect(r, 0) and _falls(r)),
        won=tuple(r.case for r in rows if _is_perfect(r, -1) and _rises(r)),
        unmoved=tuple(row.case for row in rows if _is_unmoved(row)),
        twins=_twins(nodes, attempts),
        bypassed=tuple(_bypassed(nodes, schema)),
        repeated=() if tree is None else _repeated(nodes, attempts, tree),
    )


def _reach(node: Node, file: str) -> EditReach:
    reached = sum(file in rollout.reach.files for rollout in node.rollouts)
    unsure = sum(
        file not in rollout.reach.files and not rollout.reach.exact
        for rollout in node.rollouts
    )
    return EditReach(node.candidate.id, file, reached, unsure, len(node.rollouts))


def _twins(
    nodes: Sequence[Node], attempts: Sequence[Attempt]
) -> tuple[tuple[CandidateId, CandidateId], ...]:
    """Pairs of candidates with equal files, the earlier one first."""
    seen: dict[TreeHash, CandidateId] = {}
    for attempt in attempts:
        if attempt.tree:
            seen.setdefault(attempt.tree, attempt.candidate)
    found = []
    for place, node in enumerate(nodes):
        first = seen.setdefault(node.candidate.tree, node.candidate.id)
        if place and first != node.candidate.id:  # a parent was an attempt itself
            found.append((first, node.candidate.id))
    return tuple(found)


def _bypassed(nodes: Sequence[Node], schema: ArtifactSchema) -> list[Bypass]:
    found: list[Bypass] = []
    if len(nodes) < 2:
        return found
    failing = {node.candidate.id: _failing(node) for node in nodes}
    for node in nodes[1:]:
        after = failing[node.candidate.id]
        for entry in node.candidate.changelog:
            effect = entry.effect
            if effect is None or effect.moved or entry.change == "deleted":
                continue
            before = failing.get(effect.base, {})
            stuck = tuple(
                case
                for case in effect.cases
                if case not in effect.unsure
                and case in before
                and case in after
                and abs(after[case] - before[case]) <= EPSILON
            )
            if stuck:
                kind = kind_of(schema, entry.file)
                found.append(Bypass(node.candidate.id, entry.file, kind, stuck))
    return found


def _failing(node: Node) -> dict[CaseId, float]:
    """Scores of the cases that never passed; partial credit alone is no failure."""
    return {
        row.case: score
        for row in score_history([node])
        if (score := row.scores[0]) is not None
        and score < 1 - EPSILON
        and Outcome.PASSED not in row.outcomes[0]
    }


def _repeated(
    nodes: Sequence[Node],
    attempts: Sequence[Attempt],
    tree: Callable[[TreeHash], Tree],
) -> tuple[Repetition, ...]:
    """Edits that gave a file a content that an earlier candidate had put there."""
    if len(nodes) < 2:
        return ()  # a parent repeats nobody
    seen: dict[tuple[str, str], tuple[CandidateId, float | None]] = {}
    own = {node.candidate.id for node in nodes}
    for attempt in attempts:
        files = {entry.file for entry in attempt.changelog if entry.change != "deleted"}
        if attempt.tree and files and attempt.candidate not in own:
            for entry in tree(attempt.tree).entries:
                if entry.kind == "file" and entry.path in files:
                    key = (entry.path, entry.blob)
                    seen.setdefault(key, (attempt.candidate, attempt.gain))
    found: list[Repetition] = []
    for place, node in enumerate(nodes):
        blobs = _blobs(tree(node.candidate.tree))
        edited = [entry.file for entry in node.candidate.changelog] if place else blobs
        for file in edited:
            if file not in blobs:
                continue
            earlier, gain = seen.setdefault(
                (file, blobs[file]), (node.candidate.id, None)
            )
            if earlier != node.candidate.id and place:
                found.append(Repetition(node.candidate.id, file, earlier, gain))
    return tuple(found)


def _blobs(version: Tree) -> dict[str, str]:
    return {entry.path: entry.blob for entry in version.entries if entry.kind == "file"}


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
