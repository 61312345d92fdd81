"""What a run is made of: its plan (numbers) and its parts (seams)."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Literal
from typing import Protocol
from typing import TypeAlias

from pytest_evo.events import Event
from pytest_evo.evidence import Evidence
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Attempt
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import Node
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import TreeHash
from pytest_evo.protocols import Acceptance
from pytest_evo.protocols import BatchSampler
from pytest_evo.protocols import Clock
from pytest_evo.protocols import Diagnoser
from pytest_evo.protocols import Draws
from pytest_evo.protocols import Evaluator
from pytest_evo.protocols import Journal
from pytest_evo.protocols import ParentSampler
from pytest_evo.protocols import ProposalKey
from pytest_evo.protocols import Proposer
from pytest_evo.protocols import Refiner
from pytest_evo.protocols import RolloutStore
from pytest_evo.protocols import SurvivorSelection
from pytest_evo.protocols import ValidationPolicy
from pytest_evo.protocols import Workshop

Gather: TypeAlias = Callable[
    [Sequence[Node], Sequence[Case], Sequence[Attempt]], Evidence
]
"""Nodes of a chain (parent first), its batch and closed attempts to evidence."""

Fault: TypeAlias = Callable[[ProposalKey, BaseException], str]


class Observer(Protocol):
    """Hears of everything the moment it is noted, in no particular order."""

    def notice(self, event: Event) -> None:
        """React to one event; must be quick and must not raise."""


@dataclass(frozen=True, slots=True)
class Limit:
    """A metric of the child may be at most ``max_ratio`` times that of the start."""

    metric: str  # bytes | seconds | tokens | usd
    max_ratio: float


@dataclass(frozen=True, slots=True)
class Strategy:
    """The decisions that make one named algorithm out of the engine."""

    parents: ParentSampler
    batches: BatchSampler
    acceptance: Acceptance
    refiner: Refiner
    validation: ValidationPolicy
    survivors: SurvivorSelection


@dataclass(frozen=True, slots=True)
class Plan:
    """The numbers of a run. None means: computed after the baseline."""

    schema: ArtifactSchema
    objective: str
    start: TreeHash
    slots: int = 1
    depth: int | None = None
    batch: int | None = None
    repeats: int | None = None
    noise: Literal["auto", "none", "repeats"] = "auto"
    fractions: tuple[float, float, float] | None = None
    seed: int = 0
    limits: tuple[Limit, ...] = ()
    splits: Mapping[CaseId, Split] = field(default_factory=dict)  # said explicitly
    least_proposals: int = 5


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything the engine calls. It opens no file and reads no clock itself."""

    evaluator: Evaluator
    workshop: Workshop
    proposer: Proposer
    diagnoser: Diagnoser
    strategy: Strategy
    journal: Journal
    rollouts: RolloutStore
    clock: Clock
    draws: Draws
    observer: Observer
    marks: Sequence[CaseMark]
    calibrate: Callable[[Sequence[Rollout]], Mapping[CaseId, str]] = lambda rows: {}
    """Called with the baseline's rollouts before anything else is run.

    Returns what each case's fingerprint has to cover beside what was collected.
    """
    fault: Fault = lambda key, error: f"{type(error).__name__}: {error}"
    """Called with what a proposer raised; keeps it and says it in a line."""
    gather: Gather = lambda nodes, batch, attempts: Evidence()
    """Called before each proposal: what is known of the chain on its batch."""
