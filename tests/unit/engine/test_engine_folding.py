"""What is known of the start from the events of the baseline."""

from __future__ import annotations

from pytest_evo.engine.folding import start_figures
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Split


def ran(case: str, repeat: int, trace: str | None, **more) -> RolloutRecorded:
    row = {
        "candidate": "c0000",
        "tree": "t",
        "case": case,
        "split": Split.TRAIN,
        "repeat": repeat,
        "outcome": Outcome.FAILED,
        "score": 0.0,
        "seconds": 1.0,
        "purpose": Purpose.BASELINE,
        "trace": trace,
    }
    return RolloutRecorded(**{**row, **more})


def test_start_keeps_where_the_first_rollout_of_each_case_is_told():
    found = start_figures(
        [
            ran("a", 0, "a0"),
            ran("b", 0, None),
            ran("c", 0, "c0", outcome=Outcome.ERROR, score=None),
            ran("a", 0, "probe", purpose=Purpose.PROBE),
            ran("a", 1, "a1", purpose=Purpose.NOISE),
        ]
    )
    assert found.traces == {"a": "a0"}
    assert found.scores == {"a": 0.0, "b": 0.0}
