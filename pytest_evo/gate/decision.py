"""Observations to a verdict: a pure function, so that it can be made again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

from pytest_evo.gate import judging
from pytest_evo.gate.beside import beside_reasons
from pytest_evo.gate.caseevidence import CaseEvidence
from pytest_evo.gate.evidence import Evidence
from pytest_evo.gate.evidence import gather
from pytest_evo.gate.evidence import is_quarantined
from pytest_evo.gate.limits import check_limits
from pytest_evo.gate.phrases import count
from pytest_evo.gate.phrases import points
from pytest_evo.gate.phrases import some
from pytest_evo.gate.rows import make_rows
from pytest_evo.gate.settling import what_settles
from pytest_evo.gate.tolerance import fallen_cases
from pytest_evo.gate.tolerance import is_gone
from pytest_evo.gate.tolerance import share_of
from pytest_evo.gate.tolerance import tolerated_text
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import CaseStatus
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import Effect
from pytest_evo.gate.values import Excluded
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate.values import LimitCheck
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Reason
from pytest_evo.gate.values import ReasonKind
from pytest_evo.gate.values import Scope
from pytest_evo.gate.values import Spent
from pytest_evo.gate.values import Stage
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON

NO_CHANGE = Change()


def decide(
    observations: Sequence[Observation],
    cases: Sequence[GateCase],
    policy: GatePolicy,
    change: Change = NO_CHANGE,
    *,
    stopped: str = "",
) -> GateDecision:
    """Decide from what was seen; nothing is run.

    Args:
        observations: every rollout in the order in which it was recorded, retries too.
        cases: all cases of the gate, the unreached, added and quarantined ones too.
        policy: the rules; its seed gives the order of the early stop and the draws.
        change: what differs besides how the cases come out.
        stopped: why the plan ended early, where it did.

    Raises:
        ValueError: an observation is of a case that is not among ``cases``.
    """
    evidence = Evidence(gather(observations, cases), policy)
    found = find(evidence, change)
    verdict, reasons = _verdict(evidence, found)
    tests = {name: (p, q) for name, p, q in found.suspects.by_case}
    return GateDecision(
        verdict=verdict,
        reasons=reasons,
        effects=found.effects,
        rows=make_rows(evidence, tests, _settled(found, change), found.confirmed),
        limits=found.limits,
        excluded=tuple(
            Excluded(o.case, o.arm, o.outcome, o.stage, o.message)
            for o in evidence.errors()
        ),
        error_rate=evidence.error_rate,
        quarantined=tuple(
            e.case.id for e in evidence.order if is_quarantined(e.case, evidence.policy)
        ),
        unreached=tuple(
            sorted(e.case.id for e in evidence.order if not e.case.reached)
        ),
        saving_off=evidence.saving_off,
        settle=what_settles(evidence, found.overall)
        if verdict is GateVerdict.INCONCLUSIVE
        else "",
        stopped=stopped,
        warnings=found.warnings,
        spent=_spent(observations),
        strict=policy.strict,
        change=change,
    )


def _settled(found: Findings, change: Change) -> dict[CaseId, CaseStatus]:
    return {
        **dict.fromkeys(change.uncollected, CaseStatus.UNCOLLECTED),
        **dict.fromkeys(found.tolerated, CaseStatus.TOLERATED),
        **dict.fromkeys(found.must_pass, CaseStatus.MUST_PASS),
    }


# -- what speaks against the head --------------------------------------------------


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that was tested, and the reasons to call the head regressed."""

    reasons: tuple[Reason, ...]
    effects: tuple[Effect, ...]
    overall: Effect | None
    suspects: judging.SuspectTest
    must_pass: frozenset[CaseId]
    confirmed: frozenset[CaseId]
    tolerated: frozenset[CaseId]
    limits: tuple[LimitCheck, ...]
    warnings: tuple[str, ...]


def find(evidence: Evidence, change: Change) -> Findings:
    """Run all tests on what was seen."""
    overall = judging.overall(evidence)
    others = judging.adjust([*judging.by_group(evidence), *judging.by_metric(evidence)])
    effects = [overall, *others] if overall else []
    suspects = judging.judge_suspects(evidence)
    limits, unknown = check_limits(evidence, change)
    must_pass = _failed_must_pass(evidence, suspects)
    level = evidence.policy.alpha * judging.SHARE_CASES
    confirmed = frozenset(name for name, _, q in suspects.by_case if q <= level)
    fallen = fallen_cases(evidence, confirmed)
    within = evidence.policy.tolerates(share_of(evidence, fallen))
    excused = [e for e in fallen if within and e.case.id not in must_pass]
    reasons = (
        *_by_case(evidence, must_pass, () if within else fallen),
        *_together(evidence, suspects),
        *_means(evidence, overall, others),
        *beside_reasons(evidence.policy, change, limits),
    )
    warnings = [*unknown, *_audit_warnings(overall, others)]
    if excused:
        warnings.append(tolerated_text(evidence, excused))
    return Findings(
        reasons,
        tuple(effects),
        overall,
        suspects,
        must_pass,
        confirmed,
        frozenset(e.case.id for e in excused),
        limits,
        tuple(warnings),
    )


def _failed_must_pass(
    evidence: Evidence, suspects: judging.SuspectTest
) -> frozenset[CaseId]:
    """Must-pass cases that fail for certain; each is tested by itself."""
    alone = {name for name, p, _ in suspects.by_case if p <= evidence.policy.alpha}
    certain = {e.case.id for e in (*evidence.flips, *evidence.vanished)}
    return frozenset(
        e.case.id
        for e in evidence.measured
        if e.case.must_pass and e.case.id in alone | certain
    )


def _by_case(
    evidence: Evidence,
    must_pass: frozenset[CaseId],
    fallen: Sequence[CaseEvidence],
) -> list[Reason]:
    reasons = []
    if must_pass:
        names = tuple(sorted(must_pass))
        text = f"{count(names, 'must-pass case')} failed: {some(names)}"
        reasons.append(Reason(ReasonKind.MUST_PASS, text, names))
    flips, vanished = evidence.flips, evidence.vanished
    flipped = [e for e in fallen if e in flips]
    noisy = [e for e in fallen if e not in flips]
    for kind, group, said in (
        (ReasonKind.FLIP, flipped, _FLIPPED),
        (ReasonKind.SKIPPED, [e for e in [*flips, *vanished] if is_gone(e)], _VANISHED),
        (ReasonKind.CONFIRMED, noisy, _CONFIRMED),
    ):
        names = tuple(e.case.id for e in group)
        if names:
            text = f"{count(names, 'case')} {said}: {some(names)}"
            reasons.append(Reason(kind, text, names))
    return reasons


_FLIPPED = "passed before and fail now, and repeat exactly"
_VANISHED = "ran before and are skipped or missing now"
_CONFIRMED = "came out worse again in fresh rollouts of both sides"


def _together(evidence: Evidence, suspects: judging.SuspectTest) -> list[Reason]:
    reasons = []
    policy = evidence.policy
    if judging.plainly_broken(evidence):
        worse = [e for e in evidence.measured if e.first and e.first.difference < 0]
        names = tuple(e.case.id for e in worse)
        text = (
            f"plainly worse: {len(names)} of {len(evidence.measured)} cases fell, and "
            "betting on the next one to fall won too often for chance"
        )
        reasons.append(Reason(ReasonKind.PLAIN, text, names))
    level = policy.alpha * judging.SHARE_SUSPECTS
    large = policy.is_loss(suspects.loss)
    # the exchange of base and head asks for any loss at all
    apt = policy.tolerance == 0
    if apt and suspects.p <= level and large:
        names = tuple(e.case.id for e in evidence.still_suspect)
        stored = all(e.case.stored is not None for e in evidence.still_suspect)
        sides = "against what is stored" if stored else "on both sides"
        text = (
            f"what fell at first ({count(evidence.suspects, 'case')}) was run again "
            f"{sides}: the head scored {points(-suspects.mean)} lower there "
            f"(p = {suspects.p:.2g})"
        )
        reasons.append(Reason(ReasonKind.SUSPECTS, text, names))
    return reasons


def _means(
    evidence: Evidence, overall: Effect | None, others: Sequence[Effect]
) -> list[Reason]:
    policy = evidence.policy
    if overall is None or (policy.tolerance > 0 and unmeasured(evidence)):
        return []  # the rest can make up for a loss that is tolerated
    level = policy.alpha * judging.SHARE_MEAN * judging.look_share(evidence.rounds)
    if any(effect.counts for effect in others):
        level /= 2  # the other half is for the groups and metrics
    reasons = []
    for effect in (overall, *others):
        large = policy.is_loss(effect.difference)
        if not effect.counts or effect.p_adjusted > level or not large:
            continue
        kind, name = _NAMES[effect.scope]
        chance = f"p = {effect.p_adjusted:.2g}" if effect.p_adjusted else "exactly"
        text = (
            f"{name.format(effect.name)} fell by {points(-effect.difference)} "
            f"({effect.base:.3f} to {effect.head:.3f}, {chance})"
        )
        reasons.append(Reason(kind, text))
    return reasons


_NAMES = {
    Scope.OVERALL: (ReasonKind.MEAN, "the mean of all cases"),
    Scope.GROUP: (ReasonKind.GROUP, "group {!r}"),
    Scope.METRIC: (ReasonKind.METRIC, "metric {!r}"),
}


def _audit_warnings(overall: Effect | None, others: Sequence[Effect]) -> list[str]:
    if overall is None or overall.difference < 0:
        return []
    return [
        f"audit metric {effect.name!r} fell by {points(-effect.difference)} "
        "while the score did not"
        for effect in others
        if not effect.counts and effect.difference < -EPSILON
    ]


# -- the verdict -------------------------------------------------------------------


def _verdict(
    evidence: Evidence, found: Findings
) -> tuple[GateVerdict, tuple[Reason, ...]]:
    errors = _too_many_errors(evidence)
    if errors:
        return GateVerdict.INCOMPLETE, (*errors, *found.reasons)
    if found.reasons:
        return GateVerdict.REGRESSED, found.reasons
    missing = unmeasured(evidence)
    if missing:
        text = (
            f"{count(missing, 'case')} of {len(evidence.counted)} were not run: "
            f"{some(missing)}"
        )
        reason = Reason(ReasonKind.BUDGET, text, missing)
        return GateVerdict.INCOMPLETE, (reason,)
    if found.overall is None:
        return GateVerdict.PASSED, (
            Reason(ReasonKind.NOTHING, "no case that counts was to be compared"),
        )
    return _within_margin(evidence, found.overall)


def _too_many_errors(evidence: Evidence) -> list[Reason]:
    lost = tuple(e.case.id for e in evidence.counted if e.lost is not None)
    critical = tuple(
        e.case.id for e in evidence.counted if e.lost is not None and e.case.must_pass
    )
    rate, most = evidence.error_rate, evidence.policy.max_error_rate
    if rate > most + EPSILON:
        text = (
            f"{rate:.0%} of the cases could not be measured (at most {most:.0%} may "
            f"be left out): {some(lost)}"
        )
        return [Reason(ReasonKind.ERRORS, text, lost)]
    if critical:
        text = f"must-pass cases could not be measured: {some(critical)}"
        return [Reason(ReasonKind.ERRORS, text, critical)]
    return []


def unmeasured(evidence: Evidence) -> tuple[CaseId, ...]:
    """Counted cases without a first pair, and not for infrastructure's sake."""
    return tuple(
        e.case.id for e in evidence.counted if e.first is None and e.lost is None
    )


def open_suspects(evidence: Evidence) -> tuple[CaseId, ...]:
    """Suspects whose confirmation did not get as far as it was meant to."""
    rounds = [evidence.confirmations(e) for e in evidence.suspects]
    still = set(evidence.still_suspect)
    return tuple(
        e.case.id
        for e, (first, second) in zip(evidence.suspects, rounds, strict=True)
        if not first or (e in still and not second)
    )


def _within_margin(
    evidence: Evidence, overall: Effect
) -> tuple[GateVerdict, tuple[Reason, ...]]:
    policy = evidence.policy
    margin = max(policy.margin, policy.tolerance)
    waiting = open_suspects(evidence)
    if waiting:
        text = f"no budget was left to run suspected cases again: {some(waiting)}"
        return GateVerdict.INCONCLUSIVE, (Reason(ReasonKind.BUDGET, text, waiting),)
    if not any(e.case.reached for e in evidence.counted) and not evidence.saving_off:
        text = (
            "no case reaches anything that changed, and "
            f"{count(evidence.measured, 'spot check')} found nothing else"
        )
        return GateVerdict.PASSED, (Reason(ReasonKind.NOTHING, text),)
    span = (
        f"{overall.difference:+.3f}, {policy.confidence:.0%} interval "
        f"{overall.low:+.3f} to {overall.high:+.3f}"
    )
    if policy.keeps_margin(overall.low):
        if not (evidence.noisy or evidence.flips):
            text = f"no deterministic case flipped ({overall.cases} compared)"
            return GateVerdict.PASSED, (Reason(ReasonKind.EXACT, text),)
        text = f"a loss of {points(policy.margin)} is excluded ({span})"
        if overall.low <= -policy.margin:
            most = points(policy.tolerance)
            text = (
                f"a loss of more than {most}, which is tolerated, is excluded ({span})"
            )
        return GateVerdict.PASSED, (Reason(ReasonKind.MARGIN, text),)
    if overall.high < 0:
        text = f"a loss is likely, and not certain at the level of the gate ({span})"
    else:
        text = (
            f"no regression was shown, and a loss of {points(margin)} is not "
            f"excluded ({span})"
        )
    return GateVerdict.INCONCLUSIVE, (Reason(ReasonKind.MARGIN, text),)


# -- words and sums ----------------------------------------------------------------


def _spent(observations: Sequence[Observation]) -> Spent:
    stages = dict.fromkeys(Stage, 0)
    for observation in observations:
        stages[observation.stage] += 1
    costs = [o.usd for o in observations]
    known = [usd for usd in costs if usd is not None]
    head = sum(o.arm is Arm.HEAD for o in observations)
    return Spent(
        rollouts=len(observations),
        base=len(observations) - head,
        head=head,
        by_stage=tuple((stage, n) for stage, n in stages.items() if n),
        seconds=fsum(o.seconds for o in observations),
        tokens=sum(o.tokens for o in observations),
        usd=fsum(known) if len(known) == len(costs) else None,
    )
