"""Which rollouts the gate asks for, in which order, and when it has seen enough.

No input or output: whoever drives it runs what ``next`` asks and hands every rollout
to ``record``, in any order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from pytest_evo.gate.caseevidence import CaseEvidence
from pytest_evo.gate.decision import decide
from pytest_evo.gate.decision import find
from pytest_evo.gate.decision import NO_CHANGE
from pytest_evo.gate.evidence import counts
from pytest_evo.gate.evidence import Evidence
from pytest_evo.gate.evidence import gather
from pytest_evo.gate.evidence import plan_order
from pytest_evo.gate.settling import could_settle
from pytest_evo.gate.stopping import EarlyStop
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Stage
from pytest_evo.models import CaseId

LEAST_ALLOWANCE = 120
"""Rollouts that a small suite may spend on confirmations and further rounds."""


class Planner:
    """The plan of one gate run.

    Args:
        cases: all cases, unreached, added and quarantined ones too.
        policy: the rules and the budget.
        change: what differs besides how the cases come out.
        base_arm: False where only stored counts stand for the base; cases without
            stored counts are then run on the head only, and are not compared.
    """

    def __init__(
        self,
        cases: Sequence[GateCase],
        policy: GatePolicy,
        change: Change = NO_CHANGE,
        *,
        base_arm: bool = True,
    ) -> None:
        self._cases = tuple(
            case
            if base_arm or case.stored is not None or case.added
            else _as_added(case)
            for case in cases
        )
        if len({case.id for case in self._cases}) < len(self._cases):
            raise ValueError("two cases of the gate have the same id")
        self._order = plan_order(self._cases, policy)
        self._policy = policy
        self._change = change
        self._base_arm = base_arm
        self._observations: list[Observation] = []
        self._evidence_by_id = gather((), self._cases)
        self._waiting: deque[tuple[Ask, ...]] = deque()  # a pair, or a retry
        self._awaited: dict[tuple[Arm, CaseId, int, int], Ask] = {}
        self._asked = 0
        self._repeats: dict[tuple[CaseId, Arm], int] = {}
        self._stopped = ""
        self._runs: dict[CaseId, GateCase] = {}  # whose first pair is planned
        self._first_cost = 0
        self._tokens = 0
        self._usd = 0.0
        self._dearest = 0.0  # of a rollout: what one costs that hung in a call
        heaviest = max((case.weight for case in self._cases), default=0.0)
        self._early = EarlyStop(policy, heaviest)
        self._steps: deque[Callable[[], Iterable[tuple[Ask, ...]]]] = deque(
            [
                self._first,
                self._unreached,
                self._samples,
                self._confirm_all,
                self._confirm_rest,
                self._calm_samples,
                # a case may have opened a changed file only when it was run again
                self._unreached,
                self._samples,
                self._confirm_all,
                self._confirm_rest,
            ]
        )
        self._steps.extend([self._more] * policy.more_rounds)

    # -- what a driver calls -------------------------------------------------------

    @property
    def budget(self) -> int:
        """Rollouts that may be asked for in all, retries included."""
        if self._policy.rollouts is not None:
            return self._policy.rollouts
        return self._first_cost + max(LEAST_ALLOWANCE, 2 * len(self._runs))

    @property
    def asked(self) -> int:
        """Rollouts asked for so far, retries included."""
        return self._asked

    @property
    def cases(self) -> tuple[GateCase, ...]:
        """The cases as they are decided on."""
        return self._cases

    @property
    def observations(self) -> tuple[Observation, ...]:
        """Everything recorded, in order; with ``cases`` enough to decide again."""
        return tuple(self._observations)

    @property
    def finished(self) -> bool:
        """Whether nothing is left to ask and nothing is awaited."""
        self._advance()
        return not self._waiting and not self._awaited

    def next(self, limit: int = 64) -> tuple[Ask, ...]:
        """About ``limit`` further rollouts, pairs side by side and reserved.

        A pair is never torn: with ``limit = 1`` it is two. Empty while what is awaited
        decides how it goes on, and when finished.
        """
        self._advance()
        asks: list[Ask] = []
        while self._waiting and len(asks) < limit:
            pair = self._waiting[0]
            if not self._affordable(len(pair)):
                break
            self._waiting.popleft()
            asks.extend(pair)
            self._asked += len(pair)
            self._awaited.update({_key(ask): ask for ask in pair})
        return tuple(asks)

    def record(self, observation: Observation) -> None:
        """Take one rollout that was asked for; ``Outcome.LOST`` where it is gone.

        Raises:
            ValueError: it was not asked for, or is recorded already.
        """
        ask = self._awaited.pop(_key(observation), None)
        if ask is None or ask.stage is not observation.stage:
            raise ValueError(
                f"nobody asked for repeat {observation.repeat} (attempt "
                f"{observation.attempt}, {observation.stage}) of {observation.case} "
                f"on {observation.arm}"
            )
        self._observations.append(observation)
        self._evidence_by_id[observation.case].add(observation)
        again = observation.attempt < self._policy.retries and not self._stopped
        if observation.outcome.is_infrastructure and again:
            retry = Ask(ask.arm, ask.case, ask.repeat, ask.stage, ask.attempt + 1)
            self._waiting.appendleft((retry,))
        self._tokens += observation.tokens
        cut_off = observation.outcome.is_cut_off
        if observation.usd is not None:
            self._dearest = max(self._dearest, observation.usd)
        self._usd += self._dearest if observation.usd is None else observation.usd
        if observation.usd is None and self._policy.usd is not None and not cut_off:
            self.stop(
                f"nobody knows what the calls of {observation.case} cost, so the "
                f"budget of {self._policy.usd:g} USD cannot be kept; limit tokens"
            )
        if observation.stage is Stage.FIRST and not self._stopped:
            reason = self._early.see(observation)
            if reason:
                self.stop(reason)

    def stop(self, reason: str) -> None:
        """Ask for nothing more (a time limit, Ctrl-C); what is awaited may arrive."""
        self._stopped = self._stopped or reason
        self._waiting.clear()
        self._steps.clear()

    def decision(self) -> GateDecision:
        """The decision on what was recorded so far."""
        return decide(
            self._observations,
            self._cases,
            self._policy,
            self._change,
            stopped=self._stopped,
        )

    # -- going on ------------------------------------------------------------------

    def _advance(self) -> None:
        """Move to the next step once everything that was asked has come back."""
        while not self._waiting and not self._awaited and self._steps:
            self._waiting.extend(self._steps.popleft()())

    def _affordable(self, rollouts: int) -> bool:
        """Whether the budget has room; stops for good where it has not."""
        policy = self._policy
        if self._asked + rollouts > self.budget:
            self.stop(f"the budget of {self.budget} rollouts is spent")
        elif policy.tokens is not None and policy.tokens <= self._tokens:
            self.stop(f"the budget of {policy.tokens} tokens is spent")
        elif policy.usd is not None and policy.usd <= self._usd:
            self.stop(f"the budget of {policy.usd:g} USD is spent")
        return not self._stopped

    # -- steps ---------------------------------------------------------------------

    def _first(self) -> Iterable[tuple[Ask, ...]]:
        spots = [case for case in self._order if not case.reached]
        spots = spots[: self._policy.spot_checks]
        return self._first_pairs(
            [*spots, *(case for case in self._order if case.reached)]
        )

    def _unreached(self) -> Iterable[tuple[Ask, ...]]:
        if not self._evidence().saving_off:
            return []
        return self._first_pairs([c for c in self._order if c.id not in self._runs])

    def _first_pairs(self, cases: Sequence[GateCase]) -> list[tuple[Ask, ...]]:
        self._runs.update({case.id: case for case in cases})
        self._first_cost += sum(len(self._arms(case)) for case in cases)
        self._early.plan(
            self._evidence_by_id[case.id]
            for case in cases
            if counts(case, self._policy)
        )
        return [self._pair(case, Stage.FIRST, self._arms(case)) for case in cases]

    def _samples(self) -> Iterable[tuple[Ask, ...]]:
        """What a flip, or a case that is gone, rests on."""
        evidence = self._evidence()
        return self._sample(
            [e for e in evidence.to_sample if not evidence.calm or e.gone]
        )

    def _calm_samples(self) -> Iterable[tuple[Ask, ...]]:
        """What "nothing flipped" rests on, once what looks worse has been paid."""
        evidence = self._evidence()
        if find(evidence, self._change).reasons:
            return []
        return self._sample(evidence.to_sample)

    def _sample(self, who: Iterable[CaseEvidence]) -> Iterable[tuple[Ask, ...]]:
        cases = [e.case for e in who if not e.seen(Arm.HEAD, Stage.SAMPLE)]
        return self._rounds(cases, Stage.SAMPLE, self._evidence().sample_size)

    def _confirm_all(self) -> Iterable[tuple[Ask, ...]]:
        return self._confirm(lambda evidence: evidence.suspects, 0)

    def _confirm_rest(self) -> Iterable[tuple[Ask, ...]]:
        return self._confirm(lambda evidence: evidence.still_suspect, 1)

    def _confirm(
        self, who: Callable[[Evidence], Sequence[CaseEvidence]], index: int
    ) -> Iterable[tuple[Ask, ...]]:
        """One round for as many as can be paid for in full, unless all is decided."""
        evidence = self._evidence()
        if find(evidence, self._change).reasons:
            return []
        times, before = self._policy.confirm[index], sum(self._policy.confirm[:index])
        cases = [
            e.case
            for e in who(evidence)
            if len(e.seen(Arm.HEAD, Stage.CONFIRMATION)) == before
        ]
        arms = 2 if self._base_arm else 1
        paid = (self.budget - self._asked) // (arms * times) if times else 0
        return self._rounds(cases[:paid], Stage.CONFIRMATION, times)

    def _more(self) -> Iterable[tuple[Ask, ...]]:
        evidence = self._evidence()
        found = find(evidence, self._change)
        effect = found.overall
        if found.reasons or effect is None or self._policy.keeps_margin(effect.low):
            return []
        if not any(e.case.reached for e in evidence.counted):
            return []  # spot checks are no sample to measure a mean with
        cases = [e.case for e in evidence.noisy]
        cost = sum(len(self._arms(case)) for case in cases)
        left = (self.budget - self._asked) // cost if cost else 0
        rounds = min(left, 1 + self._steps.count(self._more))
        if not could_settle(evidence, effect, rounds):
            return []
        return self._rounds(cases, Stage.MORE, 1)

    # -- asks ----------------------------------------------------------------------

    def _evidence(self) -> Evidence:
        return Evidence(self._evidence_by_id, self._policy)

    def _arms(self, case: GateCase) -> tuple[Arm, ...]:
        """Which arms the first pair has to run."""
        return (Arm.HEAD,) if case.added or case.stored is not None else tuple(Arm)

    def _rounds(
        self, cases: Sequence[GateCase], stage: Stage, times: int
    ) -> list[tuple[Ask, ...]]:
        """Whole rounds; fresh ones have both arms wherever the base can be run."""
        both = tuple(Arm) if self._base_arm else (Arm.HEAD,)
        fresh = stage in (Stage.SAMPLE, Stage.CONFIRMATION)
        return [
            self._pair(case, stage, both if fresh else self._arms(case))
            for _ in range(times)
            for case in cases
        ]

    def _pair(
        self, case: GateCase, stage: Stage, arms: Sequence[Arm]
    ) -> tuple[Ask, ...]:
        """One repeat of a case; which arm goes first is drawn."""
        repeat = max(self._repeats.get((case.id, arm), 0) for arm in Arm)
        for arm in Arm:
            self._repeats[case.id, arm] = repeat + 1
        order = list(arms)
        Random(f"{self._policy.seed}:gate:{case.id}:{repeat}").shuffle(order)
        return tuple(Ask(arm, case.id, repeat, stage) for arm in order)


def _key(rollout: Ask | Observation) -> tuple[Arm, CaseId, int, int]:
    return rollout.arm, rollout.case, rollout.repeat, rollout.attempt


def _as_added(case: GateCase) -> GateCase:
    """A case that nothing is stored of, where the base cannot be run."""
    return replace(case, added=True)
