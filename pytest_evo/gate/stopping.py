"""When the first pass ends early: a head that is plainly broken, or an outage.

Looks at every rollout as it comes, but at pairs in the order of the plan only, so that
which worker is faster decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from pytest_evo.gate.caseevidence import CaseEvidence
from pytest_evo.gate.judging import plain_goal
from pytest_evo.gate.statistics import Bettor
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Observation
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON


class EarlyStop:
    """Watches first pairs. ``heaviest`` is the largest weight of all cases."""

    def __init__(self, policy: GatePolicy, heaviest: float) -> None:
        self._policy = policy
        self._heaviest = heaviest
        self._order: list[CaseEvidence] = []
        self._by_id: dict[CaseId, CaseEvidence] = {}
        self._done = 0
        self._lost: set[CaseId] = set()
        self._worse = 0
        self._flips = 0
        self._bettor = Bettor()
        self._plain = False

    def plan(self, cases: Iterable[CaseEvidence]) -> None:
        """Add cases whose first pairs were planned, in this order, and that count."""
        for evidence in cases:
            self._by_id[evidence.case.id] = evidence
            self._order.append(evidence)

    def see(self, observation: Observation) -> str:
        """Look at a first rollout that was added; the reason to stop, or nothing."""
        evidence = self._by_id.get(observation.case)
        if evidence is None:
            return ""
        if self._is_lost(evidence):
            self._lost.add(observation.case)
        most = self._policy.max_error_rate * len(self._order)
        if len(self._lost) > max(most + EPSILON, self._policy.named - 1):
            return (
                f"{len(self._lost)} of {len(self._order)} cases could not be measured"
            )
        while self._done < len(self._order) and self._take(self._order[self._done]):
            self._done += 1
        return self._verdict()

    def _verdict(self) -> str:
        # what is tolerated can only be told at the end
        over = self._done == len(self._order) or self._policy.tolerance > 0
        plain = self._plain and self._worse >= self._policy.named
        if over or not (plain or self._flips >= self._policy.named):
            return ""
        return f"plainly worse after {self._done} of {len(self._order)} cases"

    def _is_lost(self, e: CaseEvidence) -> bool:
        lost = e.lost
        return lost is not None and lost.attempt >= self._policy.retries

    def _take(self, e: CaseEvidence) -> bool:
        """Bet on one case; False where it has not come back whole."""
        first = e.first
        if first is None:
            return e.not_compared or self._is_lost(e)
        if self._policy.accept_removed and first.head.gone:
            return True
        self._worse += first.difference < -EPSILON
        declared = e.case.deterministic is True
        self._flips += declared and first.fell(self._policy.flip_drop)
        stake = e.case.weight / self._heaviest if self._heaviest > 0 else 0.0
        owned = self._bettor.see(first.difference * stake)
        self._plain = self._plain or owned >= plain_goal(self._policy)
        return True
