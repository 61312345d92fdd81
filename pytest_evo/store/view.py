"""The read model: one run as reports and the command line look at it."""

from __future__ import annotations

from collections import Counter
from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from functools import reduce
from operator import add
from pathlib import Path
from statistics import fmean

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.events import AcceptanceDecided
from pytest_evo.events import CallsLost
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import CasesFrozen
from pytest_evo.events import DiagnosesMade
from pytest_evo.events import Event
from pytest_evo.events import FinalMeasured
from pytest_evo.events import IsolationChosen
from pytest_evo.events import IterationClosed
from pytest_evo.events import NoiseMeasured
from pytest_evo.events import ProposalMade
from pytest_evo.events import RequestStarted
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import RunResumed
from pytest_evo.events import RunStopped
from pytest_evo.events import winner_of
from pytest_evo.means import weighted_mean
from pytest_evo.models import CandidateId
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Purpose
from pytest_evo.models import Split
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash
from pytest_evo.models import Usage
from pytest_evo.store.blobs import DirectoryBlobs
from pytest_evo.store.journal import committed
from pytest_evo.store.records import CLOSED
from pytest_evo.store.records import decode
from pytest_evo.store.recovery import JOURNAL
from pytest_evo.store.recovery import note_files
from pytest_evo.store.recovery import open_scopes
from pytest_evo.store.recovery import scan_journal
from pytest_evo.store.recovery import sound_notes
from pytest_evo.store.rollouts import RolloutFiles
from pytest_evo.store.run_info import read_info
from pytest_evo.store.run_info import RunInfo
from pytest_evo.store.trees import TreeFiles


@dataclass(slots=True)
class RunView:
    """A run as it was when it was read; it may still be going on.

    Closed scopes come first, in journal order, then what is noted in open ones, whose
    names are in ``open_scopes``. ``candidates`` are in order of appearance.
    """

    path: Path
    info: RunInfo
    cases: tuple[Case, ...] = ()
    excluded: tuple[tuple[CaseId, str], ...] = ()
    candidates: dict[CandidateId, CandidateRecorded] = field(default_factory=dict)
    rollouts: dict[CandidateId, list[RolloutRecorded]] = field(default_factory=dict)
    requests: list[RequestStarted] = field(default_factory=list)
    proposals: list[ProposalMade] = field(default_factory=list)
    diagnoses: list[DiagnosesMade] = field(default_factory=list)
    calls_lost: list[CallsLost] = field(default_factory=list)
    decisions: list[AcceptanceDecided] = field(default_factory=list)
    iterations: list[IterationClosed] = field(default_factory=list)
    resumes: list[RunResumed] = field(default_factory=list)
    noise: NoiseMeasured | None = None
    isolation: IsolationChosen | None = None
    final: FinalMeasured | None = None
    stop: RunStopped | None = None
    open_scopes: tuple[str, ...] = ()

    # -- cases and scores --------------------------------------------------------

    def cases_of(self, split: Split) -> tuple[Case, ...]:
        """The cases of a split in the order of the baseline."""
        return tuple(case for case in self.cases if case.split is split)

    def scores(
        self, candidate: CandidateId, split: Split | None = None
    ) -> dict[CaseId, float]:
        """The mean score per case over its repeats; unscored cases are left out.

        Probes of reach say nothing of a candidate and are left out too.
        """
        found: dict[CaseId, list[float]] = defaultdict(list)
        for rollout in self.rollouts.get(candidate, ()):
            if rollout.score is None or rollout.purpose is Purpose.PROBE:
                continue
            if split is None or rollout.split is split:
                found[rollout.case].append(rollout.score)
        return {case: fmean(scores) for case, scores in found.items()}

    def mean(self, candidate: CandidateId, split: Split) -> float | None:
        """The weighted mean over the cases of a split; None where none was scored."""
        scores = self.scores(candidate, split)
        weights = {case.id: case.weight for case in self.cases}
        return weighted_mean(scores, weights)

    def means(self, split: Split) -> dict[CandidateId, float]:
        """The mean of every candidate that was scored on *all* cases of a split."""
        cases = {case.id for case in self.cases_of(split)}
        means = {}
        for candidate in self.candidates:
            mean = self.mean(candidate, split)
            if mean is not None and cases <= self.scores(candidate, split).keys():
                means[candidate] = mean
        return means

    @property
    def winner(self) -> CandidateId:
        """The best candidate: as measured at the end, or of the last population."""
        return winner_of(self.final, self.stop, self.iterations)

    # -- spending ----------------------------------------------------------------

    @property
    def all_rollouts(self) -> Iterator[RolloutRecorded]:
        """Every rollout, by candidate."""
        for rollouts in self.rollouts.values():
            yield from rollouts

    def spent(self) -> Mapping[Purpose, int]:
        """Rollouts by what they were spent on, lost ones too."""
        return Counter(rollout.purpose for rollout in self.all_rollouts)

    def usage(self) -> Mapping[str, Usage]:
        """What models cost, by role: rollouts, proposer, diagnoser."""
        return {
            "rollouts": _total(rollout.usage for rollout in self.all_rollouts),
            "proposer": _total(made.usage for made in self.proposals)
            + self._cut_off("proposer"),
            "diagnoser": _total(made.usage for made in self.diagnoses)
            + self._cut_off("diagnoser"),
        }

    def _cut_off(self, role: str) -> Usage:
        return _total(lost.usage for lost in self.calls_lost if lost.role == role)

    # -- what is too big for the journal -----------------------------------------

    def detail(self, rollout: RolloutRecorded) -> Detail | None:
        """What pytest said of a rollout; None where nothing was kept."""
        if rollout.trace is None:
            return None
        return RolloutFiles(self.path).detail(rollout.trace)

    def tree(self, tree_hash: TreeHash) -> Tree:
        """The files of a version.

        Raises:
            RunDirectoryProblem: its manifest is missing or was altered.
        """
        return TreeFiles(self.path / "trees").get(tree_hash)

    def tree_of(self, candidate: CandidateId) -> Tree:
        """The files of a candidate.

        Raises:
            KeyError: there is no such candidate.
            RunDirectoryProblem: its manifest is missing or was altered.
        """
        return self.tree(self.candidates[candidate].tree)

    def blobs(self) -> BlobStore:
        """The contents of all files."""
        return DirectoryBlobs(self.path / "blobs")


def load_run(path: Path) -> RunView:
    """Read a run directory; a controller may be writing to it.

    Raises:
        JournalDamaged: something before the tail is not as it was written.
        RunDirectoryProblem: it is no run directory, or of another version.
    """
    view = RunView(path=path, info=read_info(path))
    # Notes before the journal: a scope that closes meanwhile is then seen twice, and
    # known by the journal to be closed; the other way round it would be missing.
    notes = {file: _notes(file) for file in note_files(path)}
    scan = scan_journal(path / JOURNAL)
    for record in committed(path / JOURNAL, scan.end):
        if record.kind != CLOSED:
            _take(view, decode(record))
    live = open_scopes(notes, scan.closed)
    for file in live:
        for event in notes[file]:
            _take(view, event)
    view.open_scopes = tuple(live.values())
    return view


def _notes(file: Path) -> list[Event]:
    try:
        return [decode(record) for _, record in sound_notes(file)]
    except FileNotFoundError:
        return []  # closed since the folder was listed


def _take(view: RunView, event: Event) -> None:
    """Put an event where it is looked for."""
    match event:
        case RolloutRecorded():
            view.rollouts.setdefault(event.candidate, []).append(event)
        case CandidateRecorded():
            view.candidates[event.id] = event
        case IterationClosed():
            view.iterations.append(event)
        case CasesFrozen():
            view.cases, view.excluded = event.cases, event.excluded
        case RequestStarted():
            view.requests.append(event)
        case ProposalMade():
            view.proposals.append(event)
        case DiagnosesMade():
            view.diagnoses.append(event)
        case CallsLost():
            view.calls_lost.append(event)
        case AcceptanceDecided():
            view.decisions.append(event)
        case RunResumed():
            view.resumes.append(event)
            view.stop = None  # it goes on
        case NoiseMeasured():
            view.noise = event
        case IsolationChosen():
            view.isolation = event
        case FinalMeasured():
            view.final = event
        case RunStopped():
            view.stop = event


def _total(usages: Iterator[Usage]) -> Usage:
    return reduce(add, usages, NO_USAGE)
