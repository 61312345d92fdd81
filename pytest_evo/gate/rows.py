"""One row for each case, worst first."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Mapping
from dataclasses import replace
from math import fsum

from pytest_evo.gate.caseevidence import CaseEvidence
from pytest_evo.gate.caseevidence import score_of
from pytest_evo.gate.evidence import Evidence
from pytest_evo.gate.evidence import is_quarantined
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import CaseRow
from pytest_evo.gate.values import CaseStatus
from pytest_evo.gate.values import Observation
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Outcome

_RANK = {status: rank for rank, status in enumerate(CaseStatus)}


def make_rows(
    evidence: Evidence,
    tests: Mapping[CaseId, tuple[float, float]],
    settled: Mapping[CaseId, CaseStatus],
    confirmed: Collection[CaseId],
) -> tuple[CaseRow, ...]:
    """Rows of all cases, worst status and largest loss first.

    Args:
        evidence: what was seen.
        tests: p and p after Holm of the suspects.
        settled: what is known of cases whatever they look like here.
        confirmed: noisy cases that count as worse, one by one.
    """
    flips = {e.case.id for e in evidence.flips}
    suspects = {e.case.id for e in evidence.suspects}
    rows = []
    for e in evidence.order:
        name = e.case.id
        if name in settled:
            status = settled[name]
        elif name in flips:
            status = CaseStatus.SKIPPED if _skipped(e) else CaseStatus.FLIPPED
        elif name in confirmed:
            status = CaseStatus.CONFIRMED
        elif e.gone and e in evidence.vanished:
            status = CaseStatus.SKIPPED
        elif name in suspects:
            status = CaseStatus.SUSPECT
        else:
            status = _plain_status(evidence, e)
        row = _row(evidence, e, status, tests.get(name))
        rows.append(replace(row, status=_as_shown(row)))
    rows.sort(key=lambda row: (_RANK[row.status], row.difference or 0.0, row.id))
    return tuple(rows)


def _skipped(e: CaseEvidence) -> bool:
    seen = e.seen(Arm.HEAD)
    return bool(seen) and seen[0].outcome is Outcome.SKIPPED


def _plain_status(evidence: Evidence, e: CaseEvidence) -> CaseStatus:
    if is_quarantined(e.case, evidence.policy):
        return CaseStatus.QUARANTINED
    if e.case.added:
        return CaseStatus.ADDED
    if e.not_compared:
        return CaseStatus.NOT_COMPARED
    if e.first is None:
        if e.lost is not None:
            return CaseStatus.ERROR
        waits = e.case.reached or bool(evidence.saving_off)
        return CaseStatus.NOT_RUN if waits else CaseStatus.UNREACHED
    base, head = e.first.base, e.first.head
    if head.gone:
        return CaseStatus.SKIPPED  # accepted
    if head.passed and not base.passed:
        return CaseStatus.FIXED
    return CaseStatus.SAME if head.passed else CaseStatus.FAILING


def _as_shown(row: CaseRow) -> CaseStatus:
    """The status of a case that nothing is said of, by the figures beside it."""
    if row.status not in (CaseStatus.SAME, CaseStatus.FAILING, CaseStatus.FIXED):
        return row.status
    moved = row.difference or 0.0
    if moved > EPSILON and row.status is CaseStatus.FIXED:
        return CaseStatus.FIXED
    if abs(moved) > EPSILON:
        return CaseStatus.HIGHER if moved > 0 else CaseStatus.LOWER
    passed = row.head_n > 0 and 2 * row.head_passes >= row.head_n
    return CaseStatus.SAME if passed else CaseStatus.FAILING


def _row(
    evidence: Evidence,
    e: CaseEvidence,
    status: CaseStatus,
    test: tuple[float, float] | None,
) -> CaseRow:
    base, head = _scored(e, Arm.BASE), _scored(e, Arm.HEAD)
    stored = e.case.stored
    base_n, base_passes = len(base), _passes(e, Arm.BASE)
    base_mean = _mean(base)
    if not base and stored is not None and not stored.skipped and stored.n:
        base_n, base_passes, base_mean = stored.n, stored.passes, stored.mean
    return CaseRow(
        id=e.case.id,
        status=status,
        base=base_mean,
        head=_mean(head),
        base_n=base_n,
        head_n=len(head),
        base_passes=base_passes,
        head_passes=_passes(e, Arm.HEAD),
        group=e.case.group,
        p=test[0] if test else None,
        p_adjusted=test[1] if test else None,
        deterministic=e.case.id in evidence.exact_ids,
        note=_note(evidence, e),
    )


def _scored(e: CaseEvidence, arm: Arm) -> list[float]:
    scores = [score_of(o) for o in e.seen(arm)]
    return [score for score in scores if score is not None]


def _passes(e: CaseEvidence, arm: Arm) -> int:
    return sum(o.outcome is Outcome.PASSED for o in e.seen(arm))


def _mean(values: list[float]) -> float | None:
    return fsum(values) / len(values) if values else None


def _note(evidence: Evidence, e: CaseEvidence) -> str:
    entry = e.case.quarantine
    if entry is not None:
        if is_quarantined(e.case, evidence.policy):
            return f"quarantined until {entry.expires.isoformat()}: {entry.reason}"
        return f"quarantine expired on {entry.expires.isoformat()}: {entry.reason}"
    if e.lost is not None:
        return _said(e.lost, f"{e.lost.outcome} on the {e.lost.arm} side")
    for observation in e.seen(Arm.HEAD):
        if observation.outcome is not Outcome.PASSED:
            return _said(observation, str(observation.outcome))
    return ""


def _said(observation: Observation, otherwise: str) -> str:
    return observation.message or otherwise
