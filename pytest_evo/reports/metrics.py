"""OpenMetrics text, which GitLab shows old against new in a merge request.

Names and labels are the same from run to run; no candidate id is among them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from collections.abc import Iterator

from pytest_evo.means import mean_of
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.reports.model import RunReport
from pytest_evo.reports.model import scores
from pytest_evo.reports.text import visible

Sample = tuple[dict[str, str], int | float]
"""Labels and value; whole numbers count something."""


def metrics_text(run: RunReport) -> str:
    """All figures of a run, ``# EOF`` included."""
    lines: list[str] = []
    for name, about, samples in _families(run):
        known = [(labels, value) for labels, value in samples if math.isfinite(value)]
        if known:
            lines += [f"# TYPE {name} gauge", f"# HELP {name} {about}"]
            lines += [
                f"{name}{labels_text(labels)} {figure(value)}"
                for labels, value in known
            ]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _families(run: RunReport) -> Iterator[tuple[str, str, Iterable[Sample]]]:
    yield "evo_score", "Mean score of the start and the winner.", _scores(run)
    if run.final is not None:
        claim = run.final.claim
        split = {"split": claim.split.value}
        for name, about, value in (
            ("evo_gain", "Winner minus start, paired.", claim.difference),
            ("evo_gain_low", "Lower end of the 95 % interval.", claim.low),
            ("evo_gain_high", "Upper end of the 95 % interval.", claim.high),
            ("evo_cases_worse", "Cases with a lower score.", len(claim.worse)),
            ("evo_cases_better", "Cases with a higher score.", len(claim.better)),
        ):
            yield name, about, [(split, value)]
        audit = [
            ({"metric": metric, "artifact": artifact}, value)
            for metric, pair in sorted(claim.audit.items())
            for artifact, value in zip(("start", "winner"), pair, strict=True)
        ]
        yield "evo_audit", "Audit metrics, never selected on.", audit
    yield (
        "evo_rollouts",
        "Rollouts spent.",
        [({"purpose": purpose}, n) for purpose, n in run.spent.items()],
    )
    used = [(role, usage) for role, usage in run.usage.items() if usage.calls]
    yield (
        "evo_tokens",
        "Tokens used by models.",
        [({"role": role}, usage.tokens) for role, usage in used],
    )
    yield (
        "evo_cached_tokens",
        "The part of them that was read from a cache.",
        [({"role": role}, usage.cached_tokens) for role, usage in used],
    )
    yield (
        "evo_model_calls",
        "Calls of models, failed ones too.",
        [({"role": role}, usage.calls) for role, usage in used],
    )
    yield (
        "evo_model_seconds",
        "Time spent in calls of models.",
        [({"role": role}, usage.seconds) for role, usage in used],
    )
    yield (
        "evo_unpriced_calls",
        "Model calls of an unknown price.",
        [({"role": role}, usage.unpriced) for role, usage in used],
    )
    yield (
        "evo_usd",
        "Known cost of model calls in US dollars.",
        [({"role": role}, u.usd) for role, u in used if u.usd is not None],
    )
    yield "evo_candidates", "Candidates by what became of them.", _candidates(run)
    yield "evo_iterations", "Closed iterations.", [({}, len(run.iterations))]


def _scores(run: RunReport) -> Iterator[Sample]:
    for artifact, candidate in (("start", START), ("winner", run.winner)):
        own = scores(run, candidate)
        for split in dict.fromkeys(case.split for case in run.cases):
            cases = [case for case in run.cases if case.split is split]
            mean = mean_of(own, cases)
            if mean is not None and all(case.id in own for case in cases):
                yield {"split": split.value, "artifact": artifact}, mean


def _candidates(run: RunReport) -> Iterator[Sample]:
    for status in Status:
        count = sum(record.status is status for record in run.candidates)
        yield {"status": status.value}, count


def figure(value: int | float) -> str:
    """Counts as whole numbers, everything else with six places."""
    return str(value) if isinstance(value, int) else f"{value:.6f}"


def labels_text(labels: dict[str, str]) -> str:
    """Labels as they stand behind a name, escaped."""
    if not labels:
        return ""
    pairs = (f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return "{" + ",".join(pairs) + "}"


def _escaped(value: str) -> str:
    # escapes of unsafe characters come first, so that no line feed is left
    return visible(value).replace("\\", "\\\\").replace('"', '\\"')
