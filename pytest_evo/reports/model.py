"""What every report is computed from: plain data of one run, and figures out of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from pytest_evo.events import CandidateRecorded
from pytest_evo.events import FinalMeasured
from pytest_evo.events import IterationClosed
from pytest_evo.events import NoiseMeasured
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import RunStopped
from pytest_evo.events import winner_of
from pytest_evo.means import mean_of
from pytest_evo.models import CandidateId
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Diagnosis
from pytest_evo.models import Kind
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Split
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.models import Usage


def _no_detail(_: RolloutRecorded) -> Detail:
    return Detail()


def _prose(_: str) -> Kind:
    return Kind.PROSE


@dataclass(slots=True)
class _Memo:
    """What was computed of a run already; a run does not change."""

    candidates: dict[CandidateId, CandidateRecorded] = field(default_factory=dict)
    cases: dict[CaseId, Case] = field(default_factory=dict)
    sizes: Counter[Split] = field(default_factory=Counter)
    scores: dict[CandidateId, Mapping[CaseId, float]] = field(default_factory=dict)
    closed: dict[int, IterationClosed] = field(default_factory=dict)
    standings: list[Standing] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class RunReport:
    """One run as the reports see it; ``detail`` reads what is too big for memory."""

    id: str
    created: str  # ISO 8601
    artifact: str
    cases: tuple[Case, ...]
    candidates: tuple[CandidateRecorded, ...]
    rollouts: Mapping[CandidateId, Sequence[RolloutRecorded]]
    objective: str = ""
    seed: int = 0
    iterations: tuple[IterationClosed, ...] = ()
    noise: NoiseMeasured | None = None
    final: FinalMeasured | None = None
    stop: RunStopped | None = None
    spent: Mapping[str, int] = field(default_factory=dict)  # rollouts by purpose
    usage: Mapping[str, Usage] = field(default_factory=dict)  # by role
    diff: str = ""  # the winner against the start, unified
    detail: Callable[[RolloutRecorded], Detail] = _no_detail
    left_out: tuple[tuple[CaseId, str], ...] = ()  # no score at the baseline, and why
    diagnoses: Mapping[CandidateId, Sequence[Diagnosis]] = field(default_factory=dict)
    kind: Callable[[str], Kind] = _prose  # of a file of the artifact
    memo: _Memo = field(default_factory=_Memo, init=False, repr=False, compare=False)

    @property
    def winner(self) -> CandidateId:
        """The measured winner, else the best of the population, else the start."""
        return winner_of(self.final, self.stop, self.iterations)

    @property
    def has_start(self) -> bool:
        """Whether the baseline is complete; before that there is no candidate."""
        return any(record.id == START for record in self.candidates)

    @property
    def complete(self) -> bool:
        """Whether the run ended by itself and nothing is left to resume."""
        return self.stop is not None and self.stop.complete

    def candidate(self, candidate: CandidateId) -> CandidateRecorded | None:
        """The record of a candidate."""
        if not self.memo.candidates:
            self.memo.candidates.update((c.id, c) for c in self.candidates)
        return self.memo.candidates.get(candidate)


@dataclass(frozen=True, slots=True)
class CaseResult:
    """All rollouts of one case on one candidate as one result."""

    case: Case
    outcome: Outcome
    score: float | None
    runs: int
    passes: int
    seconds: float
    usd: float | None
    metrics: Mapping[str, float]
    violation: str | None = None
    shown: RolloutRecorded | None = None  # the rollout that speaks for the result
    left_out: bool = False  # ran at the baseline only, and has no split


@dataclass(frozen=True, slots=True)
class Standing:
    """How one candidate did. Means are None where a split was not run in full."""

    record: CandidateRecorded
    val: float | None
    test: float | None
    train: float | None  # over the train cases that it ran
    train_cases: int
    rollouts: int
    seconds: float
    usd: float | None
    val_gain: float | None  # over the start
    parent_gain: float | None  # over its parent, on the cases that both ran


def last_attempts(
    run: RunReport, candidate: CandidateId
) -> dict[CaseId, list[RolloutRecorded]]:
    """Rollouts by case in order of repeat; of a retried one only the last attempt."""
    newest: dict[tuple[CaseId, int], RolloutRecorded] = {}
    for rollout in run.rollouts.get(candidate, ()):
        if rollout.purpose is Purpose.PROBE:
            continue  # not the candidate's files
        key = (rollout.case, rollout.repeat)
        known = newest.get(key)
        if known is None or rollout.attempt >= known.attempt:
            newest[key] = rollout
    cases: dict[CaseId, list[RolloutRecorded]] = {}
    for (case, _), rollout in sorted(newest.items(), key=lambda item: item[0][1]):
        cases.setdefault(case, []).append(rollout)
    return cases


def case_results(run: RunReport, candidate: CandidateId) -> list[CaseResult]:
    """One result per case that the candidate ran, in the order of the cases."""
    ran = last_attempts(run, candidate)
    return [_result(case, ran[case.id]) for case in run.cases if case.id in ran]


def left_out_results(run: RunReport) -> list[CaseResult]:
    """What the baseline saw of cases that had no score and were left out."""
    ran = last_attempts(run, START)
    return [
        replace(_result(Case(case, Split.TRAIN), ran[case]), left_out=True)
        for case, _ in run.left_out
        if case in ran
    ]


def _result(case: Case, rollouts: list[RolloutRecorded]) -> CaseResult:
    telling = [r for r in rollouts if not r.outcome.is_infrastructure] or rollouts
    passes = sum(r.outcome is Outcome.PASSED for r in telling)
    counted = [r for r in telling if r.outcome is not Outcome.SKIPPED]
    violated = next((r for r in rollouts if r.violation), None)
    if violated is not None:
        shown = violated
    elif 2 * passes > len(counted):
        shown = next(r for r in telling if r.outcome is Outcome.PASSED)
    else:
        bad = (r for r in counted if r.outcome is not Outcome.PASSED)
        shown = next(bad, telling[0])
    scores = [r.score for r in rollouts if r.score is not None]
    prices = [r.usage.usd for r in rollouts]
    return CaseResult(
        case=case,
        outcome=shown.outcome,
        score=math.fsum(scores) / len(scores) if scores else None,
        runs=len(rollouts),
        passes=passes,
        seconds=math.fsum(r.seconds for r in rollouts if math.isfinite(r.seconds)),
        usd=None if None in prices else math.fsum(p or 0.0 for p in prices),
        metrics=_metric_means(rollouts),
        violation=violated.violation if violated else None,
        shown=shown,
    )


def _metric_means(rollouts: Iterable[RolloutRecorded]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for rollout in rollouts:
        for metric in rollout.metrics:
            values.setdefault(metric.name, []).append(metric.value)
    return {name: math.fsum(found) / len(found) for name, found in values.items()}


def scores(run: RunReport, candidate: CandidateId) -> Mapping[CaseId, float]:
    """Scores of a candidate; val scores that were reused come from its iteration."""
    known = run.memo.scores.get(candidate)
    if known is None:
        known = run.memo.scores[candidate] = _scores(run, candidate)
    return known


def _scores(run: RunReport, candidate: CandidateId) -> dict[CaseId, float]:
    record = run.candidate(candidate)
    closed = _closed(run, record.iteration) if record is not None else None
    found: dict[CaseId, float] = {}
    if closed is not None and closed.child == candidate:
        found.update(closed.val)
    for case, rollouts in last_attempts(run, candidate).items():
        own = [rollout.score for rollout in rollouts if rollout.score is not None]
        if own:
            found[case] = math.fsum(own) / len(own)
    return found


def _closed(run: RunReport, iteration: int) -> IterationClosed | None:
    if not run.memo.closed:
        run.memo.closed.update((one.iteration, one) for one in run.iterations)
    return run.memo.closed.get(iteration)


def standings(run: RunReport) -> list[Standing]:
    """All candidates, best first: by val, then by what they scored on train."""
    if not run.memo.standings:
        found = [standing(run, record) for record in run.candidates]
        run.memo.standings += sorted(found, key=lambda one: _rank(run, one))
    return list(run.memo.standings)


def _rank(run: RunReport, standing: Standing) -> tuple[float, ...]:
    val, record = standing.val, standing.record
    in_population = record.status in (Status.START, Status.ACCEPTED)
    if val is not None and in_population:
        return (0, -round(val, 8), record.id != run.winner, -record.iteration)
    return (1, -(standing.train or 0.0), -record.iteration, -record.step)


def standing(run: RunReport, record: CandidateRecorded) -> Standing:
    """How one candidate did against the start and against its parent."""
    own, start = scores(run, record.id), scores(run, START)
    parent = scores(run, record.parent) if record.parent else {}
    ran = run.rollouts.get(record.id, ())
    cases = _known_cases(run, own)
    train = [case for case in cases if case.split is Split.TRAIN]
    prices = [r.usage.usd for r in ran]
    val, start_val = (_whole(run, Split.VAL, vector) for vector in (own, start))
    both = [case for case in cases if case.id in parent]
    mean, parent_mean = mean_of(own, both), mean_of(parent, both)
    return Standing(
        record=record,
        val=val,
        test=_whole(run, Split.TEST, own),
        train=mean_of(own, train),
        train_cases=len(train),
        rollouts=len(ran),
        seconds=math.fsum(r.seconds for r in ran if math.isfinite(r.seconds)),
        usd=None if None in prices else math.fsum(p or 0.0 for p in prices),
        val_gain=val - start_val if val is not None and start_val is not None else None,
        parent_gain=(
            mean - parent_mean if mean is not None and parent_mean is not None else None
        ),
    )


def _whole(
    run: RunReport, split: Split, vector: Mapping[CaseId, float]
) -> float | None:
    cases = [case for case in _known_cases(run, vector) if case.split is split]
    if not cases or len(cases) < run.memo.sizes[split]:
        return None
    return mean_of(vector, cases)


def _known_cases(run: RunReport, vector: Mapping[CaseId, float]) -> list[Case]:
    if not run.memo.cases:
        run.memo.cases.update((case.id, case) for case in run.cases)
        run.memo.sizes.update(case.split for case in run.cases)
    return [run.memo.cases[case] for case in vector if case in run.memo.cases]


def reason_of(run: RunReport, record: CandidateRecorded) -> str:
    """Why an iteration ended as it did, for the candidate it was about."""
    closed = _closed(run, record.iteration) if record.id != START else None
    return closed.reason if closed is not None else ""


def role_rows(run: RunReport) -> list[tuple[str, Usage]]:
    """Who spent what on model calls, in a fixed order; roles without a call left out.

    An unknown price stays unknown.
    """
    order = ("suite", "proposer", "diagnoser")
    names = [role for role in order if role in run.usage]
    names += sorted(role for role in run.usage if role not in order)
    return [(role, run.usage[role]) for role in names if run.usage[role].calls]


def audit_warnings(run: RunReport) -> list[tuple[str, float, float]]:
    """Audit metrics (name, start, winner) that fell while the score rose."""
    if run.final is None or run.final.claim.difference <= 0:
        return []
    return [
        (name, start, winner)
        for name, (start, winner) in sorted(run.final.claim.audit.items())
        if winner < start - 1e-8
    ]
