"""A wall clock that jumps back and forth changes nothing that a run finds or writes."""

from __future__ import annotations

from datetime import datetime

from evolve_project import comparable
from evolve_project import evolve
from evolve_project import make_project
from evolve_project import records

JUMPS = """
import datetime
import itertools
import time

import pytest_evo.plugin.runfiles as runfiles

leaps = itertools.cycle([0, 40_000_000, -90_000_000, 3_600, -1, 7_000_000])
true = time.time

def jumping():
    return true() + next(leaps)

class Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return cls.fromtimestamp(jumping(), tz)

def pytest_configure(config):
    time.time = jumping
    runfiles.datetime = Jumping
"""
OPTIONS = ("--budget-iterations=3", "--budget-time=30m", "-n", "1", "--evo-slots=2")


def test_jumping_clock_changes_neither_stamps_nor_running_time(pytester) -> None:
    root = make_project(pytester)
    steady = evolve(root, *OPTIONS)
    assert steady.returncode == 0, steady.stdout + steady.stderr
    calm = records(root)

    (root / "conftest.py").write_text(JUMPS)
    (root / ".evo").rename(root / "calm")
    jumpy = evolve(root, *OPTIONS)
    assert jumpy.returncode == 0, jumpy.stdout + jumpy.stderr
    rows = records(root)
    assert decided(comparable(rows)) == decided(comparable(calm))
    stamps = [datetime.fromisoformat(row["at"]) for row in rows]
    assert (max(stamps) - min(stamps)).total_seconds() < 120
    assert all(0 <= row["seconds"] < 60 for row in rows if row["kind"] == "rollout")
    assert (root / "evo-reports" / "junit.xml").exists()


def decided(rows):
    """What of a run does not depend on the suite: conftests belong to a case."""
    return [row for row in rows if row["kind"] not in ("cases", "isolation")]
