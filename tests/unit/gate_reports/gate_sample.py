"""Records of gates that never ran, with hostile names and messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.record import Place
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Quarantine
from pytest_evo.gate.values import Removed
from pytest_evo.gate.values import Stage
from pytest_evo.models import Outcome

TODAY = date(2026, 1, 31)
EVIL = (
    "t.py::test[%0A::error::x\r\n::set-output name=a::b"
    " | `@everyone` <b>\x1b[31m\u202e]"
)
MESSAGE = "boom\n::error file=/etc/passwd::owned\n| a | b |\n```\n@everyone <script>"


def observed(case: str, arm: Arm, passed: bool, repeat: int = 0) -> Observation:
    outcome = Outcome.PASSED if passed else Outcome.FAILED
    return Observation(
        case=case,
        arm=arm,
        repeat=repeat,
        stage=Stage.FIRST,
        outcome=outcome,
        score=float(passed),
        seconds=0.5,
        message="" if passed else MESSAGE,
    )


def make_record(
    worse: Sequence[str] = (EVIL,),
    same: int = 5,
    *,
    strict: bool = False,
    files: Sequence[str] = ("prompts/a.md",),
    notes: Sequence[str] = (),
    removed: Sequence[Removed] = (),
    quarantined: str | None = None,
) -> GateRecord:
    """Deterministic cases: ``worse`` flip, ``same`` others pass on both sides."""
    steady = [f"t.py::test_same[{n}]" for n in range(same)]
    entry = Quarantine(MESSAGE, TODAY) if quarantined else None
    cases = [
        GateCase(
            name, deterministic=True, quarantine=entry if name == quarantined else None
        )
        for name in (*worse, *steady)
    ]
    seen = [
        observed(name, arm, passed=arm is Arm.BASE or name in steady)
        for name in (*worse, *steady)
        for arm in Arm
    ]
    return GateRecord(
        artifact="art",
        base="git:main",
        base_commit="c" * 40,
        head_tree="t" * 64,
        made="2026-01-31T12:00:00+00:00",
        cases=tuple(cases),
        policy=GatePolicy(strict=strict, today=TODAY),
        change=Change(files=tuple(files), removed=tuple(removed)),
        observations=tuple(seen),
        notes=tuple(notes),
        places={name: Place("t.py", 7) for name in (*worse, *steady)},
    )
