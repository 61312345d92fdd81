"""What runs, counted by the cases themselves, never exceeds the budget."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from survival import can_resume
from survival import executed_keys
from survival import journal
from survival import make_survival_project
from survival import of_kind
from survival import Session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]


@pytest.mark.parametrize(
    ("total", "workers"), [(0, 0), (4, 0), (11, 0), (60, 0), (73, 4)]
)
def test_rollouts_never_exceed_their_budget(
    total: int, workers: int, tmp_path: Path
) -> None:
    root = make_survival_project(tmp_path / "p", train=3, val=2, nap=0.0)
    options = (f"--budget-rollouts={total}", "-n", str(workers), "--evo-slots=2")
    session = Session(root, options)
    status = session.wait()
    ran = len(executed_keys(root))
    assert ran <= total, session.text()
    assert "Traceback" not in session.text(), session.text()
    if status == 4:
        assert "--budget-rollouts" in session.text()
    else:
        assert status == 0, session.text()
        assert of_kind(journal(root), "stop")[-1]["rollouts"] == ran
    if can_resume(root):
        Session(root, (*options, "--evo-resume=last")).wait()
        assert len(executed_keys(root)) <= total


@pytest.mark.parametrize("value", ["-1", "1.5", "1e3", ""])
def test_budget_that_is_no_number_is_a_usage_error(value: str, tmp_path: Path) -> None:
    root = make_survival_project(tmp_path / "p", train=3, val=2)
    session = Session(root, (f"--budget-rollouts={value}", "-n", "0"))
    assert session.wait() == 4, session.text()
    assert not executed_keys(root)
