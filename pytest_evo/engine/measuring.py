"""Measures candidates on cases: which repeats, what is known, what it comes to."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_evo.engine.dispatch import Dispatcher
from pytest_evo.engine.dispatch import Work
from pytest_evo.engine.recording import as_rollout
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.scoring import means
from pytest_evo.engine.scoring import scores_by_case
from pytest_evo.engine.setup import Setup
from pytest_evo.engine.state import Snapshot
from pytest_evo.means import mean_of
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import TreeHash


class Repeats:
    """Numbers the repeats of one iteration so that no two slots take the same.

    A tree that is new in this iteration counts from 0. Fresh repeats of a tree that
    others may measure at the same time take every K-th number, K being the slots.
    """

    def __init__(self, snapshot: Snapshot, iteration: int, slots: int) -> None:
        self._next = snapshot.next_repeat
        self._lane = iteration % slots
        self._slots = slots
        self._taken: dict[tuple[TreeHash, CaseId], int] = {}

    def take(self, tree: TreeHash, case: CaseId, *, shared: bool) -> int:
        """The next number for a case; ``shared`` where other slots may ask too."""
        count = self._taken.get((tree, case), 0)
        self._taken[tree, case] = count + 1
        first = self._next.get(tree, {}).get(case, 0)
        if not shared:
            return first + count
        aligned = -(-first // self._slots) * self._slots
        return aligned + self._lane + count * self._slots


@dataclass(frozen=True, slots=True)
class ParentRun:
    """The parent's scores on a batch with the rollouts behind them."""

    scores: dict[CaseId, tuple[float, ...]]
    rollouts: tuple[Rollout, ...]


class Bench:
    """Runs candidates on cases on behalf of one iteration."""

    def __init__(
        self,
        iteration: int,
        snapshot: Snapshot,
        setup: Setup,
        dispatcher: Dispatcher,
        log: ScopeLog,
        slots: int,
    ) -> None:
        self._iteration = iteration
        self._snapshot = snapshot
        self._setup = setup
        self._dispatcher = dispatcher
        self._log = log
        self._repeats = Repeats(snapshot, iteration, slots)

    async def parent(self, parent: Candidate, batch: Sequence[Case]) -> ParentRun:
        """The parent on the batch; results are reused only where deterministic."""
        known = self._snapshot.known.get(parent.tree, {})
        records = self._snapshot.records.get(parent.tree, {})
        scores: dict[CaseId, tuple[float, ...]] = {}
        reused: list[Rollout] = []
        runs = []
        for case in batch:
            if case.id in self._setup.noisy:
                runs += self._fresh(parent, case, shared=True)
            elif case.id in known:
                scores[case.id] = known[case.id]
                reused.append(as_rollout(records[case.id], parent))
            else:
                runs += [(case.id, 0)]
        rollouts = await self._run(parent, runs, Purpose.PARENT)
        return ParentRun(scores | scores_by_case(rollouts), (*reused, *rollouts))

    async def measure(
        self, candidate: Candidate, cases: Sequence[Case], purpose: Purpose
    ) -> list[Rollout]:
        """A new candidate's rollouts, as often as each case is measured once."""
        runs = [run for case in cases for run in self._fresh(candidate, case)]
        return await self._run(candidate, runs, purpose)

    async def again(
        self,
        candidate: Candidate,
        cases: Iterable[Case],
        purpose: Purpose,
        *,
        shared: bool,
    ) -> list[Rollout]:
        """Fresh repeats of noisy cases."""
        runs = [
            run
            for case in cases
            if case.id in self._setup.noisy
            for run in self._fresh(candidate, case, shared=shared)
        ]
        return await self._run(candidate, runs, purpose)

    def _fresh(
        self, candidate: Candidate, case: Case, *, shared: bool = False
    ) -> list[tuple[CaseId, int]]:
        return [
            (case.id, self._repeats.take(candidate.tree, case.id, shared=shared))
            for _ in range(self._setup.runs_of(case))
        ]

    async def _run(
        self, candidate: Candidate, runs: list[tuple[CaseId, int]], purpose: Purpose
    ) -> list[Rollout]:
        if not runs:
            return []
        work = Work(candidate, tuple(runs), purpose, self._iteration)
        return await self._dispatcher.run(work, self._log)


def is_complete(rollouts: Iterable[Rollout]) -> bool:
    """Whether every rollout has a score."""
    return all(rollout.score is not None for rollout in rollouts)


def is_perfect(vector: Mapping[CaseId, float], cases: Sequence[Case]) -> bool:
    """Whether every case has the full score."""
    return all(vector.get(case.id, 0.0) >= 1 - EPSILON for case in cases)


def batch_mean(rollouts: Iterable[Rollout], batch: Sequence[Case]) -> float | None:
    """The weighted batch mean over the cases that were scored."""
    return mean_of(means(scores_by_case(rollouts)), batch)


def unscored(rollouts: Iterable[Rollout]) -> list[str]:
    """Case and outcome of every rollout without a score, for messages."""
    return [
        f"{rollout.case}: {rollout.outcome.value}"
        for rollout in rollouts
        if rollout.score is None and rollout.outcome is not Outcome.SKIPPED
    ]
