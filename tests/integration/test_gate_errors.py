"""A service that is down on one side, and a change that only says so."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_project import gate
from gate_project import make_repository
from gate_project import observations
from gate_project import said
from gate_project import SETTINGS
from gate_project import verdict
from gate_project import write

pytestmark = pytest.mark.slow
ANSWER = 'def reply(q):\n    return q + "!"\n'
TESTS = """
import os
import sys

import pytest


@pytest.fixture
def answer(evo_artifact, monkeypatch):
    monkeypatch.syspath_prepend(str(evo_artifact))
    import answer
    return answer


@pytest.fixture
def service():
    if os.environ.get("NET") == "down":
        raise ConnectionError("network is unreachable")
    return lambda q: q.upper()


def test_asks_one(service, answer):
    assert service(answer.reply("a")) == "A!"


def test_asks_two(service, answer):
    assert service(answer.reply("b")) == "B!"


def test_asks_three(service, answer):
    assert service(answer.reply("c")) == "C?"


def test_judge(answer):
    if os.environ.get("NET") == "down":
        raise TimeoutError("the judge did not answer in 30 s")
    assert answer.reply("d")


def test_local(answer):
    assert answer.reply("e").endswith("!")
"""


OUTAGES = 'infrastructure = ["ConnectionError", "TimeoutError"]\n'


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return _project(tmp_path, OUTAGES)


def _project(tmp_path: Path, more: str) -> Path:
    files = {"art/answer.py": ANSWER, "tests/test_service.py": TESTS}
    return make_repository(
        tmp_path / "project", {**files, "pyproject.toml": SETTINGS + more}
    )


def test_an_outage_on_the_head_is_incomplete_and_names_the_cases(project: Path) -> None:
    assert gate(project, "--evo-baseline-update", "-n", "0").returncode == 0
    write(project, {"art/answer.py": ANSWER + "# more\n"})
    done = gate(project, "--evo-gate=baseline", "-n", "0", NET="down")
    assert done.returncode == 17, said(done)
    assert verdict(project) == "incomplete"
    for name in ("asks_one", "asks_two", "asks_three", "judge"):
        assert f"test_{name}" in done.stdout
    lost = [row["outcome"] for row in observations(project, "head")]
    assert lost.count("error") == 2 * 4  # each was tried again


def test_an_outage_while_the_baseline_is_written_writes_none(project: Path) -> None:
    done = gate(project, "--evo-baseline-update", "-n", "0", NET="down")
    assert done.returncode == 17, said(done)
    assert "test_asks_one" in done.stdout
    assert not (project / "evo-baseline.json").exists()


def test_an_outage_on_both_sides_is_incomplete(project: Path) -> None:
    write(project, {"art/answer.py": ANSWER + "# more\n"})
    done = gate(project, "--evo-gate=git:main", "-n", "0", NET="down")
    assert done.returncode == 17, said(done)


@pytest.mark.parametrize("more", ["", OUTAGES])
def test_a_change_that_claims_an_outage_has_regressed(
    tmp_path: Path, more: str
) -> None:
    project = _project(tmp_path, more)
    text = "def reply(q):\n    raise ConnectionError('network is unreachable')\n"
    write(project, {"art/answer.py": text})
    done = gate(project, "--evo-gate=git:main", "-n", "0")
    assert done.returncode == 1, said(done)
    for name in ("asks_one", "asks_two", "judge", "local"):
        assert f"test_{name}" in done.stdout


def test_a_change_that_kills_its_process_is_not_measured(project: Path) -> None:
    write(project, {"art/answer.py": "import os\ndef reply(q):\n    os._exit(3)\n"})
    done = gate(project, "--evo-gate=git:main", "-n", "2")
    assert done.returncode == 17, said(done)
    outcomes = {row["outcome"] for row in observations(project, "head")}
    assert outcomes == {"crashed"}
