"""Runs for the tests of the reports, as short as they can be written down."""

from __future__ import annotations

from pytest_evo.events import CandidateRecorded
from pytest_evo.events import FinalMeasured
from pytest_evo.events import IterationClosed
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import RunStopped
from pytest_evo.models import Case
from pytest_evo.models import Claim
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Purpose
from pytest_evo.models import Split
from pytest_evo.models import Status
from pytest_evo.models import Usage
from pytest_evo.reports.model import RunReport

P, F = Outcome.PASSED, Outcome.FAILED
CASES = tuple(
    Case(f"tests/evals/test_a.py::TestIt::test_x[{n}]", split, file="tests/a.py")
    for n, split in enumerate([Split.TRAIN] * 2 + [Split.VAL] * 2 + [Split.TEST] * 2)
)


def rollout(
    candidate="c0000", case=CASES[0], outcome=P, score=None, repeat=0, **more
) -> RolloutRecorded:
    if score is None and outcome in (P, F):
        score = float(outcome is P)
    more.setdefault("tree", candidate * 8)
    more.setdefault("seconds", 0.25)
    more.setdefault("purpose", Purpose.CHILD)
    return RolloutRecorded(
        candidate=candidate,
        case=case.id,
        split=case.split,
        repeat=repeat,
        outcome=outcome,
        score=score,
        **more,
    )


def failed_detail(message="boom", longrepr="trace\nE  boom", sections=()) -> Detail:
    return Detail(
        phases=(
            Phase("setup", "passed", 0.1),
            Phase(
                "call",
                "failed",
                0.1,
                message,
                longrepr,
                tuple(sections),
                file="tests/a.py",
                line=7,
            ),
        )
    )


def grown_run(**changes) -> RunReport:
    """A start that fails half, a winner that fails one, and a rejected child."""
    rollouts = {
        "c0000": [
            rollout(case=case, outcome=P if n % 2 else F, purpose=Purpose.BASELINE)
            for n, case in enumerate(CASES)
        ],
        "c0001": [
            rollout("c0001", case, F if n == 5 else P, usage=Usage(1, 10, 0, 5, 0.01))
            for n, case in enumerate(CASES)
        ],
        "c0002": [rollout("c0002", CASES[0], F)],
    }
    values = {
        "id": "20260101-000000-abcd",
        "created": "2026-01-01T00:00:00+00:00",
        "artifact": "prompts",
        "objective": "Answer politely.",
        "seed": 3,
        "cases": CASES,
        "candidates": (
            CandidateRecorded("c0000", None, "t0", Status.START),
            CandidateRecorded("c0001", "c0000", "t1", Status.ACCEPTED, iteration=1),
            CandidateRecorded("c0002", "c0001", "t2", Status.REJECTED, iteration=2),
        ),
        "rollouts": rollouts,
        "iterations": (
            IterationClosed(
                1, 0, "c0000", "c0001", 0, True, "gain", population=("c0001",)
            ),
            IterationClosed(2, 0, "c0001", None, 1, False, "no gain"),
        ),
        "final": FinalMeasured(
            "c0001",
            Claim(
                split=Split.TEST,
                in_sample=False,
                cases=2,
                start=0.5,
                winner=0.75,
                difference=0.25,
                low=-0.1,
                high=0.6,
                worse=(CASES[5].id,),
                better=(CASES[4].id,),
            ),
        ),
        "stop": RunStopped("budget", "rollouts are used up", "c0001", 2, 13, {}),
        "spent": {"baseline": 6, "child": 7},
        "usage": {"suite": Usage(6, 60, 0, 30, 0.06), "proposer": Usage()},
        "diff": "--- a/x.txt\n+++ b/x.txt\n@@ -1 +1 @@\n-old\n+new\n",
        "detail": lambda _: failed_detail(),
    }
    return RunReport(**{**values, **changes})
