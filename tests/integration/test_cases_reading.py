"""Whole runs of projects that read, write or break their artifact in odd ways."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from evolve_project import evolve
from evolve_project import records
from evolve_project import run_directory
from odd_project import PARTS

SETTINGS = """
artifact = "art"
scripted = "proposals.py"
acceptance = "parts:Take"
parents = "parts:Start"
batches = "epoch"
batch = 100
validation = "full"
survivors = "keep-all"
noise = "none"
timeout = {timeout}
"""
PROPOSALS = """
FILES = {files!r}

def propose(request):
    for name, text in FILES[request.iteration - 1].items():
        path = request.workspace / "artifact" / name
        if text is None:
            path.unlink()
        else:
            path.write_text(text)
    return "as scripted"
"""


def project(
    root: Path,
    *,
    start: dict[str, str],
    tests: str,
    proposals: list[dict[str, str | None]],
    timeout: int = 30,
) -> None:
    """Write a project in which every proposal is taken, and all cases judge it."""
    (root / "art").mkdir()
    for name, text in start.items():
        (root / "art" / name).write_text(text)
    (root / "parts.py").write_text(PARTS)
    (root / "proposals.py").write_text(PROPOSALS.format(files=proposals))
    (root / "pytest_evo.toml").write_text(SETTINGS.format(timeout=timeout))
    (root / "pytest.ini").write_text("[pytest]\npythonpath = . art\n")
    (root / "test_it.py").write_text(tests)


def run(root: Path, *options: str, iterations: int = 1) -> str:
    """Run to a complete end; returns what was shown."""
    done = evolve(root, f"--budget-iterations={iterations}", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def vectors(root: Path) -> dict[str, dict[str, str]]:
    """Outcomes by candidate and test."""
    found: dict[str, dict[str, str]] = {}
    for row in records(root, "rollout"):
        test = row["case"].partition("::")[2]
        found.setdefault(row["candidate"], {})[test] = row["outcome"]
    return found


def rollouts(root: Path, candidate: str) -> list[dict[str, Any]]:
    """Journal records of a candidate's rollouts."""
    return [row for row in records(root, "rollout") if row["candidate"] == candidate]


IMPORTED = """
from pathlib import Path

import pytest

import word

LINES = (Path(__file__).parent / "art" / "lines.txt").read_text().split()

def test_constant(default=word.WORD):
    assert word.WORD == default == "new"

@pytest.mark.parametrize("line", LINES)
def test_line(line):
    assert line in ("alpha", "beta")

def test_seen_by_a_path():
    assert "old" in Path("art/word.py").read_text()
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_artifact_read_at_import_is_the_candidates(
    pytester: pytest.Pytester, workers: str
) -> None:
    root = pytester.path
    project(
        root,
        start={"word.py": "WORD = 'old'\n", "lines.txt": "alpha gamma"},
        tests=IMPORTED,
        proposals=[
            {"word.py": "WORD = 'new'\n"},
            {"lines.txt": "alpha beta"},
            {"lines.txt": "alpha gamma delta"},
        ],
    )
    assert "read during collection" in run(root, "-n", workers, iterations=3)
    seen = vectors(root)
    passed, failed = "passed", "failed"
    start = {
        "test_constant": failed,
        "test_line[alpha]": passed,
        "test_line[gamma]": failed,
        "test_seen_by_a_path": passed,
    }
    assert seen["c0000"] == start
    assert seen["c0001"] == start | {
        "test_constant": passed,
        "test_seen_by_a_path": failed,
    }
    # what is gone counts against the candidate, what is new does not count for it
    assert seen["c0002"] == start | {"test_line[gamma]": "missing"}
    assert seen["c0003"] == start


PLAIN = """
import pytest

@pytest.mark.parametrize("n", range(4))
def test_level(n, evo_artifact):
    assert int((evo_artifact / "level.txt").read_text()) > n
"""


def test_looking_at_the_artifact_before_the_run_is_no_read_of_the_suite(
    pytester: pytest.Pytester,
) -> None:
    root = pytester.path
    project(
        root,
        start={"level.txt": "1"},
        tests=PLAIN,
        proposals=[{"level.txt": "3"}],
    )
    assert "isolation: fork" in run(root, "-n", "0")


WRITES = """
import pytest

def hit(artifact):
    hits = artifact / "hits.txt"
    hits.write_text((hits.read_text() if hits.exists() else "") + "x")
    return len(hits.read_text())

@pytest.mark.parametrize("n", range(4))
def test_hits(n, evo_artifact):
    assert hit(evo_artifact) == 1

def test_level(evo_artifact):
    assert int((evo_artifact / "level.txt").read_text()) > 1
    hit(evo_artifact)

def test_other(evo_artifact):
    assert int((evo_artifact / "level.txt").read_text()) > 5
"""


def test_suite_that_writes_into_the_artifact_is_scored_like_any_other(
    pytester: pytest.Pytester,
) -> None:
    root = pytester.path
    project(
        root,
        start={"level.txt": "1"},
        tests=WRITES,
        proposals=[{"level.txt": "3"}, {"level.txt": "9"}],
    )
    run(root, "-n", "0", iterations=2)
    seen = vectors(root)
    hits = {f"test_hits[{n}]": "passed" for n in range(4)}
    assert seen["c0000"] == hits | {"test_level": "failed", "test_other": "failed"}
    assert seen["c0001"] == hits | {"test_level": "passed", "test_other": "failed"}
    for row in rollouts(root, "c0002"):
        assert (row["outcome"], row["score"]) == ("passed", 1.0)
    assert [path.name for path in (root / "art").iterdir()] == ["level.txt"]


HANGS = "import time\n\nwhile True:\n    time.sleep(0.1)\n"
USES = """
import pytest

import code_of_it

@pytest.mark.parametrize("n", range(4))
def test_value(n):
    assert code_of_it.value() > n
"""


def test_candidates_that_cannot_be_collected_lose_and_say_why(
    pytester: pytest.Pytester,
) -> None:
    root = pytester.path
    project(
        root,
        start={"code_of_it.py": "def value():\n    return 1\n"},
        tests=USES,
        proposals=[
            {"code_of_it.py": "raise ImportError('no such thing')\n"},
            {"code_of_it.py": "import os\n\nos._exit(0)\n"},
            {"code_of_it.py": HANGS},
            {"code_of_it.py": None, "other.py": "def value():\n    return 9\n"},
        ],
        timeout=3,
    )
    run(root, "-n", "2", iterations=4)
    seen = vectors(root)
    assert set(seen["c0001"].values()) == {"missing"}
    assert set(seen["c0002"].values()) == {"crashed"}
    assert set(seen["c0003"].values()) == {"timeout"}
    assert set(seen["c0004"].values()) == {"missing"}
    assert "no such thing" in told(root, "c0001")
    assert "exit status 0" in told(root, "c0002")
    assert "still collecting" in told(root, "c0003")
    assert "code_of_it" in told(root, "c0004")
    attempts = [row["attempt"] for row in rollouts(root, "c0003")]
    assert not any(attempts)  # a hang is waited for once


def told(root: Path, candidate: str) -> str:
    """The stored detail of a candidate's last rollout."""
    trace = Path(rollouts(root, candidate)[-1]["trace"])
    return (run_directory(root) / trace).read_text()


def test_baseline_without_any_score_says_what_the_first_case_said(
    pytester: pytest.Pytester,
) -> None:
    root = pytester.path
    project(
        root,
        start={"level.txt": "1"},
        tests="import os\n\ndef test_dies(evo_artifact):\n    os._exit(3)\n\n"
        "def test_dies_too(evo_artifact):\n    os._exit(4)\n",
        proposals=[{"level.txt": "2"}],
    )
    done = evolve(root, "--budget-iterations=1", "-n", "0")
    assert done.returncode == 4
    assert "exit status 3 without a report" in done.stderr
    assert "test session starts" not in done.stderr
