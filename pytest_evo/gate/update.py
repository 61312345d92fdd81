"""The plan of ``--evo-baseline-update``: every case once, and repeats where they vary.

No input or output, like the gate's planner: whoever drives it runs what ``next`` asks.
"""

from __future__ import annotations

from collections import Counter
from collections import deque
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from random import Random

from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Stage
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Outcome

SAMPLED = 20
"""How many cases that seem to repeat themselves are run again to see."""
TIMES = 3
"""How often a sampled or noisy case is run, unless told otherwise."""
_RETRIES = 1


class UpdatePlan:
    """What is run of one version, and which cases are noisy.

    A case is deterministic if it is declared so, or if none of its rollouts used the
    network or started a process and all that were sampled came out the same.
    """

    def __init__(
        self,
        cases: Sequence[CaseId],
        declared: Mapping[CaseId, bool],
        *,
        times: int | None = None,
        budget: int | None = None,
        seed: int = 0,
    ) -> None:
        """Plan.

        Args:
            cases: all of them.
            declared: those that say whether they are deterministic.
            times: rollouts of a noisy case.
            budget: rollouts in all; a plan that does not fit is not finished.
            seed: draws the sample.
        """
        self._cases = tuple(cases)
        self._declared = dict(declared)
        self._times = times or TIMES
        self._budget = budget
        self._asked = 0
        self._stopped = ""
        self._seen: dict[CaseId, dict[int, Observation]] = {}
        self._awaited: set[tuple[CaseId, int, int]] = set()
        self._waiting = deque(self._ask(case, 0) for case in self._cases)
        self._steps = [self._sample, self._noisy]
        self._rng = Random(f"{seed}:baseline")

    @property
    def budget(self) -> int:
        """Rollouts that are planned so far, or may be run at most."""
        if self._budget is not None:
            return self._budget
        return self._asked + len(self._waiting)

    @property
    def stopped(self) -> str:
        """Why it ended before its end; empty where it did not."""
        return self._stopped

    @property
    def seen(self) -> Mapping[CaseId, Sequence[Observation]]:
        """The last attempt of every repeat, by case."""
        return {
            case: tuple(row for _, row in sorted(rows.items()))
            for case, rows in self._seen.items()
        }

    @property
    def noisy(self) -> frozenset[CaseId]:
        """The cases that are not deterministic, as far as has been seen."""
        agree = all(
            _agree(rows) or self._outside(case)
            for case, rows in self.seen.items()
            if case not in self._declared
        )
        return frozenset(
            case
            for case in self._cases
            if not self._declared.get(case, agree and not self._outside(case))
        )

    @property
    def missing(self) -> tuple[Observation, ...]:
        """What infrastructure took away, after the retry."""
        return tuple(
            row
            for rows in self.seen.values()
            for row in rows
            if row.outcome.is_infrastructure
        )

    def next(self, limit: int = 64) -> tuple[Ask, ...]:
        """Up to ``limit`` further rollouts; empty while what is awaited decides."""
        while not self._waiting and not self._awaited and self._steps:
            self._waiting.extend(self._steps.pop(0)())
        asks: list[Ask] = []
        while self._waiting and len(asks) < limit:
            if self._budget is not None and self._asked >= self._budget:
                self.stop(f"the budget of {self._budget} rollouts is spent")
                break
            ask = self._waiting.popleft()
            asks.append(ask)
            self._asked += 1
            self._awaited.add((ask.case, ask.repeat, ask.attempt))
        return tuple(asks)

    def record(self, observation: Observation) -> None:
        """Take one rollout that was asked for."""
        row = observation
        self._awaited.remove((row.case, row.repeat, row.attempt))
        self._seen.setdefault(row.case, {})[row.repeat] = row
        if row.outcome.is_infrastructure and row.attempt < _RETRIES:
            again = Ask(row.arm, row.case, row.repeat, row.stage, row.attempt + 1)
            self._waiting.appendleft(again)

    def stop(self, reason: str) -> None:
        """Ask for nothing more; what is awaited may arrive."""
        self._stopped = self._stopped or reason
        self._waiting.clear()
        self._steps.clear()

    # -- steps -------------------------------------------------------------------------

    def _sample(self) -> Iterable[Ask]:
        if self.missing:  # nothing can be written, so nothing more is spent
            self._steps.clear()
            return []
        quiet = [
            case
            for case in self._cases
            if case not in self._declared and not self._outside(case)
        ]
        chosen = self._rng.sample(quiet, min(SAMPLED, len(quiet)))
        return self._until(TIMES, chosen)

    def _noisy(self) -> Iterable[Ask]:
        return self._until(self._times, self.noisy)

    def _until(self, times: int, cases: Collection[CaseId]) -> list[Ask]:
        ordered = [case for case in self._cases if case in set(cases)]
        return [
            self._ask(case, repeat)
            for case in ordered
            for repeat in range(len(self._seen.get(case, ())), times)
        ]

    def _outside(self, case: CaseId) -> bool:
        rows = self._seen.get(case, {}).values()
        return any(row.network or row.processes for row in rows)

    @staticmethod
    def _ask(case: CaseId, repeat: int) -> Ask:
        stage = Stage.SAMPLE if repeat else Stage.FIRST
        return Ask(Arm.HEAD, case, repeat, stage)


def most_common(rows: Iterable[Observation]) -> Outcome:
    """The outcome of most rollouts; of a tie the worse one."""
    counts = Counter(row.outcome for row in rows)
    return max(counts, key=lambda outcome: (counts[outcome], outcome != "passed"))


def _agree(rows: Sequence[Observation]) -> bool:
    measured = [row for row in rows if not row.outcome.is_infrastructure]
    scores = [row.score or 0.0 for row in measured]
    same = len({row.outcome for row in measured}) <= 1
    return same and (not scores or max(scores) - min(scores) <= EPSILON)
