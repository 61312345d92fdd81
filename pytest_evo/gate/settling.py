"""What more rollouts or cases would do for an open verdict."""

from __future__ import annotations

from math import ceil
from math import sqrt

from pytest_evo.gate import judging
from pytest_evo.gate import statistics
from pytest_evo.gate.caseevidence import CaseEvidence
from pytest_evo.gate.evidence import Evidence
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Effect

_RUNS = 10  # stored runs that can convict a single case
_MANY = 30  # further runs of each case, beyond which nobody should be sent


def could_settle(evidence: Evidence, effect: Effect, rounds: int) -> bool:
    """Whether ``rounds`` further whole rounds can end in another verdict.

    Means are taken to stay where they are and errors to shrink with the root of the
    rollouts: then either the margin is kept or the drop becomes significant.
    """
    if rounds <= 0 or not evidence.noisy:
        return False
    have = evidence.rounds
    grown = (have + rounds) / have
    below = effect.difference - effect.low
    if evidence.policy.keeps_margin(effect.difference - below / sqrt(grown)):
        return True
    if effect.difference >= 0 or not 0 < effect.p < 1:
        return False
    level = evidence.policy.alpha * judging.SHARE_MEAN
    needed = statistics.normal_quantile(1 - level * judging.look_share(have + rounds))
    return statistics.normal_quantile(1 - effect.p) * sqrt(grown) >= needed


def _needs_a_better_base(e: CaseEvidence) -> bool:
    """Whether a few stored runs stand for the base of a suspect."""
    stored = e.case.stored
    return stored is not None and stored.n < _RUNS and not e.seen(Arm.BASE)


def what_settles(evidence: Evidence, effect: Effect | None) -> str:
    """One sentence for a report; empty where nothing was measured."""
    if effect is None:
        return ""
    unproven = evidence.unproven
    if unproven and not (evidence.suspects or effect.difference < 0):
        return (
            f"running {len(unproven)} of the cases again, to see whether they repeat "
            "themselves (a larger budget), or saying so with "
            "@pytest.mark.evo(deterministic=True)"
        )
    if any(_needs_a_better_base(e) for e in evidence.suspects):
        return (
            "a baseline of more runs (pytest --evo-baseline-update --evo-repeats=10), "
            "or the base itself beside the head (pytest --evo-gate=git:REF): a few "
            "stored runs cannot tell a loss of single cases from chance"
        )
    room = effect.difference + max(evidence.policy.margin, evidence.policy.tolerance)
    if room <= 0:
        return (
            "the loss that was measured is larger than the margin: more rollouts will "
            "tell it from chance"
        )
    grown = ((effect.difference - effect.low) / room) ** 2
    if grown <= 1:
        return "a larger --budget-rollouts, so that suspected cases can be run again"
    cases = len(evidence.noisy)
    more = ceil((grown - 1) * evidence.rounds)
    if more > _MANY:
        return (
            f"no number of runs worth its money ({more} more of each of the {cases} "
            "noisy cases): the loss that was measured is close to the margin"
        )
    arms = 1 if all(e.case.stored is not None for e in evidence.noisy) else 2
    return (
        f"about {more} more runs of each of the {cases} noisy cases"
        f"{' on either side' if arms == 2 else ''} ({more * cases * arms} rollouts), "
        f"or about {ceil((grown - 1) * cases)} more cases"
    )
