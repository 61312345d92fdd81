"""The final measurement: start and winner on test, out of the reserve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from pytest_evo.engine.budget import BudgetReached
from pytest_evo.engine.dispatch import Dispatcher
from pytest_evo.engine.dispatch import Work
from pytest_evo.engine.recording import as_rollout
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.scoring import means
from pytest_evo.engine.scoring import scores_by_case
from pytest_evo.engine.setup import Setup
from pytest_evo.engine.state import Snapshot
from pytest_evo.engine.statistics import make_claim
from pytest_evo.events import FinalMeasured
from pytest_evo.means import weighted_mean
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Member
from pytest_evo.models import Metric
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import ScoreVector
from pytest_evo.models import Split

ITERATION = 1_000_000_000
"""Comes after every iteration, for the flow and for repeat numbers."""


class Final:
    """Measures the claim of a run once."""

    def __init__(
        self,
        setup: Setup,
        snapshot: Snapshot,
        dispatcher: Dispatcher,
    ) -> None:
        self._setup = setup
        self._snapshot = snapshot
        self._dispatcher = dispatcher
        self.unpaid = ""
        """The budget that did not pay for all of it."""
        self._unpaid_cases: set[CaseId] = set()

    async def run(
        self, start: Candidate, winner: Member, log: ScopeLog
    ) -> FinalMeasured | None:
        """Run both arms and make the claim; None where the start itself has won."""
        if winner.candidate.tree == start.tree:
            return None
        setup = self._setup
        split = setup.final_split
        cases = setup.cases(split)
        noisy = [case for case in cases if case.id in setup.noisy]
        certain = [case for case in cases if case.id not in setup.noisy]
        mine = await self._fresh(start, noisy, log)
        theirs = await self._fresh(winner.candidate, noisy, log)
        records = self._snapshot.records.get(start.tree, {})
        reused = [
            as_rollout(records[case.id], start)
            for case in certain
            if case.id in records
        ]
        before = means(scores_by_case([*mine, *reused]))
        after, rows = await self._winner_certain(winner, certain, split, log)
        after |= means(scores_by_case(theirs))
        if not any(case in after for case in before):
            return None
        claim = make_claim(
            split,
            before,
            after,
            in_sample=split is not Split.TEST,
            weights={case.id: case.weight for case in cases},
            audit=_audit([*mine, *reused], [*theirs, *rows]),
        )
        if self.unpaid:
            count = len(self._unpaid_cases)
            claim = replace(claim, unmeasured=count, budget=self.unpaid)
        return FinalMeasured(winner.candidate.id, claim)

    async def _fresh(
        self, candidate: Candidate, cases: Sequence[Case], log: ScopeLog
    ) -> list[Rollout]:
        counts = self._snapshot.next_repeat.get(candidate.tree, {})
        runs = [
            (case.id, counts.get(case.id, 0) + number)
            for case in cases
            for number in range(self._setup.final_repeats)
        ]
        return await self._run(candidate, runs, log)

    async def _winner_certain(
        self, winner: Member, cases: Sequence[Case], split: Split, log: ScopeLog
    ) -> tuple[dict[CaseId, float], list[Rollout]]:
        if split is Split.VAL:
            known: ScoreVector = winner.scores
            seen = self._snapshot.records.get(winner.candidate.tree, {})
            rows = [
                as_rollout(seen[case.id], winner.candidate)
                for case in cases
                if case.id in seen
            ]
            return {case.id: known[case.id] for case in cases}, rows
        runs = [(case.id, 0) for case in cases]
        rows = await self._run(winner.candidate, runs, log)
        return means(scores_by_case(rows)), rows

    async def _run(
        self, candidate: Candidate, runs: list[tuple[CaseId, int]], log: ScopeLog
    ) -> list[Rollout]:
        if not runs:
            return []
        work = Work(candidate, tuple(runs), Purpose.FINAL, ITERATION)
        try:
            return await self._dispatcher.run(work, log)
        except BudgetReached:
            return await self._run_affordable(work, log)

    async def _run_affordable(self, work: Work, log: ScopeLog) -> list[Rollout]:
        """Retries, a killed session or a dear winner have used up part of the reserve.

        The claim is then made on the cases that can still be measured.
        """
        found = []
        for run in work.runs:
            try:
                found += await self._dispatcher.run(replace(work, runs=(run,)), log)
            except BudgetReached as reached:
                self.unpaid = reached.axis
                self._unpaid_cases.add(run[0])
        return found


def _audit(
    start: Sequence[Rollout], winner: Sequence[Rollout]
) -> dict[str, tuple[float, float]]:
    """Means of the audit metrics that both arms have."""
    before, after = _audit_means(start), _audit_means(winner)
    return {name: (before[name], after[name]) for name in before if name in after}


def _audit_means(rollouts: Sequence[Rollout]) -> dict[str, float]:
    values: dict[str, dict[str, float]] = {}
    for index, rollout in enumerate(rollouts):
        metric: Metric
        for metric in rollout.metrics:
            if metric.audit:
                values.setdefault(metric.name, {})[str(index)] = metric.value
    return {name: weighted_mean(row) or 0.0 for name, row in values.items()}
