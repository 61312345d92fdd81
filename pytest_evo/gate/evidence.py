"""Observations sorted by case: pairs, which cases repeat themselves, which are suspect.

Both the planner (what to ask next) and the decision (what it means) read this, so that
they cannot differ.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from functools import cached_property
from random import Random

from pytest_evo.gate.caseevidence import CaseEvidence
from pytest_evo.gate.caseevidence import Pair
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Stage
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON

MOST_FLIPS = 8  # where cases flipped, so many are sampled: do they repeat?
MOST_SAMPLED = 20  # where none did, so many of all that may be deterministic
FLIP_REPEATS = ((2, 3), (8, 2))
CALM_REPEATS = ((5, 4), (10, 3), (20, 2))
"""Up to so many sampled cases: so many repeats of either arm, where a case flipped and
where none did. The fewer cases there are, the less give one another away."""


_ALL = "; so every case is run"


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
                return f"{name} opened a changed file, and was not known to{_ALL}"
            first = evidence.first
            repeats = evidence.case.deterministic is not False and evidence.local
            if repeats and first is not None and first.fell(self.policy.flip_drop):
                return f"{name} came out worse, and opens no changed file{_ALL}"
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
    def spared(self) -> tuple[CaseEvidence, ...]:
        """Cases that count and were not run, because they reach nothing that changed.

        They are unchanged, and all means and shares are of them too.
        """
        counted = set(self.counted)
        return tuple(
            e
            for e in self.order
            if not e.case.reached and not e.all and e not in counted
            if counts(e.case, self.policy) and not e.not_compared
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
    def _may_be_sampled(self) -> tuple[CaseEvidence, ...]:
        """Undeclared cases that were local at first: what samples show decides nothing.

        Spot checks are not among them; they are there to be looked at once.
        """
        return tuple(
            e
            for e in self.measured
            if e.case.deterministic is None
            and e.local_at_first
            and (e.case.reached or self.saving_off)
        )

    @cached_property
    def calm(self) -> bool:
        """Whether none of the cases that may be deterministic flipped."""
        drop = self.policy.flip_drop
        return not any(e.first and e.first.fell(drop) for e in self._may_be_sampled)

    @cached_property
    def to_sample(self) -> tuple[CaseEvidence, ...]:
        """Cases that are run again, to learn whether cases repeat themselves.

        Where one flipped, it is all about those that changed, flips first; where none
        did, "nothing flipped" is worth what it was tried on: those that changed, then
        others in plan order. And every noisy case that is gone.
        """
        drop = self.policy.flip_drop
        chosen = sorted(self._may_be_sampled, key=lambda e: _by_move(e, drop))
        if self.calm:
            chosen = chosen[:MOST_SAMPLED]
        else:
            chosen = [e for e in chosen if e.changed][:MOST_FLIPS]
        gone = [
            e
            for e in self.measured
            if e not in chosen
            and e.case.deterministic is not True
            and e.first
            and e.first.head.gone
        ]
        return (*chosen, *gone)

    @cached_property
    def sample_size(self) -> int:
        """How often either arm of a sampled case is repeated."""
        steps = CALM_REPEATS if self.calm else FLIP_REPEATS
        cases = len(self.to_sample)
        return next((times for most, times in steps if cases <= most), steps[-1][1])

    @cached_property
    def unproven(self) -> tuple[CaseEvidence, ...]:
        """Cases that agree so far, and were not sampled in full.

        One that infrastructure took all samples of is no obstacle where others were
        sampled and nothing flipped.
        """
        if not self.peers_agree:
            return ()
        asked = [e for e in self.to_sample if e in self.undeclared]
        if self.calm and not all(e.sample_lost for e in asked):
            asked = [e for e in asked if not e.sample_lost]
        size, flipped = self.sample_size, not self.calm
        return tuple(e for e in asked if not e.sampled(size, flipped=flipped))

    @cached_property
    def exact_ids(self) -> frozenset[CaseId]:
        """Deterministic cases: declared, or local with samples that agree."""
        declared = {e.case.id for e in self.measured if e.case.deterministic}
        proven = self.peers_agree and not self.unproven
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


def _by_move(e: CaseEvidence, drop: float) -> int:
    """Flips first, then what changed, then the rest."""
    flipped = e.first is not None and e.first.fell(drop)
    return 0 if flipped else 1 if e.changed else 2


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
