"""Observations to a verdict: a pure function, so that it can be made again."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Observation


def decide(
    observations: Sequence[Observation],
    cases: Sequence[GateCase],
    policy: GatePolicy,
    change: Change = Change(),  # noqa: B008 - a frozen value
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
    """
    raise NotImplementedError
