"""Short form of ``tests/proofs/full_disk.py``."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest
from small_disk import fill
from small_disk import may_mount
from small_disk import remount
from small_disk import small_disk
from survival import check_books
from survival import executed_keys
from survival import journal
from survival import make_survival_project
from survival import of_kind
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
    with small_disk(root, ".evo", "size=20m") as place:
        session = Session(root, OPTIONS)
        while len(executed_keys(root)) < 15 and not session.ended:
            time.sleep(0.01)
        ballast = fill(place)
        assert session.wait() == 4, session.text()
        assert "used up" in session.text()
        assert "Traceback" not in session.text(), session.text()
        session.seconds_until_gone(10)
        ballast.unlink()
        run_to_end(root, *OPTIONS, "--evo-resume=last")
        check_books(root)


def test_journal_is_told_where_reports_have_no_room_either(tmp_path: Path) -> None:
    root = make_survival_project(tmp_path / "p", train=6, val=6)
    with small_disk(root, ".evo", "size=20m") as place:
        options = (*OPTIONS, "--evo-reports=.evo/reports")
        session = Session(root, options)
        while len(executed_keys(root)) < 50 and not session.ended:
            time.sleep(0.01)
        fill(place)
        assert session.wait() == 4, session.text()
        told = session.text().rpartition("ERROR: ")[2]
        assert "/.evo/runs/" in told.splitlines()[0], session.text()
        assert "/.evo/reports" in session.text()
        assert "Traceback" not in session.text(), session.text()


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


def test_full_temporary_directory_blames_no_candidate(tmp_path: Path) -> None:
    root = make_survival_project(tmp_path / "p", train=6, val=6)
    with small_disk(root, "tmp", "size=400k") as place:
        session = Session(root, OPTIONS, environment={"TMPDIR": str(place)})
        while len(executed_keys(root)) < 40 and not session.ended:
            time.sleep(0.01)
        fill(place)
        assert session.wait() == 4, session.text()
        assert "is full" in session.text()
        assert "Traceback" not in session.text(), session.text()
    run_to_end(root, *OPTIONS, "--evo-resume=last")
    outcomes = {row["outcome"] for row in of_kind(journal(root), "rollout")}
    assert outcomes <= {"passed", "failed", "lost"}
    check_books(root)
