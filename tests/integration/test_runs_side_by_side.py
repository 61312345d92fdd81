"""Runs of one project at the same time, looked at while they go on, killed, resumed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from odd_project import make_odd
from odd_project import run_odd
from survival import executed_keys
from survival import journal
from survival import make_survival_project
from survival import of_kind
from survival import Session

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are found in /proc"
)
OPTIONS = ("--budget-iterations=3", "-n", "1", "--evo-batch=4")


def test_two_runs_do_not_meet_and_can_be_looked_at(tmp_path: Path) -> None:
    root = make_survival_project(tmp_path / "p", train=6, val=6)
    places = [("--evo-run-dir=one", "--evo-reports=one-r"), ("--evo-run-dir=two",)]
    sessions = [Session(root, (*OPTIONS, *place)) for place in places]
    while not (root / "one" / "runs").is_dir() and not sessions[0].ended:
        time.sleep(0.02)
    while len(executed_keys(root)) < 20 and not sessions[0].ended:
        time.sleep(0.02)
    looked = shown(root, "one")  # while it is written
    assert [session.wait() for session in sessions] == [0, 0]
    assert looked["complete"] in (False, True)
    ends = [shown(root, place) for place in ("one", "two")]
    assert [end["complete"] for end in ends] == [True, True]
    same = ("winner", "cases", "rollouts", "candidates")
    volatile = {"seconds"}
    first, second = ([plain(end[name], volatile) for name in same] for end in ends)
    assert first == second
    assert len(executed_keys(root)) == 2 * sum(ends[0]["rollouts"].values())


def shown(root: Path, place: str) -> dict[str, object]:
    command = [sys.executable, "-m", "pytest_evo", "show", "last", "--json"]
    done = subprocess.run(
        [*command, f"--run-dir={place}"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def plain(value, volatile):
    """Without what differs from run to run."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if k not in volatile}
        return {k: plain(v, volatile) for k, v in kept.items()}
    return [plain(v, volatile) for v in value] if isinstance(value, list) else value


def test_killed_run_is_free_at_once(tmp_path: Path) -> None:
    root = make_survival_project(tmp_path / "p", train=6, val=6)
    session = Session(root, OPTIONS)
    while len(executed_keys(root)) < 15 and not session.ended:
        time.sleep(0.01)
    session.kill()
    resumed = Session(root, (*OPTIONS, "--evo-resume=last"))
    assert resumed.wait() == 0, resumed.text()
    assert of_kind(journal(root), "stop")


ENVIRONMENT = """
import os
from pathlib import Path

HERE = Path(__file__).parent

def test_no_way_to_the_run_is_named():
    named = [name for name, value in os.environ.items() if "/.evo/" in value]
    assert not named
def test_word(): assert (HERE / "art" / "word.txt").read_text() == "right"
def test_word_again(): assert (HERE / "art" / "word.txt").read_text() == "right"
"""


def test_environment_of_tests_names_no_path_of_the_run(
    pytester: pytest.Pytester,
) -> None:
    files = {"art/word.txt": "wrong", "test_environment.py": ENVIRONMENT}
    root = make_odd(pytester.path, files, [{"word.txt": "right"}])
    done = run_odd(root, "-n", "1")
    assert done.outcomes()["test_no_way_to_the_run_is_named"] == "passed"
    assert set(done.outcomes(1).values()) == {"passed"}
