"""Observations sorted by case: pairs, which cases repeat themselves, which are suspect.

Both the planner (what to ask next) and the decision (what it means) read this, so that
they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random

from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Stage
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Outcome

MOST_SAMPLED = 8  # flipped cases that are sampled to learn whether cases repeat
FEW_SAMPLED = 2  # up to so many, each is sampled once more
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
    def agrees(self) -> bool:
        """Whether the repeats of either arm came out the same."""
        for arm in Arm:
            seen = [o for o in self.seen(arm) if not o.outcome.is_infrastructure]
            scores = [score_of(o) or 0.0 for o in seen]
            if len({o.outcome for o in seen}) > 1 or _spread(scores) > EPSILON:
                return False
        stored = self.case.stored
        return stored is None or stored.variance <= EPSILON

    def sampled(self, times: int) -> bool:
        """Whether either arm was repeated ``times`` times beyond the first."""
        pairs = self.pairs(Stage.SAMPLE)
        if self.case.stored is None or self.seen(Arm.BASE):
            return len(pairs) >= times
        known = self.case.stored.deterministic or self.case.stored.n > times
        return len(pairs) >= times and known


def _head_side(head: Observation) -> Side | None:
    if head.outcome in _GONE:
        return Side(0.0, passed=False, gone=True)
    score = score_of(head)
    return None if score is None else Side(score, head.outcome is Outcome.PASSED)


def _spread(values: Sequence[float]) -> float:
    return max(values) - min(values) if values else 0.0


class Evidence:
    """Every case with what was seen of it so far, under one policy.

    Whatever is asked is worked out once: make a new one after an observation.
    """

    def __init__(
        self, by_id: Mapping[CaseId, CaseEvidence], policy: GatePolicy
    ) -> None:
        self.by_id = by_id
        self.policy = policy

    # -- who counts ----------------------------------------------------------------

    @cached_property
    def order(self) -> tuple[CaseEvidence, ...]:
        """All cases in the order of the plan."""
        cases = plan_order([e.case for e in self.by_id.values()], self.policy)
        return tuple(self.by_id[case.id] for case in cases)

    @cached_property
    def saving_off(self) -> str:
        """Why unreached cases have to be run after all; empty where they need not."""
        for evidence in self.order:
            if evidence.case.reached:
                continue
            name = evidence.case.id
            if any(o.surprise for o in evidence.all):
                return f"{name} opened a changed file, and was not known to"
            first = evidence.first
            repeats = evidence.case.deterministic is not False and evidence.local
            if repeats and first is not None and first.fell(self.policy.flip_drop):
                return f"{name} came out worse, and opens no changed file"
        return ""

    @cached_property
    def counted(self) -> tuple[CaseEvidence, ...]:
        """Cases that are to be compared, in plan order."""
        return tuple(
            e
            for e in self.order
            if counts(e.case, self.policy)
            and not e.not_compared
            and not (self.policy.accept_removed and e.gone)
            and (e.case.reached or e.all or self.saving_off)
        )

    @cached_property
    def measured(self) -> tuple[CaseEvidence, ...]:
        """Counted cases whose first pair was measured."""
        return tuple(e for e in self.counted if e.first is not None)

    # -- what repeats itself -------------------------------------------------------

    @cached_property
    def undeclared(self) -> tuple[CaseEvidence, ...]:
        """Measured cases that may be deterministic by observation."""
        return tuple(
            e for e in self.measured if e.case.deterministic is None and e.local
        )

    @cached_property
    def peers_agree(self) -> bool:
        """Whether every repeat of an undeclared local case came out the same."""
        return all(evidence.agrees for evidence in self.undeclared)

    @cached_property
    def to_sample(self) -> tuple[CaseEvidence, ...]:
        """Cases whose flip rests on repeating itself; they are run again first.

        Undeclared local cases that changed, flips first, where one of them is lower;
        and every noisy case that is gone.
        """
        changed = [
            e for e in self.undeclared if e.first and abs(e.first.difference) > EPSILON
        ]
        if not any(e.first and e.first.difference < 0 for e in changed):
            changed = []
        drop = self.policy.flip_drop
        changed.sort(key=lambda e: not (e.first and e.first.fell(drop)))
        local = changed[:MOST_SAMPLED]
        gone = [
            e
            for e in self.measured
            if e not in changed
            and e.case.deterministic is not True
            and e.first
            and e.first.head.gone
        ]
        return (*local, *gone)

    @property
    def sample_size(self) -> int:
        """How often either arm of a sampled case is repeated."""
        return 3 if len(self.to_sample) <= FEW_SAMPLED else 2

    @cached_property
    def exact_ids(self) -> frozenset[CaseId]:
        """Deterministic cases: declared, or local with samples that agree."""
        declared = {e.case.id for e in self.measured if e.case.deterministic}
        asked = [e for e in self.to_sample if e in self.undeclared]
        proven = self.peers_agree and all(e.sampled(self.sample_size) for e in asked)
        observed = {e.case.id for e in self.undeclared} if proven else set()
        return frozenset(declared | observed)

    @cached_property
    def exact(self) -> tuple[CaseEvidence, ...]:
        """Measured deterministic cases, in plan order."""
        return tuple(e for e in self.measured if e.case.id in self.exact_ids)

    @cached_property
    def noisy(self) -> tuple[CaseEvidence, ...]:
        """Measured cases that may come out differently when run again."""
        return tuple(e for e in self.measured if e.case.id not in self.exact_ids)

    # -- who is suspected ----------------------------------------------------------

    @cached_property
    def flips(self) -> tuple[CaseEvidence, ...]:
        """Deterministic cases that fell: one is a regression."""
        drop = self.policy.flip_drop
        return tuple(e for e in self.exact if e.first and e.first.fell(drop))

    @cached_property
    def vanished(self) -> tuple[CaseEvidence, ...]:
        """Noisy cases that are always skipped or missing now."""
        return tuple(e for e in self.noisy if e.gone)

    @cached_property
    def suspects(self) -> tuple[CaseEvidence, ...]:
        """Noisy cases whose first pair fell: must-pass ones first, then the worst."""
        drop = self.policy.flip_drop
        found = [e for e in self.noisy if e.first and e.first.fell(drop) and not e.gone]
        found.sort(
            key=lambda e: (not e.case.must_pass, e.first.difference if e.first else 0)
        )
        return tuple(found)

    def confirmations(self, evidence: CaseEvidence) -> tuple[list[Pair], list[Pair]]:
        """The fresh pairs of a suspect by round.

        A round is told by its repeats, so a pair that infrastructure took away stays
        missing in its own round.
        """
        pairs = evidence.pairs(Stage.CONFIRMATION)
        heads = evidence.seen(Arm.HEAD, Stage.CONFIRMATION)
        start = heads[0].repeat if heads else 0
        split = start + self.policy.confirm[0]
        first = [pair for pair in pairs if pair.repeat < split]
        return first, [pair for pair in pairs if pair.repeat >= split]

    @cached_property
    def still_suspect(self) -> tuple[CaseEvidence, ...]:
        """Suspects that were worse in the first round too, worst first again."""
        sums = {
            e.case.id: sum(pair.difference for pair in self.confirmations(e)[0])
            for e in self.suspects
        }
        found = [e for e in self.suspects if sums[e.case.id] < -EPSILON]
        found.sort(key=lambda e: (not e.case.must_pass, sums[e.case.id]))
        return tuple(found)

    # -- whole rounds --------------------------------------------------------------

    @cached_property
    def rounds(self) -> int:
        """How many whole rounds the noisy cases have had, the first one included."""
        most = max((len(e.seen(Arm.HEAD, Stage.MORE)) for e in self.noisy), default=0)
        return 1 + most

    def errors(self) -> list[Observation]:
        """What infrastructure took away of counted cases, after retries."""
        lost: list[Observation] = []
        for evidence in self.counted:
            for arm in Arm:
                lost += (o for o in evidence.seen(arm) if o.outcome.is_infrastructure)
        return lost

    @cached_property
    def error_rate(self) -> float:
        """Share of the counted cases that could not be measured.

        Their first pair is gone, or all fresh pairs that a suspicion was to rest on.
        """
        bare = sum(
            bool(e.seen(Arm.HEAD, Stage.CONFIRMATION))
            and not e.pairs(Stage.CONFIRMATION)
            for e in self.suspects
        )
        lost = sum(e.lost is not None for e in self.counted)
        return (lost + bare) / len(self.counted) if self.counted else 0.0


def gather(
    observations: Iterable[Observation], cases: Iterable[GateCase]
) -> dict[CaseId, CaseEvidence]:
    """Sort observations by case.

    Raises:
        ValueError: an observation is of a case that is not among ``cases``.
    """
    by_id = {case.id: CaseEvidence(case) for case in cases}
    for observation in observations:
        if observation.case not in by_id:
            raise ValueError(
                f"a rollout of {observation.case!r}, which is no case of this gate"
            )
        by_id[observation.case].add(observation)
    return by_id


def is_quarantined(case: GateCase, policy: GatePolicy) -> bool:
    """Whether the case is on the list and its entry has not expired."""
    entry = case.quarantine
    return entry is not None and policy.today <= entry.expires


def counts(case: GateCase, policy: GatePolicy) -> bool:
    """Whether a case can count at all, however it comes out."""
    return not case.added and not is_quarantined(case, policy)


def plan_order(cases: Iterable[GateCase], policy: GatePolicy) -> list[GateCase]:
    """Cases shuffled by the seed: spot checks, then the reached, then the unreached."""
    shuffled = sorted(cases, key=lambda case: case.id)
    Random(f"{policy.seed}:gate:order").shuffle(shuffled)
    unreached = [case for case in shuffled if not case.reached]
    spots, rest = unreached[: policy.spot_checks], unreached[policy.spot_checks :]
    return [*spots, *(case for case in shuffled if case.reached), *rest]
