"""What a proposer may see, as values; ``pytest_evo.diagnosis`` measures and writes it.

Everything is of train cases. Texts come from tests, candidates and models: they are
data, and were made visible and cut where they entered a :class:`Trace`.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from itertools import pairwise

from pytest_evo.models import Attempt
from pytest_evo.models import CandidateId
from pytest_evo.models import CaseId
from pytest_evo.models import Diagnosis
from pytest_evo.models import EPSILON
from pytest_evo.models import Kind
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
class Bypass:
    """An edit that moved no case, and the cases that read it and failed as before."""

    node: CandidateId
    file: str
    kind: Kind
    cases: tuple[CaseId, ...]


@dataclass(frozen=True, slots=True)
class Repetition:
    """A node left a file with the very content that it had in an earlier candidate."""

    node: CandidateId
    file: str
    earlier: CandidateId
    gain: float | None = None  # of the earlier one over its parent, where known


@dataclass(frozen=True, slots=True)
class Facts:
    """What is measured, not read into it."""

    reach: tuple[EditReach, ...] = ()
    oscillating: tuple[CaseId, ...] = ()
    lost: tuple[CaseId, ...] = ()  # perfect at the parent, no more at the newest node
    won: tuple[CaseId, ...] = ()
    unmoved: tuple[CaseId, ...] = ()  # below 1, and the same at every node
    twins: tuple[tuple[CandidateId, CandidateId], ...] = ()  # nodes with equal files
    bypassed: tuple[Bypass, ...] = ()
    repeated: tuple[Repetition, ...] = ()


@dataclass(frozen=True, slots=True)
class Trace:
    """One rollout in words, cut to a budget with its informative ends kept.

    ``files`` are the artifact files that it read; with ``certain`` False it could have
    read others unseen. ``output`` is captured text by title; ``steps`` and
    ``model_calls`` hold one step or call a line.
    """

    node: CandidateId
    case: CaseId
    repeat: int
    outcome: Outcome
    score: float | None
    failure: str = ""
    output: tuple[tuple[str, str], ...] = ()
    steps: str = ""
    model_calls: str = ""
    files: tuple[str, ...] = ()
    certain: bool = True
    calls: int = 0
    tokens: int = 0
    seconds: float = 0.0
    metrics: tuple[tuple[str, float], ...] = ()
    violation: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is below the full score, or has none."""
        return self.score is None or self.score < 1 - EPSILON

    def texts(self) -> tuple[str, ...]:
        """Everything in it that a quote may come from."""
        said = (text for _, text in self.output)
        return (self.failure, *said, self.steps, self.model_calls)

    @property
    def size(self) -> int:
        """Characters of its texts."""
        return sum(map(len, self.texts()))


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known on the batch of one proposal.

    ``nodes`` is the chain so far, parent first, with changelog, measured effects and
    diagnoses; ``attempts`` are those of closed iterations on cases of the batch, oldest
    first; ``traces`` come newest node first, failures before the others.
    """

    nodes: tuple[Node, ...] = ()
    histories: tuple[CaseHistory, ...] = ()
    facts: Facts = field(default_factory=Facts)
    traces: tuple[Trace, ...] = ()
    attempts: tuple[Attempt, ...] = ()

    @property
    def diagnoses(self) -> tuple[tuple[str, Diagnosis], ...]:
        """All diagnoses of the chain by their names."""
        return tuple(
            (diagnosis_name(node.candidate.id, number), diagnosis)
            for node in self.nodes
            for number, diagnosis in enumerate(node.diagnoses, 1)
        )


def diagnosis_name(node: CandidateId, number: int) -> str:
    """What later diagnoses call diagnosis ``number`` (from 1) of a node."""
    return f"{node}/{number}"


def _change(new: float | None, old: float | None) -> float | None:
    return None if new is None or old is None else new - old
