"""What a journal holds: one frozen dataclass per kind of record.

Records are grouped by scope ("baseline", iteration numbers, "final"). While a scope is
open its events are notes; when it closes they enter the journal in canonical order,
so that the same run writes the same journal whatever the timing was.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Literal
from typing import TypeAlias

from pytest_evo.models import CandidateId
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Claim
from pytest_evo.models import Decision
from pytest_evo.models import Diagnosis
from pytest_evo.models import Json
from pytest_evo.models import Metric
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Split
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.models import TreeHash
from pytest_evo.models import Usage


@dataclass(frozen=True, slots=True)
class CasesFrozen:
    """The case set with its splits, and what was left out and why."""

    cases: tuple[Case, ...]
    excluded: tuple[tuple[CaseId, str], ...] = ()
    kind: Literal["cases"] = "cases"


@dataclass(frozen=True, slots=True)
class NoiseMeasured:
    """Which cases repeat themselves; the pooled within-case variance of the rest."""

    deterministic: tuple[CaseId, ...]
    noisy: tuple[CaseId, ...]
    variance: float
    maybe_cached: tuple[CaseId, ...] = ()
    kind: Literal["noise"] = "noise"


@dataclass(frozen=True, slots=True)
class RequestStarted:
    """A request is about to leave; its rollouts are reserved in the budget."""

    request: str
    candidate: CandidateId
    tree: TreeHash
    purpose: Purpose
    runs: tuple[tuple[CaseId, int], ...]
    attempt: int = 0
    kind: Literal["started"] = "started"


@dataclass(frozen=True, slots=True)
class RolloutRecorded:
    """One execution of one case, finished or lost."""

    candidate: CandidateId
    tree: TreeHash
    case: CaseId
    split: Split | None  # None only for the baseline of a case that was left out
    repeat: int
    outcome: Outcome
    score: float | None
    seconds: float
    purpose: Purpose
    iteration: int = 0
    attempt: int = 0
    metrics: tuple[Metric, ...] = ()
    usage: Usage = NO_USAGE
    reach: tuple[str, ...] = ()
    exact: bool = True
    network: bool = False
    processes: bool = False
    violation: str | None = None
    worker: str = ""
    trace: str | None = None
    kind: Literal["rollout"] = "rollout"


@dataclass(frozen=True, slots=True)
class ProposalMade:
    """The answer of a proposer at (iteration, step, attempt): a tree or a refusal."""

    iteration: int
    step: int
    attempt: int
    base: CandidateId
    tree: TreeHash | None
    refusal: str | None = None
    exhausted: bool = False
    changelog: tuple[ChangelogEntry, ...] = ()
    usage: Usage = NO_USAGE
    data: Mapping[str, Json] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()  # entries of the changelog that do not hold
    fault: bool = False  # the proposer itself failed; ``refusal`` says how
    kind: Literal["proposal"] = "proposal"


@dataclass(frozen=True, slots=True)
class DiagnosesMade:
    """What the diagnoser read out of the rollouts of one node."""

    iteration: int
    step: int
    candidate: CandidateId
    diagnoses: tuple[Diagnosis, ...]
    usage: Usage = NO_USAGE
    problems: tuple[str, ...] = ()
    kind: Literal["diagnosis"] = "diagnosis"


@dataclass(frozen=True, slots=True)
class CallsLost:
    """Model calls of a step that a stop cut off: paid for, and without an answer."""

    iteration: int
    step: int
    role: str  # proposer | diagnoser
    usage: Usage = NO_USAGE
    kind: Literal["unanswered"] = "unanswered"


@dataclass(frozen=True, slots=True)
class TabKept:
    """What the model calls of a step that is under way have cost by now.

    Only a kill makes it count: the answer of the step carries its cost itself.
    """

    iteration: int
    step: int
    role: str  # proposer | diagnoser
    usage: Usage = NO_USAGE
    kind: Literal["tab"] = "tab"


@dataclass(frozen=True, slots=True)
class AcceptanceDecided:
    """One decision of acceptance, with its numbers."""

    iteration: int
    step: int
    candidate: CandidateId
    decision: Decision
    effect: float
    threshold: float
    p_value: float | None
    reason: str
    round: int = 0
    kind: Literal["acceptance"] = "acceptance"


@dataclass(frozen=True, slots=True)
class CandidateRecorded:
    """A candidate with what became of it."""

    id: CandidateId
    parent: CandidateId | None
    tree: TreeHash
    status: Status
    base: CandidateId | None = None
    iteration: int = 0
    step: int = 0
    changelog: tuple[ChangelogEntry, ...] = ()
    data: Mapping[str, Json] = field(default_factory=dict)
    kind: Literal["candidate"] = "candidate"


@dataclass(frozen=True, slots=True)
class IterationClosed:
    """The commit of one iteration: what it did to the population."""

    iteration: int
    slot: int
    parent: CandidateId
    child: CandidateId | None
    depth: int  # number of chain steps taken
    accepted: bool
    reason: str
    batch: tuple[CaseId, ...] = ()
    population: tuple[CandidateId, ...] = ()  # after this iteration, best first
    val: Mapping[CaseId, float] = field(default_factory=dict)  # of an accepted child
    rollouts: int = 0  # spent by this iteration
    kind: Literal["iteration"] = "iteration"


@dataclass(frozen=True, slots=True)
class FinalMeasured:
    """The claim of the run."""

    winner: CandidateId
    claim: Claim
    kind: Literal["final"] = "final"


@dataclass(frozen=True, slots=True)
class IsolationChosen:
    """How rollouts are kept apart, settled by what the baseline reached."""

    mode: str
    mount: bool
    why: str
    kind: Literal["isolation"] = "isolation"


@dataclass(frozen=True, slots=True)
class RunResumed:
    """A killed or stopped run goes on; ``budgets`` by their settings, where set."""

    lost: int
    seconds_before: float
    budgets: Mapping[str, float] = field(default_factory=dict)
    kind: Literal["resume"] = "resume"


@dataclass(frozen=True, slots=True)
class RunStopped:
    """Why a run ended. ``complete`` is False where a resume would go on."""

    reason: str
    detail: str
    winner: CandidateId
    iterations: int
    rollouts: int
    by_purpose: Mapping[str, int]
    complete: bool = True
    kind: Literal["stop"] = "stop"


Event: TypeAlias = (
    CasesFrozen
    | NoiseMeasured
    | RequestStarted
    | RolloutRecorded
    | ProposalMade
    | DiagnosesMade
    | CallsLost
    | TabKept
    | AcceptanceDecided
    | CandidateRecorded
    | IterationClosed
    | FinalMeasured
    | IsolationChosen
    | RunResumed
    | RunStopped
)


def winner_of(
    final: FinalMeasured | None,
    stop: RunStopped | None,
    iterations: Sequence[IterationClosed],
) -> CandidateId:
    """The measured winner, else the best of the last population, else the start."""
    if final is not None:
        return final.winner
    if stop is not None:
        return stop.winner
    for closed in reversed(iterations):
        if closed.population:
            return closed.population[0]
    return START
