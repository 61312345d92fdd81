"""A small project for end-to-end tests: a number in a file, cases that want it high."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

PYPROJECT = """
[tool.pytest_evo]
artifact = "art"
objective = "climb"
scripted = "proposals.py"
"""
PROPOSALS = """
def propose(request):
    level = request.workspace / "artifact" / "level.txt"
    rise = request.rng.random() < 0.6
    level.write_text(str(int(level.read_text()) + rise))
    touched = level.with_name("touched.txt")
    touched.write_text(str(request.rng.random()))
    return "one more"
"""
CASES = """
import os
import time
from pathlib import Path

import pytest

LOG = Path(__file__).with_name("executed.log")

@pytest.mark.parametrize("n", range({count}))
def test_level(n, evo_artifact):
    with LOG.open("a") as log:
        log.write(f"{{n}}\\n")
    time.sleep({nap})
    assert int((evo_artifact / "level.txt").read_text()) >= n % {steps} + 1
"""


def make_project(
    pytester: pytest.Pytester, *, count: int = 12, nap: float = 0.0, steps: int = 6
) -> Path:
    """Write the project; returns its folder."""
    root = pytester.path
    (root / "art").mkdir()
    (root / "art" / "level.txt").write_text("0")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "proposals.py").write_text(PROPOSALS)
    (root / "test_level.py").write_text(CASES.format(count=count, nap=nap, steps=steps))
    return root


def evolve_command(*options: str) -> list[str]:
    """The command line of a run in a subprocess."""
    return [
        sys.executable,
        "-m",
        "pytest",
        "--evolve",
        "-p",
        "no:cacheprovider",
        *options,
    ]


def evolve(
    root: Path, *options: str, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run to the end."""
    return subprocess.run(
        evolve_command(*options),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment(),
        check=False,
    )


def environment() -> dict[str, str]:
    """The environment of a session that is not one of pytest's own tests."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "COV_", "COVERAGE_PROCESS"))
    }


def executed(root: Path) -> int:
    """Rollouts that really ran, counted by the cases themselves."""
    log = root / "executed.log"
    return len(log.read_text().splitlines()) if log.exists() else 0


def run_directory(root: Path) -> Path:
    """The newest run."""
    return sorted((root / ".evo" / "runs").iterdir())[-1]


def records(root: Path, kind: str | None = None) -> list[dict[str, Any]]:
    """The journal of the newest run."""
    lines = (run_directory(root) / "journal.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [row for row in rows if kind is None or row["kind"] == kind]


def comparable(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Records without times and worker names."""
    volatile = {"at", "seconds", "worker", "check"}
    return [{k: v for k, v in row.items() if k not in volatile} for row in rows]
