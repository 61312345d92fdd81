"""Cases that pass half of the time, on both sides.

The coins are scripted: a hash of a salt, the version, the case and the repeat stands
for chance, so that these runs come out the same every time. How often chance fools the
gate is measured in the simulation.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from gate_project import environment
from gate_project import gate
from gate_project import git
from gate_project import make_repository
from gate_project import observations
from gate_project import said
from gate_project import verdict
from gate_project import write

from pytest_evo.cli import main

pytestmark = pytest.mark.slow
TESTS = """
import hashlib
import os
import time

import pytest


def draw(folder, case):
    version = (folder / "version.txt").read_text()
    key = f"{os.environ['SALT']}:{version}:{case}:{os.environ['PYTEST_EVO_REPEAT']}"
    return int(hashlib.sha256(key.encode()).hexdigest()[:8], 16) / 2**32


def odds(folder):
    return float((folder / "odds.txt").read_text())


@pytest.mark.parametrize("n", range(6))
def test_coin(n, evo_artifact):
    time.sleep(float(os.environ.get("NAP", 0)))
    assert draw(evo_artifact, n) < odds(evo_artifact)


def test_steady(evo_artifact):
    assert (evo_artifact / "steady.txt").read_text() == "yes"
"""
REF = "--evo-gate=git:main"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "art/odds.txt": "0.5",
        "art/steady.txt": "yes",
        "art/version.txt": "base",
        "tests/test_coin.py": TESTS,
    }
    return make_repository(tmp_path / "project", files)


@pytest.mark.parametrize("salt", ["1", "2", "3", "4"])
def test_coins_do_not_turn_the_gate_red(project: Path, salt: str) -> None:
    write(project, {"art/version.txt": "head"})
    done = gate(project, REF, "-n", "0", SALT=salt)
    assert done.returncode == 0, said(done)
    assert verdict(project) in ("passed", "inconclusive")
    outcomes = {(row["arm"], row["outcome"]) for row in observations(project)}
    assert ("head", "failed") in outcomes  # chance did its part
    assert len(observations(project)) <= 7 * 2 + 7 * 2 + 120


def test_the_strict_policy_fails_what_is_open(project: Path) -> None:
    write(project, {"art/version.txt": "head"})
    done = gate(project, REF, "--evo-gate-policy=strict", "-n", "0", SALT="2")
    assert done.returncode == 16, said(done)
    path = str(project / "evo-reports" / "gate.json")
    assert main(["gate", path]) == 16
    assert main(["gate", path, "--policy=default"]) == 0


def test_a_steady_case_that_fails_now_is_found_among_coins(project: Path) -> None:
    write(project, {"art/version.txt": "head", "art/steady.txt": "no"})
    done = gate(project, REF, "-n", "2", SALT="1")
    assert done.returncode == 1, said(done)
    assert "test_steady" in done.stdout


def test_worse_coins_are_found_or_called_open(project: Path) -> None:
    write(project, {"art/version.txt": "head", "art/odds.txt": "0.05"})
    done = gate(project, REF, "-n", "0", SALT="2")
    assert verdict(project) in ("regressed", "inconclusive"), said(done)
    assert done.returncode == (1 if verdict(project) == "regressed" else 0)


def test_a_dry_run_tells_the_cost_and_runs_nothing(project: Path) -> None:
    write(project, {"art/version.txt": "head"})
    done = gate(project, REF, "--evo-dry-run", "-n", "0", SALT="1")
    assert done.returncode == 0, said(done)
    assert "first pass: 14 rollouts" in done.stdout
    assert not (project / "evo-reports").exists()


def test_a_time_limit_ends_it_softly(project: Path) -> None:
    write(project, {"art/version.txt": "head"})
    done = gate(
        project, REF, "--budget-time=1s", "-n", "0", SALT="1", NAP="0.4", timeout=120
    )
    assert done.returncode in (0, 17), said(done)
    assert "time limit of 1 s" in done.stdout
    assert len(observations(project)) < 14


def test_interrupt_ends_softly_with_pytests_own_status(project: Path) -> None:
    write(project, {"art/version.txt": "head"})
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", REF, "-n", "2"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment(SALT="1", NAP="1"),
        start_new_session=True,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if "rollouts" in line:
            break
    time.sleep(0.3)
    os.killpg(process.pid, signal.SIGINT)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 2, text
    assert "stopped by a person" in text
    assert git(project, "status", "--porcelain") == "M art/version.txt"
