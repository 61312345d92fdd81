"""What the tolerance is held against: cases that came out worse for certain."""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence
from math import fsum

from pytest_evo.gate.caseevidence import CaseEvidence
from pytest_evo.gate.evidence import Evidence
from pytest_evo.gate.phrases import count
from pytest_evo.gate.phrases import some
from pytest_evo.models import CaseId


def fallen_cases(
    evidence: Evidence, confirmed: Collection[CaseId]
) -> tuple[CaseEvidence, ...]:
    """Flips, and the suspects among ``confirmed``; not who is skipped or missing."""
    flips = [e for e in evidence.flips if not is_gone(e)]
    return (*flips, *(e for e in evidence.suspects if e.case.id in confirmed))


def is_gone(e: CaseEvidence) -> bool:
    """Whether the head skipped the case, or did not have it."""
    return e.first is not None and e.first.head.gone


def share_of(evidence: Evidence, some_cases: Sequence[CaseEvidence]) -> float:
    """Their share of the weight of all cases that count."""
    total = fsum(e.case.weight for e in (*evidence.counted, *evidence.spared))
    return fsum(e.case.weight for e in some_cases) / total if total else 0.0


def tolerated_text(evidence: Evidence, excused: Sequence[CaseEvidence]) -> str:
    """One sentence that names who is let through."""
    names = tuple(sorted(e.case.id for e in excused))
    verb = "is" if len(names) == 1 else "are"
    return (
        f"{count(names, 'case')} came out worse and {verb} tolerated "
        f"({share_of(evidence, excused):.1%} of the weight; gate_tolerance = "
        f"{evidence.policy.tolerance:g}): {some(names)}"
    )
