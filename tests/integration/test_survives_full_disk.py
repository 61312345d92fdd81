"""Short form of ``tests/proofs/full_disk.py``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_disk import may_mount
from small_disk import remount
from small_disk import small_disk
from survival import can_resume
from survival import check_books
from survival import executed_keys
from survival import make_survival_project
from survival import run_to_end
from survival import Session

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a tmpfs is mounted"),
]
OPTIONS = ("--budget-iterations=3", "-n", "2", "--evo-batch=4")


@pytest.fixture(autouse=True)
def _mountable() -> None:
    if not may_mount():
        pytest.skip("mounting a tmpfs is not permitted here")


def test_full_disk_is_named_and_the_run_goes_on_later(tmp_path: Path) -> None:
    root = make_survival_project(tmp_path / "p", train=6, val=6)
    with small_disk(root, ".evo", "size=160k") as place:
        session = Session(root, OPTIONS)
        assert session.wait() == 4, session.text()
        assert "used up" in session.text()
        assert "Traceback" not in session.text(), session.text()
        session.seconds_until_gone(10)
        remount(place, "size=100m")
        resume = ("--evo-resume=last",) if can_resume(root) else ()
        run_to_end(root, *OPTIONS, *resume)
        check_books(root)


def test_read_only_run_directory_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    root = make_survival_project(tmp_path / "p", train=6, val=6)
    with small_disk(root, ".evo", "size=1m") as place:
        remount(place, "ro")
        session = Session(root, OPTIONS)
        assert session.wait() == 4, session.text()
        assert "Read-only" in session.text()
        assert not executed_keys(root)
