"""Settings that have no test of their own: each does something in a real run."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from odd_project import make_odd
from odd_project import run_odd

pytestmark = pytest.mark.slow
CONFTEST = """
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent

def pytest_configure(config):
    config.addinivalue_line("markers", "vcr: recorded answers")

@pytest.fixture(scope="session")
def index():
    with (HERE / "warm.log").open("a") as log:
        log.write(f"{os.getpid()}\\n")
    return "index"
"""
CASES = """
import json
import os
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent
pytestmark = pytest.mark.evo

def level():
    return int((HERE / "art" / "level.txt").read_text())

@pytest.mark.parametrize("n", range(8))
def test_level(n, index):
    start = time.monotonic()
    time.sleep(0.05)
    names = [name for name in os.environ if name.startswith("EVO_CASE_")]
    with (HERE / "seen.jsonl").open("a") as log:
        row = {"start": start, "end": time.monotonic(), "names": names}
        log.write(json.dumps(row) + "\\n")
    assert level() > n

@pytest.mark.evo(repeats=3)
def test_thrice():
    assert level() > 3

def test_may_write():
    (HERE / "data" / "log.txt").write_text("written")
    assert level() >= 0

def test_must_not_write():
    (HERE / "data" / "wanted.txt").write_text("written")
    assert level() >= 0

@pytest.mark.vcr
def test_replayed():
    assert level() >= 0
"""
FILES = {
    "art/level.txt": "0",
    "data/log.txt": "empty",
    "data/wanted.txt": "true",
    "cassettes/test_settings.yaml": "",
    "cassettes/test_replayed.yaml": "answers: []",
    "conftest.py": CONFTEST,
    "test_settings.py": CASES,
}

TABLES = """
[split]
fractions = [0.25, 0.75]
[[limit]]
metric = "bytes"
max_ratio = 1.5
"""


def make(root: Path, **settings: object) -> Path:
    """The project, whose third proposal is longer than the limit allows."""
    made = make_odd(
        root,
        FILES,
        [{"level.txt": text} for text in ("1", "2", "09")],
        env_allow=["EVO_CASE_KEPT"],
        protect=["data/*"],
        writable=["data/log.txt"],
        warm_fixtures=["index"],
        concurrency=2,
        survivors="pareto-top-n",
        top_n=1,
        parents="pareto-frequency",
        batches="high-variance",
        **settings,
    )
    with (made / "pytest_evo.toml").open("a") as file:
        file.write(TABLES)
    return made


def test_settings_reach_a_run(pytester: pytest.Pytester) -> None:
    root = make(pytester.path, skip_cassette_check=True)
    variables = {"EVO_CASE_KEPT": "1", "EVO_CASE_DROPPED": "1"}
    run = run_odd(root, "-n", "1", "--evo-repeats=2", variables=variables)
    seen = [json.loads(line) for line in (root / "seen.jsonl").read_text().splitlines()]

    # env_allow
    assert {tuple(row["names"]) for row in seen} == {("EVO_CASE_KEPT",)}
    # warm_fixtures
    assert len((root / "warm.log").read_text().splitlines()) == 1
    assert "Warning" not in run.output
    # protect, writable
    assert (root / "data" / "wanted.txt").read_text() == "true"
    assert (root / "data" / "log.txt").read_text() == "written"
    assert run.outcomes()["test_must_not_write"] == "failed"
    assert run.outcomes()["test_may_write"] == "passed"
    # skip_cassette_check
    assert run.outcomes()["test_replayed"] == "passed"
    # concurrency
    spans = sorted((row["start"], row["end"]) for row in seen)
    assert any(later[0] < earlier[1] for earlier, later in pairwise(spans))
    # split.fractions
    splits = Counter(case["split"] for case in run.records("cases")[0]["cases"])
    assert splits == {"train": 3, "val": 9}
    # --evo-repeats, and the marker's
    times = Counter(
        (row["candidate"], row["case"].partition("::")[2])
        for row in run.records("rollout")
        if row["purpose"] in ("child", "validation")
    )
    assert times
    for (_, name), count in times.items():
        assert count == (3 if name == "test_thrice" else 2), name
    # top_n
    first, second, third = run.records("iteration")
    assert (first["accepted"], second["accepted"]) == (True, True)
    assert (first["population"], second["population"]) == (["c0001"], ["c0002"])
    # limit
    assert not third["accepted"]
    assert third["reason"] == (
        "limit on bytes: 2 is 2.00 times the start's 1, at most 1.5 is allowed"
    )


def test_recorded_answers_are_refused_without_the_setting(
    pytester: pytest.Pytester,
) -> None:
    run = run_odd(make(pytester.path), "-n", "1", status=4)
    assert "recorded answers stay the same" in run.output
    assert "1 case would get some" in run.output
    assert not (run.root / "warm.log").exists()
