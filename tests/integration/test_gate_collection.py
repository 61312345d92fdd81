"""Artifacts that are read while tests are collected, and keep them from being so."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_project import gate
from gate_project import make_repository
from gate_project import said
from gate_project import verdict
from gate_project import write

pytestmark = pytest.mark.slow
SYNTAX = "def reply(q:\n"
LEAVES = "import os\nos._exit(0)\n"
SKIPS = "import pytest\npytest.skip('later', allow_module_level=True)\n"
READS = """
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "art"))
import answer


def test_reads():
    assert answer.reply("a") == "a!"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "art/answer.py": "def reply(q):\n    return q + '!'\n",
        "tests/test_reads.py": READS,
        "tests/test_other.py": "def test_other():\n    pass\n",
    }
    return make_repository(tmp_path / "project", files)


@pytest.mark.parametrize(
    ("text", "workers", "why"),
    [
        (SYNTAX, "2", "SyntaxError"),
        (LEAVES, "0", "broken off"),
        ("raise KeyboardInterrupt\n", "2", "broken off"),
        (SKIPS, "0", "passed at the base and are gone"),
    ],
    ids=["syntax", "leaves", "interrupts", "skips"],
)
def test_an_artifact_that_keeps_tests_from_being_collected_has_regressed(
    project: Path, text: str, workers: str, why: str
) -> None:
    write(project, {"art/answer.py": text})
    done = gate(project, "--evo-gate=git:main", "-n", workers)
    assert done.returncode == 1, said(done)
    assert verdict(project) == "regressed"
    assert why in done.stdout
    assert "test_reads.py::test_reads" in done.stdout
    assert "regressed" in (project / "evo-reports" / "junit.xml").read_text()


def test_tests_that_are_broken_themselves_are_no_regression(project: Path) -> None:
    more = {"art/answer.py": SYNTAX, "tests/test_other.py": "import missing_module\n"}
    write(project, more)
    done = gate(project, "--evo-gate=git:main", "-n", "0")
    assert done.returncode == 4, said(done)
    assert "could not be collected" in said(done)
    assert not (project / "evo-reports").exists()
