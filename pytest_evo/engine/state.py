"""What is committed: a fold over the journal's events, the same live and on resume."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_evo.engine.history import History
from pytest_evo.engine.history import Prefix
from pytest_evo.engine.history import Tried
from pytest_evo.engine.scoring import means
from pytest_evo.events import AcceptanceDecided
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import CasesFrozen
from pytest_evo.events import Event
from pytest_evo.events import IterationClosed
from pytest_evo.events import NoiseMeasured
from pytest_evo.events import ProposalMade
from pytest_evo.events import RolloutRecorded
from pytest_evo.means import mean_of
from pytest_evo.models import Attempt
from pytest_evo.models import Candidate
from pytest_evo.models import CandidateId
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Member
from pytest_evo.models import Purpose
from pytest_evo.models import Split
from pytest_evo.models import Status
from pytest_evo.models import TreeHash

Scores = dict[CaseId, tuple[float, ...]]
KEPT_REPEATS = 8
"""Newest scores kept of a case, so that a long run stays flat in memory."""


BUDGET = "budget: "
EXHAUSTED = "exhausted: "
REFUSED = "refused: "
"""How the reasons of iterations begin that bear on whether the run goes on."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The state after one commit, as an iteration K later may use it."""

    commit: int
    population: tuple[Member, ...]
    known: Mapping[TreeHash, Scores]  # own scores on all splits, by tree of a member
    records: Mapping[TreeHash, Mapping[CaseId, RolloutRecorded]]  # newest, of members
    believed: Mapping[TreeHash, Mapping[CaseId, float]]  # along the lineage, train
    next_repeat: Mapping[TreeHash, Mapping[CaseId, int]]
    history: Sequence[Attempt]
    spent: int
    tried: Tried
    skipped_in_a_row: int
    refused_in_a_row: int
    stopping: str | None  # why a committed iteration ends the run
    last_refusal: str = ""

    def seen(self, tree: TreeHash) -> CandidateId | None:
        """The candidate that had these files before, if this snapshot may know it."""
        return self.tried.first(tree, self.commit)


class State:
    """Population, knowledge and history after the last commit."""

    def __init__(self) -> None:
        self._freeze(())
        self.noise: NoiseMeasured | None = None
        self.population: tuple[Member, ...] = ()
        self.candidates: dict[CandidateId, Candidate] = {}  # that may become parents
        self.commit = -1
        self.start_tree: TreeHash = ""
        self._skipped_in_a_row = 0
        self._refused_in_a_row = 0
        self._last_refusal = ""
        self.proposals = 0
        self.faults: list[str] = []  # of the proposer itself
        self._stopping: str | None = None
        self.spent = 0
        self._known: dict[TreeHash, Scores] = {}
        self._records: dict[TreeHash, dict[CaseId, RolloutRecorded]] = {}
        self._believed: dict[TreeHash, dict[CaseId, float]] = {}
        self._next_repeat: dict[TreeHash, dict[CaseId, int]] = {}
        self._history = History()
        self._tried = Tried()

    @property
    def noisy(self) -> frozenset[CaseId]:
        """Cases whose score may differ from repeat to repeat."""
        return frozenset(self.noise.noisy) if self.noise else frozenset()

    def of_split(self, split: Split) -> tuple[Case, ...]:
        """The cases of one split, in case order."""
        return self._by_split[split]

    def _freeze(self, cases: tuple[Case, ...]) -> None:
        self.cases = cases
        self._by_split = {
            split: tuple(case for case in cases if case.split is split)
            for split in Split
        }
        self._train = frozenset(case.id for case in self._by_split[Split.TRAIN])

    def snapshot(self) -> Snapshot:
        """Copy what later commits will change."""
        return Snapshot(
            commit=self.commit,
            population=self.population,
            known={tree: dict(scores) for tree, scores in self._known.items()},
            records={tree: dict(rows) for tree, rows in self._records.items()},
            believed=dict(self._believed),
            next_repeat={tree: dict(row) for tree, row in self._next_repeat.items()},
            history=Prefix(self._history),
            spent=self.spent,
            tried=self._tried,
            skipped_in_a_row=self._skipped_in_a_row,
            refused_in_a_row=self._refused_in_a_row,
            stopping=self._stopping,
            last_refusal=self._last_refusal,
        )

    # -- the fold ------------------------------------------------------------------

    def apply(self, events: Sequence[Event]) -> None:
        """Fold the events of one closed scope, in journal order."""
        scores: dict[TreeHash, Scores] = {}
        recorded: list[CandidateRecorded] = []
        effects: dict[CandidateId, float] = {}
        closed: IterationClosed | None = None
        for event in events:
            if isinstance(event, RolloutRecorded):
                self._count(event, scores)
            elif isinstance(event, CasesFrozen):
                self._freeze(event.cases)
            elif isinstance(event, NoiseMeasured):
                self.noise = event
            elif isinstance(event, ProposalMade):
                self._note_proposal(event)
            elif isinstance(event, CandidateRecorded):
                recorded.append(event)
            elif isinstance(event, AcceptanceDecided):
                effects[event.candidate] = event.effect
            elif isinstance(event, IterationClosed):
                closed = event
        for candidate in recorded:
            self._register(candidate)
        if closed is not None:
            self._close(closed, recorded, scores, effects)
        elif recorded and recorded[0].status is Status.START:
            self._begin(recorded[0], scores)

    def _count(self, event: RolloutRecorded, scores: dict[TreeHash, Scores]) -> None:
        self.spent += 1
        repeats = self._next_repeat.setdefault(event.tree, {})
        repeats[event.case] = max(repeats.get(event.case, 0), event.repeat + 1)
        if event.score is not None and event.purpose is not Purpose.PROBE:
            row = scores.setdefault(event.tree, {})
            row[event.case] = (*row.get(event.case, ()), event.score)
            self._records.setdefault(event.tree, {})[event.case] = event

    def _note_proposal(self, event: ProposalMade) -> None:
        self.proposals += 1
        if event.fault:
            self.faults.append(event.refusal or "")

    def _register(self, event: CandidateRecorded) -> None:
        if event.status in (Status.START, Status.ACCEPTED):
            self.candidates[event.id] = as_candidate(event)
        self._tried.add(event.tree, event.iteration, event.step)

    def _begin(self, start: CandidateRecorded, scores: dict[TreeHash, Scores]) -> None:
        self.commit = 0
        self.start_tree = start.tree
        frozen = {case.id for case in self.cases}
        rows = scores.get(start.tree, {})
        own = {case: row for case, row in rows.items() if case in frozen}
        vector = {
            case.id: value
            for case in self.of_split(Split.VAL)
            if (value := means(own).get(case.id)) is not None
        }
        mean = mean_of(vector, self.of_split(Split.VAL)) or 0.0
        self.population = (Member(as_candidate(start), vector, mean),)
        self._learn(start.tree, own, {})
        self._prune()

    def _learn(
        self,
        tree: TreeHash,
        scores: Scores,
        inherited: Mapping[CaseId, float],
    ) -> None:
        own = self._known.setdefault(tree, {})
        for case, values in scores.items():
            own[case] = (*own.get(case, ()), *values)[-KEPT_REPEATS:]
        latest = means(
            {case: row for case, row in scores.items() if case in self._train}
        )
        believed = {**inherited, **self._believed.get(tree, {}), **latest}
        self._believed[tree] = believed

    def _close(
        self,
        closed: IterationClosed,
        recorded: Sequence[CandidateRecorded],
        scores: dict[TreeHash, Scores],
        effects: Mapping[CandidateId, float],
    ) -> None:
        self.commit = closed.iteration
        self._count_stalls(closed, worked=bool(recorded))
        parent = self.candidates[closed.parent]
        if parent.tree in self._known:
            self._learn(parent.tree, scores.get(parent.tree, {}), {})
        for event in recorded:
            self._remember(event, closed, scores.get(event.tree, {}), effects)
        members = {member.candidate.id: member for member in self.population}
        if closed.child is not None and closed.val:
            child = self.candidates[closed.child]
            mean = mean_of(closed.val, self.of_split(Split.VAL)) or 0.0
            members[child.id] = Member(child, closed.val, mean)
            inherited = self._believed.get(parent.tree, {})
            self._learn(child.tree, scores.get(child.tree, {}), inherited)
        self.population = tuple(members[name] for name in closed.population)
        self._prune()

    def _count_stalls(self, closed: IterationClosed, *, worked: bool) -> None:
        refused = closed.reason.startswith(REFUSED)
        skipped = not worked and not refused
        self._skipped_in_a_row = self._skipped_in_a_row + 1 if skipped else 0
        self._refused_in_a_row = self._refused_in_a_row + 1 if refused else 0
        if refused:
            self._last_refusal = closed.reason.removeprefix(REFUSED)
        if closed.reason.startswith(BUDGET):
            axis = closed.reason.removeprefix(BUDGET).partition(":")[0]
            self._stopping = self._stopping or f"{BUDGET}{axis}"
        elif closed.reason.startswith(EXHAUSTED):
            self._stopping = self._stopping or "proposer exhausted"

    def _remember(
        self,
        event: CandidateRecorded,
        closed: IterationClosed,
        scores: Scores,
        effects: Mapping[CandidateId, float],
    ) -> None:
        self._history.append(
            Attempt(
                candidate=event.id,
                parent=closed.parent,
                iteration=closed.iteration,
                step=event.step,
                scores={
                    case: value
                    for case, value in means(scores).items()
                    if case in self._train
                },
                gain=effects.get(event.id),
                accepted=event.status in (Status.ACCEPTED, Status.UNPROVEN),
                data=event.data,
                changelog=event.changelog,
                tree=event.tree,
            )
        )

    def _prune(self) -> None:
        """Forget rollouts of trees other than the start's and the population's."""
        alive = {member.candidate.tree for member in self.population}
        alive.add(self.start_tree)
        for table in (self._known, self._records, self._believed, self._next_repeat):
            for tree in [tree for tree in table if tree not in alive]:
                del table[tree]


def as_candidate(event: CandidateRecorded) -> Candidate:
    """The candidate that a record describes."""
    return Candidate(
        id=event.id,
        tree=event.tree,
        parent=event.parent,
        base=event.base,
        iteration=event.iteration,
        step=event.step,
        changelog=event.changelog,
        data=event.data,
    )


def oldest_first(members: Sequence[Member]) -> list[Member]:
    """A population in the order in which survivor selection wants it."""
    return sorted(
        members, key=lambda row: (row.candidate.iteration, row.candidate.step)
    )
