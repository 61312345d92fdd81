"""The seams: everything that can be replaced, and nothing else.

Each protocol has a contract suite in :mod:`pytest_evo.testing`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Awaitable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from random import Random
from typing import Protocol

from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.events import Event
from pytest_evo.evidence import Evidence
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Attempt
from pytest_evo.models import Candidate
from pytest_evo.models import CandidateId
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Detail
from pytest_evo.models import Diagnosis
from pytest_evo.models import Json
from pytest_evo.models import Knob
from pytest_evo.models import Member
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Node
from pytest_evo.models import Proposal
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import ScoreVector
from pytest_evo.models import TreeHash
from pytest_evo.models import Usage
from pytest_evo.models import Verdict

# -- evaluation ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Request:
    """Rollouts of one candidate that run together in one isolated process, in order."""

    id: str
    candidate: CandidateId
    tree: TreeHash
    runs: tuple[tuple[CaseId, int], ...]  # (case, repeat)
    purpose: Purpose
    attempt: int = 0


class Evaluator(Protocol):
    """Runs requests on workers."""

    def submit(self, request: Request) -> AsyncIterator[Rollout]:
        """Run a request and stream exactly one rollout per run, as they end.

        Scores here are raw: from the outcome or ``evo_score``; only passed and failed
        have one. A run whose set-up never began comes as ``started=False``; where
        nobody knows whether it began, as ``lost`` with ``started=True``: it counts.

        Raises:
            WorkersLost: no worker can be had any more.
        """

    async def cancel(self, request_id: str) -> None:
        """Kill a request; its unfinished runs come as ``lost``."""

    def capacity(self) -> int:
        """How many requests can run at the same time, at least 1."""


class RolloutStore(Protocol):
    """Keeps the details of rollouts that are too big for memory and journal."""

    def keep(self, rollout: Rollout) -> Rollout:
        """Store ``rollout.detail``; return the rollout with ``trace`` set instead."""

    def detail(self, trace: str) -> Detail:
        """Read a detail back by the name that ``keep`` gave it."""


# -- proposals -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnobValue:
    """A knob with the value that the base candidate has."""

    knob: Knob
    value: Json


@dataclass(frozen=True, slots=True)
class ProposalRequest:
    """What a proposer gets (a fixed contract).

    ``workspace`` holds ``artifact/`` (edit it in place) and ``evidence/``. ``nodes`` is
    the chain so far, parent first. ``history`` holds what closed iterations tried,
    oldest first; every request sees a prefix of the same growing list.
    """

    iteration: int
    step: int
    workspace: Path
    schema: ArtifactSchema
    objective: str
    parent: Candidate
    batch: tuple[CaseId, ...]
    nodes: tuple[Node, ...]
    history: Sequence[Attempt]
    feedback: str | None
    rng: Random
    knobs: tuple[KnobValue, ...]
    start: ScoreVector = field(default_factory=dict)  # train scores of the start
    tokens_left: int | None = None  # of --budget-tokens, when this was asked
    usd_left: float | None = None
    evidence: Evidence = field(default_factory=Evidence)  # as ``evidence/`` has it


class Proposer(Protocol):
    """Edits files. ``propose`` may be sync or async."""

    def propose(
        self, request: ProposalRequest
    ) -> Proposal | str | Awaitable[Proposal | str]:
        """Edit ``request.workspace / "artifact"`` in place and say why.

        Raises:
            ProposalRefused: this attempt has no answer.
            ProposerExhausted: no attempt will have an answer any more.
        """


@dataclass(frozen=True, slots=True)
class ProposalKey:
    """Names one attempt at one proposal, for ever."""

    iteration: int
    step: int
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Edit:
    """What a proposer did to the files, as computed, not as told."""

    tree: TreeHash
    changelog: tuple[ChangelogEntry, ...]  # one per changed file, ``change`` filled in
    warnings: tuple[str, ...] = ()


class Workshop(Protocol):
    """The engine's only door to files: candidates to directories and back."""

    def open(
        self,
        key: ProposalKey,
        base: TreeHash,
        nodes: Sequence[Node],
        cases: Sequence[Case],
        evidence: Evidence | None = None,
    ) -> Path:
        """Make a workspace with ``artifact/`` (files of ``base``) and ``evidence/``."""

    def knobs(self, tree: TreeHash) -> tuple[KnobValue, ...]:
        """The values that the declared knobs have in a tree."""

    def close(self, key: ProposalKey, base: TreeHash, answer: Proposal | str) -> Edit:
        """Check the edited workspace, store its tree and remove the workspace.

        Raises:
            ProposalRefused: nothing changed, the edit surface was left, a forbidden
                file, a syntax error, a size limit, or a check of the user's.
        """

    def discard(self, key: ProposalKey) -> None:
        """Remove a workspace whose proposal failed."""

    def size(self, tree: TreeHash) -> int:
        """Bytes of all files of a tree."""

    def empty(self) -> TreeHash:
        """A tree without any file, for the probe of reach."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """Diagnoses with what they cost, and why some are missing."""

    diagnoses: tuple[Diagnosis, ...] = ()
    usage: Usage = NO_USAGE
    problems: tuple[str, ...] = ()


class Diagnoser(Protocol):
    """Train rollouts to diagnoses."""

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        """Read the newest node in the light of the ones before it, the parent first.

        Rollouts come with their ``detail``. The order of diagnoses is that of the
        rollouts, however they were made. What goes wrong is told in ``problems``: the
        run goes on without.
        """


class ChatModel(Protocol):
    """A language model, however it is reached."""

    @property
    def name(self) -> str:
        """The model's name, for messages and reports."""

    def ask(self, request: ChatRequest) -> ChatReply:
        """Ask once; blocks, retries inside, may be called from several threads.

        Raises:
            ModelProblem: wrong key or unknown model: asking again is vain.
            ContextOverflow: the request is too long for the model.
            ModelFailed: no answer after all retries.
        """


# -- decisions -------------------------------------------------------------------


class ParentSampler(Protocol):
    """Population to parent."""

    def sample(self, population: Sequence[Member], rng: Random) -> Member:
        """Draw one member; the population is never empty."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What a batch may be drawn from."""

    train: tuple[Case, ...]
    size: int
    iteration: int
    believed: ScoreVector  # the parent's last known train scores, along its lineage
    variance: Mapping[CaseId, float] = field(default_factory=dict)


class BatchSampler(Protocol):
    """Train cases to a batch of distinct cases in case order."""

    def sample(self, request: BatchRequest, draws: Draws) -> tuple[Case, ...]:
        """Draw ``min(size, len(train))`` cases."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """Paired scores of parent and child on the batch: per case, one per repeat."""

    parent: Mapping[CaseId, Sequence[float]]
    child: Mapping[CaseId, Sequence[float]]
    noisy: Collection[CaseId]
    variance: float  # pooled within-case variance of the noisy cases
    weights: Mapping[CaseId, float]
    attempts: int  # how many nodes this iteration may test: depth + 1
    fresh: bool = False  # a confirmation: only fresh rollouts, one look


class Acceptance(Protocol):
    """Paired rollouts to a decision. ``undecided`` asks for fresh repeats."""

    def decide(self, comparison: Comparison) -> Verdict:
        """Decide; every case has at least one score on both sides."""

    def smallest_batch(
        self, size: int, noisy_share: float, variance: float, attempts: int
    ) -> int | None:
        """The smallest batch of at least ``size`` on which acceptance can be reached.

        None where no batch can.
        """


class Refiner(Protocol):
    """Decides where a chain goes on."""

    def next(self, nodes: Sequence[Node], depth: int) -> Node | None:
        """The node whose files the next step edits, or None to stop."""


class ValidationPolicy(Protocol):
    """How much of val is spent on a child."""

    def stages(self, val: Sequence[Case], draws: Draws) -> Sequence[Sequence[Case]]:
        """Val cases in the order of spending; together they are all of val."""


class SurvivorSelection(Protocol):
    """Population to population, best first."""

    def select(self, members: Sequence[Member]) -> tuple[Member, ...]:
        """Members are given oldest first; at least one survives."""


# -- resources -------------------------------------------------------------------


class Clock(Protocol):
    """Running time in seconds; downtime between resumes does not count."""

    def elapsed(self) -> float:
        """Seconds the run has been running, earlier sessions included."""


class Draws(Protocol):
    """Keyed randomness: the same key gives the same stream, whatever came before."""

    def rng(self, purpose: str, *key: int | str) -> Random:
        """A generator of its own for this purpose and key."""


class Scope(Protocol):
    """The events of one baseline, iteration or final measurement."""

    @property
    def found(self) -> Sequence[Event]:
        """What an earlier, killed session noted in this scope."""

    def note(self, event: Event, *, commit: bool = False) -> None:
        """Write an event so that it survives a kill; ``commit`` also a power loss."""

    def close(self, events: Iterable[Event]) -> None:
        """Move the scope into the journal: these events, in this order, at once."""


class Journal(Protocol):
    """Append-only truth about a run."""

    def replay(self) -> Iterable[Event]:
        """All closed events in order."""

    def open(self, scope: str) -> Scope:
        """Open a scope, or re-open it with what a killed session left."""

    def append(self, *events: Event) -> None:
        """Append events that belong to no scope; durable on return."""
