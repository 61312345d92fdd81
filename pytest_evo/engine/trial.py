"""The trial of one node against the parent: acceptance, repeats, confirmation."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace

from pytest_evo.engine.limits import broken_limit
from pytest_evo.engine.measuring import Bench
from pytest_evo.engine.measuring import is_complete
from pytest_evo.engine.measuring import unscored
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Plan
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.scoring import scores_by_case
from pytest_evo.engine.setup import Setup
from pytest_evo.events import AcceptanceDecided
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Decision
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import Verdict
from pytest_evo.protocols import Comparison

ROUNDS = 3
"""Rounds of fresh repeats that an undecided child gets at most."""


@dataclass(slots=True)
class Arm:
    """A candidate's scores on the batch, growing with every fresh repeat."""

    candidate: Candidate
    scores: dict[CaseId, tuple[float, ...]]

    def add(self, rollouts: Sequence[Rollout]) -> None:
        """Append fresh repeats."""
        for case, values in scores_by_case(rollouts).items():
            self.scores[case] = (*self.scores.get(case, ()), *values)


@dataclass(frozen=True, slots=True)
class Ruling:
    """What came of a trial; ``incomplete`` where infrastructure got in the way."""

    accepted: bool
    incomplete: bool
    reason: str


class Trial:
    """Tries nodes of one iteration against its parent on its batch."""

    def __init__(
        self,
        parts: Parts,
        plan: Plan,
        setup: Setup,
        bench: Bench,
        log: ScopeLog,
        batch: Sequence[Case],
        parent: Arm,
        attempts: int,
    ) -> None:
        self._parts = parts
        self._plan = plan
        self._setup = setup
        self._bench = bench
        self._log = log
        self._batch = batch
        self._parent = parent
        self._attempts = attempts
        self._weights = {case.id: case.weight for case in batch}
        self._noisy = frozenset(case.id for case in batch if case.id in setup.noisy)

    async def rule(self, child: Candidate, rollouts: Sequence[Rollout]) -> Ruling:
        """Accept or reject a child that has run on the batch.

        Raises:
            BudgetReached: fresh repeats could not be paid.
        """
        if not is_complete(rollouts):
            missing = "; ".join(unscored(rollouts)[:3])
            return Ruling(False, True, f"incomplete: {missing}")
        arm = Arm(child, scores_by_case(rollouts))
        verdict = await self._until_decided(arm)
        if verdict.decision is not Decision.ACCEPTED:
            return Ruling(False, False, verdict.reason)
        broken = self._broken_limit(child, rollouts)
        if broken is not None:
            return Ruling(False, False, broken)
        if self._noisy:
            verdict = await self._confirm(arm)
        accepted = verdict.decision is Decision.ACCEPTED
        return Ruling(accepted, False, verdict.reason)

    async def _until_decided(self, arm: Arm) -> Verdict:
        for number in range(ROUNDS + 1):
            verdict = self._decide(self._parent.scores, arm.scores)
            if verdict.decision is Decision.UNDECIDED and number == ROUNDS:
                reason = f"undecided after {ROUNDS} rounds: {verdict.reason}"
                verdict = replace(verdict, decision=Decision.REJECTED, reason=reason)
            self._note(arm.candidate, verdict, number)
            if verdict.decision is not Decision.UNDECIDED:
                break
            if not await self._repeat(arm):
                return replace(
                    verdict,
                    decision=Decision.REJECTED,
                    reason="fresh repeats were incomplete",
                )
        return verdict

    async def _repeat(self, arm: Arm) -> bool:
        child = await self._bench.again(
            arm.candidate, self._batch, Purpose.REPEAT, shared=False
        )
        parent = await self._bench.again(
            self._parent.candidate, self._batch, Purpose.REPEAT, shared=True
        )
        arm.add(child)
        self._parent.add(parent)
        return is_complete(child) and is_complete(parent)

    async def _confirm(self, arm: Arm) -> Verdict:
        """Decide once more on fresh rollouts only: the lucky ones do not count."""
        child = await self._fresh(arm.candidate, shared=False)
        parent = await self._fresh(self._parent.candidate, shared=True)
        if not (is_complete(child) and is_complete(parent)):
            return Verdict(Decision.REJECTED, 0.0, reason="confirmation was incomplete")
        certain = [case for case in self._weights if case not in self._noisy]
        verdict = self._decide(
            _only(self._parent.scores, certain) | scores_by_case(parent),
            _only(arm.scores, certain) | scores_by_case(child),
            fresh=True,
        )
        if verdict.decision is not Decision.ACCEPTED:
            verdict = replace(
                verdict,
                decision=Decision.REJECTED,
                reason=f"not confirmed on fresh rollouts: {verdict.reason}",
            )
        self._note(arm.candidate, verdict, ROUNDS + 1)
        return verdict

    async def _fresh(self, candidate: Candidate, *, shared: bool) -> list[Rollout]:
        rollouts: list[Rollout] = []
        for _ in range(confirmation_repeats(len(self._batch))):
            rollouts += await self._bench.again(
                candidate, self._batch, Purpose.CONFIRMATION, shared=shared
            )
        return rollouts

    def _decide(
        self,
        parent: Mapping[CaseId, Sequence[float]],
        child: Mapping[CaseId, Sequence[float]],
        *,
        fresh: bool = False,
    ) -> Verdict:
        return self._parts.strategy.acceptance.decide(
            Comparison(
                parent=parent,
                child=child,
                noisy=self._noisy,
                variance=self._setup.variance,
                weights=self._weights,
                attempts=self._attempts,
                fresh=fresh,
            )
        )

    def _broken_limit(
        self, child: Candidate, rollouts: Sequence[Rollout]
    ) -> str | None:
        if not self._plan.limits:
            return None
        workshop = self._parts.workshop
        return broken_limit(
            self._plan.limits,
            self._setup,
            rollouts,
            workshop.size(child.tree),
            workshop.size(self._plan.start),
        )

    def _note(self, child: Candidate, verdict: Verdict, number: int) -> None:
        event = AcceptanceDecided(
            iteration=child.iteration,
            step=child.step,
            candidate=child.id,
            decision=verdict.decision,
            effect=verdict.effect,
            threshold=verdict.threshold,
            p_value=verdict.p_value,
            reason=verdict.reason,
            round=number,
        )
        self._log.write(event)
        self._parts.observer.notice(event)


def confirmation_repeats(batch: int) -> int:
    """Fresh repeats of each arm that a confirmation takes.

    Simulated on cases that pass half of the time, with chains of depth 5: a child that
    is
    no better reaches validation in at most 1.3 % of iterations either way, and a repeat
    more at batch 16, two more at batch 8, doubles the power.
    """
    return 2 if batch >= 16 else 3


def _only(
    scores: Mapping[CaseId, Sequence[float]], cases: Sequence[CaseId]
) -> dict[CaseId, Sequence[float]]:
    return {case: scores[case] for case in cases}
