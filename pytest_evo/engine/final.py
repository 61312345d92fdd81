"""The final measurement: start and winner on test, out of the reserve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

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
from pytest_evo.models import Split

ITERATION = 1_000_000_000
"""Comes after every iteration, for the flow and for repeat numbers."""
BLOCK, CAREFUL_BLOCK = 32, 4
"""Cases whose arms are measured together; fewer where tokens or money are limited.

Fixed, because the order of the journal may not depend on how many workers there are.
"""
Arms: TypeAlias = tuple[Candidate, Candidate]
"""The start and the winner."""
Seen: TypeAlias = tuple[list[Rollout], list[Rollout]]
"""What was seen of either."""


class Final:
    """Measures the claim of a run once.

    Args:
        setup: the cases and how often they are repeated.
        snapshot: what the search knows.
        dispatcher: runs what is not known.
        careful: whether a budget of tokens or money may end it half-way.
    """

    def __init__(
        self,
        setup: Setup,
        snapshot: Snapshot,
        dispatcher: Dispatcher,
        *,
        careful: bool = False,
    ) -> None:
        self._setup = setup
        self._snapshot = snapshot
        self._dispatcher = dispatcher
        self._size = CAREFUL_BLOCK if careful else BLOCK
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
        records = self._snapshot.records.get(start.tree, {})
        mine = [
            as_rollout(records[case.id], start)
            for case in cases
            if case.id not in setup.noisy and case.id in records
        ]
        known, theirs = self._known(winner, cases, split)
        open_cases = [case for case in cases if case.id not in known]
        arms = start, winner.candidate
        for of_start, of_winner in await self._measure(arms, open_cases, log):
            mine += of_start
            theirs += of_winner
        before = means(scores_by_case(mine))
        after = known | means(scores_by_case(theirs))
        if not any(case in after for case in before):
            return None
        claim = make_claim(
            split,
            before,
            after,
            in_sample=split is not Split.TEST,
            weights={case.id: case.weight for case in cases},
            audit=_audit(mine, theirs),
        )
        if self.unpaid:
            count = len(self._unpaid_cases)
            claim = replace(claim, unmeasured=count, budget=self.unpaid)
        return FinalMeasured(winner.candidate.id, claim)

    def _known(
        self, winner: Member, cases: Sequence[Case], split: Split
    ) -> tuple[dict[CaseId, float], list[Rollout]]:
        """What the search knows exactly of the winner: its deterministic val cases."""
        if split is not Split.VAL:
            return {}, []
        certain = [case.id for case in cases if case.id not in self._setup.noisy]
        seen = self._snapshot.records.get(winner.candidate.tree, {})
        rows = [as_rollout(seen[c], winner.candidate) for c in certain if c in seen]
        return {case: winner.scores[case] for case in certain}, rows

    async def _measure(
        self, arms: Arms, cases: Sequence[Case], log: ScopeLog
    ) -> list[Seen]:
        """Both arms of some cases at a time: a budget that ends leaves whole pairs.

        It also keeps apart what the winner changes and what time does.
        """
        found = []
        for first in range(0, len(cases), self._size):
            block = cases[first : first + self._size]
            try:
                found.append(await self._both(arms, block, log))
            except BudgetReached:
                found += await self._affordable(arms, block, log)
        return found

    async def _affordable(
        self, arms: Arms, cases: Sequence[Case], log: ScopeLog
    ) -> list[Seen]:
        """Retries, a killed session or a dear winner have used up part of the reserve.

        The claim is then made on the cases that can still be measured.
        """
        found = []
        for case in cases:
            try:
                found.append(await self._both(arms, [case], log))
            except BudgetReached as reached:
                self.unpaid = reached.axis
                self._unpaid_cases.add(case.id)
        return found

    async def _both(self, arms: Arms, cases: Sequence[Case], log: ScopeLog) -> Seen:
        """Fresh repeats of both arms where chance plays; the winner once elsewhere."""
        noisy = [case.id for case in cases if case.id in self._setup.noisy]
        certain = [(case.id, 0) for case in cases if case.id not in self._setup.noisy]
        start, winner = arms
        works = [
            Work(candidate, tuple(runs), Purpose.FINAL, ITERATION)
            for candidate, runs in (
                (start, self._fresh(start, noisy)),
                (winner, [*self._fresh(winner, noisy), *certain]),
            )
        ]
        mine, theirs = await self._dispatcher.run_all(works, log)
        return mine, theirs

    def _fresh(
        self, candidate: Candidate, cases: Sequence[CaseId]
    ) -> list[tuple[CaseId, int]]:
        counts = self._snapshot.next_repeat.get(candidate.tree, {})
        return [
            (case, counts.get(case, 0) + number)
            for case in cases
            for number in range(self._setup.final_repeats)
        ]


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
