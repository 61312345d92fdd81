"""What was seen of one case: its last attempts, and the pairs they make."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Stage
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Outcome

_GONE = frozenset({Outcome.SKIPPED, Outcome.MISSING})


@dataclass(frozen=True, slots=True)
class Side:
    """One arm of a pair: a rollout, or what is stored in its place."""

    score: float
    passed: bool
    gone: bool = False  # skipped or missing


@dataclass(frozen=True, slots=True)
class Pair:
    """Both sides of one repeat of one case, both measured."""

    case: CaseId
    repeat: int
    base: Side
    head: Side

    @property
    def difference(self) -> float:
        """Head minus base."""
        return self.head.score - self.base.score

    def fell(self, drop: float) -> bool:
        """Whether the case passed and does not now, or lost ``drop`` of its score."""
        flipped = self.base.passed and not self.head.passed
        return flipped or self.difference <= -drop + EPSILON


def score_of(observation: Observation) -> float | None:
    """The score that counts; None where the rollout says nothing."""
    if observation.outcome is Outcome.PASSED:
        return 1.0 if observation.score is None else observation.score
    if observation.outcome is Outcome.FAILED:
        return 0.0 if observation.score is None else observation.score
    return 0.0 if observation.outcome is Outcome.MISSING else None


class CaseEvidence:
    """All that was seen of one case: the last attempt of every repeat."""

    def __init__(self, case: GateCase) -> None:
        self.case = case
        self.all: list[Observation] = []  # attempts that were retried too
        self._last: dict[tuple[Arm, int], Observation] = {}
        # what was asked for since the last observation
        self._seen: dict[tuple[Arm, tuple[Stage, ...]], list[Observation]] = {}
        self._pairs: dict[tuple[Stage, ...], list[Pair]] = {}

    def add(self, observation: Observation) -> None:
        """Take an observation; a later attempt replaces an earlier one."""
        self.all.append(observation)
        key = observation.arm, observation.repeat
        if key not in self._last or self._last[key].attempt <= observation.attempt:
            self._last[key] = observation
        self._seen.clear()
        self._pairs.clear()

    def seen(self, arm: Arm, *stages: Stage) -> list[Observation]:
        """Last attempts of an arm by repeat; of all stages where none is named."""
        found = self._seen.get((arm, stages))
        if found is None:
            last = self._last
            repeats = sorted(repeat for a, repeat in last if a is arm)
            mine = (last[arm, repeat] for repeat in repeats)
            found = [o for o in mine if not stages or o.stage in stages]
            self._seen[arm, stages] = found
        return found

    def pairs(self, *stages: Stage) -> list[Pair]:
        """The measured pairs of these stages, by repeat."""
        if stages not in self._pairs:
            self._pairs[stages] = self._paired(stages)
        return self._pairs[stages]

    def _paired(self, stages: tuple[Stage, ...]) -> list[Pair]:
        stored = self.case.stored is not None
        found = []
        for head in self.seen(Arm.HEAD, *stages):
            base = self._last.get((Arm.BASE, head.repeat))
            before = self._base_side(base) if base or stored else None
            after = _head_side(head)
            if before is not None and after is not None:
                found.append(Pair(self.case.id, head.repeat, before, after))
        return found

    def _base_side(self, base: Observation | None) -> Side | None:
        if base is None:
            stored = self.case.stored
            if stored is None or stored.skipped or not stored.n:
                return None
            return Side(stored.mean, 2 * stored.passes >= stored.n)
        score = score_of(base)
        if score is None or base.outcome is Outcome.MISSING:
            return None
        return Side(score, base.outcome is Outcome.PASSED)

    @property
    def first(self) -> Pair | None:
        """The first pair, where both sides were measured."""
        pairs = self.pairs(Stage.FIRST)
        return pairs[0] if pairs else None

    @property
    def changed(self) -> bool:
        """Whether the first pair came out differently, in either direction."""
        return self.first is not None and abs(self.first.difference) > EPSILON

    @property
    def lost(self) -> Observation | None:
        """What infrastructure took away of the first pair, after retries."""
        for arm in Arm:
            for seen in self.seen(arm, Stage.FIRST):
                if seen.outcome.is_infrastructure:
                    return seen
        return None

    @property
    def not_compared(self) -> bool:
        """Whether the base has nothing to hold the head against: skipped, missing."""
        stored = self.case.stored
        if stored is not None and not self.seen(Arm.BASE, Stage.FIRST):
            return stored.skipped or not stored.n
        return any(o.outcome in _GONE for o in self.seen(Arm.BASE, Stage.FIRST))

    @property
    def gone(self) -> bool:
        """Whether every head rollout is skipped or missing and none of the base is."""
        heads = [o.outcome for o in self.seen(Arm.HEAD)]
        bases = [o.outcome for o in self.seen(Arm.BASE)]
        return (
            self.first is not None
            and bool(heads)
            and all(outcome in _GONE for outcome in heads)
            and not any(outcome in _GONE for outcome in bases)
        )

    @property
    def local(self) -> bool:
        """Whether no rollout used the network or started a process."""
        return not any(o.network or o.processes for o in self.all)

    @property
    def local_at_first(self) -> bool:
        """Whether its first rollouts did not, whatever later ones do."""
        first = (o for o in self.all if o.stage is Stage.FIRST)
        return not any(o.network or o.processes for o in first)

    @property
    def agrees(self) -> bool:
        """Whether the repeats of either arm came out the same."""
        for arm in Arm:
            seen = [o for o in self.seen(arm) if not o.outcome.is_infrastructure]
            scores = [score_of(o) or 0.0 for o in seen]
            if len({o.outcome for o in seen}) > 1 or _spread(scores) > EPSILON:
                return False
        stored = self.case.stored
        return stored is None or stored.variance <= EPSILON

    def sampled(self, times: int, *, flipped: bool) -> bool:
        """Whether either arm was repeated ``times`` times beyond the first.

        What infrastructure took away is not asked again; one has to be left. Where
        stored counts stand for the base, they have to be of as many rollouts if a flip
        rests on them.
        """
        pairs = self.pairs(Stage.SAMPLE)
        enough = len(pairs) >= max(1, times - len(self._lost_samples(pairs)))
        stored = self.case.stored
        if not flipped or stored is None or self.seen(Arm.BASE):
            return enough
        return enough and (stored.deterministic or stored.n > times)

    @property
    def sample_lost(self) -> bool:
        """Whether infrastructure took away all samples."""
        pairs = self.pairs(Stage.SAMPLE)
        return not pairs and bool(self._lost_samples(pairs))

    def _lost_samples(self, pairs: Sequence[Pair]) -> set[int]:
        lost = {
            o.repeat
            for arm in Arm
            for o in self.seen(arm, Stage.SAMPLE)
            if o.outcome.is_infrastructure
        }
        return lost - {pair.repeat for pair in pairs}


def _head_side(head: Observation) -> Side | None:
    if head.outcome in _GONE:
        return Side(0.0, passed=False, gone=True)
    score = score_of(head)
    return None if score is None else Side(score, head.outcome is Outcome.PASSED)


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values) if values else 0.0
