"""The gate in OpenMetrics, which GitLab shows old against new in a merge request."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.values import CaseStatus
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate.values import Scope
from pytest_evo.gate_reports.words import BETTER
from pytest_evo.gate_reports.words import WORSE
from pytest_evo.reports.metrics import figure
from pytest_evo.reports.metrics import labels_text
from pytest_evo.reports.metrics import Sample


def gate_metrics(decision: GateDecision, record: GateRecord) -> str:
    """All figures, ``# EOF`` included; names and labels stay from run to run."""
    lines: list[str] = []
    for name, about, samples in _families(decision, record):
        known = [(labels, value) for labels, value in samples if math.isfinite(value)]
        if known:
            lines += [f"# TYPE {name} gauge", f"# HELP {name} {about}"]
            lines += [
                f"{name}{labels_text(labels)} {figure(value)}"
                for labels, value in known
            ]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _families(
    decision: GateDecision, record: GateRecord
) -> Iterator[tuple[str, str, list[Sample]]]:
    yield (
        "evo_gate_verdict",
        "1 for the verdict of the gate.",
        [
            ({"verdict": verdict.value}, int(verdict is decision.verdict))
            for verdict in GateVerdict
        ],
    )
    effects = [
        (
            {}
            if effect.scope is Scope.OVERALL
            else {"scope": effect.scope.value, "name": effect.name},
            effect,
        )
        for effect in decision.effects
    ]
    for name, about, field in (
        ("evo_score", "Mean score of the artifact.", "head"),
        ("evo_gate_base_score", "Mean score of what it is compared with.", "base"),
        ("evo_gate_difference", "Head minus base, paired.", "difference"),
        ("evo_gate_difference_low", "Lower end of its interval.", "low"),
        ("evo_gate_difference_high", "Upper end of its interval.", "high"),
    ):
        yield name, about, [(labels, getattr(e, field)) for labels, e in effects]
    statuses = Counter(row.status for row in decision.rows)
    certain = WORSE | {CaseStatus.TOLERATED}
    worse = sum(n for status, n in statuses.items() if status in certain)
    better = sum(n for status, n in statuses.items() if status in BETTER)
    yield "evo_cases_worse", "Cases that are worse for certain.", [({}, worse)]
    yield "evo_cases_better", "Cases that are better.", [({}, better)]
    yield (
        "evo_rollouts",
        "Rollouts spent.",
        [
            ({"arm": "base"}, decision.spent.base),
            ({"arm": "head"}, decision.spent.head),
        ],
    )
    yield "evo_tokens", "Tokens used.", [({}, decision.spent.tokens)]
    if decision.spent.usd is not None:
        yield "evo_usd", "Known cost in US dollars.", [({}, decision.spent.usd)]
    yield "evo_gate_seconds", "How long the gate took.", [({}, record.seconds)]
