"""Short forms of ``tests/proofs/kill_harness.py`` and ``stop_harness.py``."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from survival import all_records
from survival import can_resume
from survival import check_books
from survival import Contents
from survival import differences
from survival import end_state
from survival import executed_keys
from survival import finished_keys
from survival import make_survival_project
from survival import of_kind
from survival import reported_cases
from survival import reports_are_whole
from survival import run_to_end
from survival import send
from survival import Session
from survival import without_attempts
from torn_files import damage

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]
OPTIONS = ("--budget-iterations=4", "-n", "2", "--evo-slots=2", "--evo-batch=4")


def project(root: Path) -> Path:
    return make_survival_project(root, train=6, val=6, nap=0.03)


def wait_for(session: Session, rollouts: int) -> None:
    while not session.ended and len(executed_keys(session.root)) < rollouts:
        time.sleep(0.005)


@pytest.fixture(scope="module")
def calm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = project(tmp_path_factory.mktemp("calm") / "p")
    run_to_end(root, *OPTIONS)
    check_books(root)
    return root


def test_killed_controller_resumes_to_the_same_end(calm: Path, tmp_path: Path) -> None:
    rng = random.Random(11)
    root = project(tmp_path / "p")
    total = len(executed_keys(calm))
    for target in sorted(rng.sample(range(2, total), 3)):
        resume = ("--evo-resume=last",) if can_resume(root) else ()
        session = Session(root, (*OPTIONS, *resume))
        wait_for(session, target)
        time.sleep(rng.uniform(0, 0.1))
        session.kill()
        session.seconds_until_gone(10)
        reports_are_whole(root)
        before = len(executed_keys(root))
        finished = finished_keys(root, Contents(root))
    run_to_end(root, *OPTIONS, "--evo-resume=last")
    again = [key for key in executed_keys(root)[before:] if key in finished]
    assert not again
    assert not differences(end_state(root), end_state(calm))
    assert reported_cases(root) == reported_cases(calm)
    check_books(root)


def test_killed_workers_and_test_processes_need_no_resume(
    calm: Path, tmp_path: Path
) -> None:
    root = project(tmp_path / "p")
    session = Session(root, OPTIONS)
    for target, victims in ((15, session.workers), (40, session.children)):
        wait_for(session, target)
        while not (pids := victims()) and not session.ended:
            time.sleep(0.01)
        assert send(pids[0], signal.SIGKILL)
    assert session.wait() == 0, session.text()
    session.seconds_until_gone(10)
    wanted = without_attempts(end_state(calm))
    assert not differences(without_attempts(end_state(root)), wanted)
    check_books(root)


@pytest.mark.parametrize(
    "how", ["cut-tail", "nul-tail", "flip-middle", "empty-run-json"]
)
def test_torn_files_are_resumed_or_refused_and_repaired(
    how: str, calm: Path, tmp_path: Path
) -> None:
    root = project(tmp_path / "p")
    session = Session(root, OPTIONS)
    wait_for(session, len(executed_keys(calm)) - 8)
    session.kill()
    session.seconds_until_gone(10)
    damage(next((root / ".evo" / "runs").glob("2*")), how, random.Random(3))
    resumed = run_to_end(root, *OPTIONS, "--evo-resume=last", status=None)
    if how.endswith("tail"):
        assert resumed.process.returncode == 0, resumed.text()
    else:
        assert resumed.process.returncode == 4, resumed.text()
        assert "pytest-evo repair" in resumed.text()
        repair = [sys.executable, "-m", "pytest_evo", "repair", "last"]
        subprocess.run(repair, cwd=root, check=True, capture_output=True)
        run_to_end(root, *OPTIONS, "--evo-resume=last")
    assert not differences(end_state(root), end_state(calm))


@pytest.mark.parametrize(
    ("number", "times", "rollouts"),
    [(signal.SIGTERM, 1, 5), (signal.SIGHUP, 2, 30), (signal.SIGINT, 1, 0)],
)
def test_stopped_run_ends_soon_and_goes_on_later(
    number: int, times: int, rollouts: int, calm: Path, tmp_path: Path
) -> None:
    root = project(tmp_path / "p")
    session = Session(root, OPTIONS)
    while not rollouts and not session.workers():  # while workers are collecting
        time.sleep(0.01)
    time.sleep(0.0 if rollouts else 0.5)
    wait_for(session, rollouts)
    for _ in range(times):
        os.killpg(session.process.pid, number)
        time.sleep(0.2)
    assert session.wait(30) == 2, session.text()
    assert "INTERNALERROR" not in session.text()
    session.seconds_until_gone(10)
    if times == 1:
        trail = root / "trail.log"
        lines = trail.read_text().split() if trail.exists() else []
        assert lines.count("up") == lines.count("down")
    if rollouts:
        assert "--evo-resume=" in session.text()
    assert not of_kind(all_records(root), "final")
    resume = ("--evo-resume=last",) if can_resume(root) else ()
    run_to_end(root, *OPTIONS, *resume)
    assert not differences(end_state(root), end_state(calm))
    check_books(root)
