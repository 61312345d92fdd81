"""Reasons that are not in how cases come out: what is gone, what costs too much."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.gate.phrases import count
from pytest_evo.gate.phrases import some
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import LimitCheck
from pytest_evo.gate.values import Reason
from pytest_evo.gate.values import ReasonKind


def beside_reasons(
    policy: GatePolicy, change: Change, limits: Sequence[LimitCheck]
) -> list[Reason]:
    """Tests that cannot be collected or are gone, and limits that are exceeded."""
    reasons = []
    if change.uncollected:
        text = (
            f"{count(change.uncollected, 'case')} cannot be collected with this "
            f"artifact, and can with the base's: {change.collection_error} "
            f"({some(change.uncollected)})"
        )
        reasons.append(Reason(ReasonKind.COLLECTION, text, change.uncollected))
    gone = tuple(case.id for case in change.removed if case.passed)
    if gone and not policy.accept_removed:
        text = (
            f"{count(gone, 'case')} passed at the base and are gone: {some(gone)}; "
            "type --evo-accept-removed if that is meant"
        )
        reasons.append(Reason(ReasonKind.REMOVED, text, gone))
    for check in limits:
        if check.exceeded:
            text = (
                f"{check.metric} are {check.ratio:.2f} times those of the base "
                f"(limit {check.max_ratio:g})"
            )
            reasons.append(Reason(ReasonKind.LIMIT, text))
    return reasons
