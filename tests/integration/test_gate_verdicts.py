"""Better, worse, much worse, the same, and both at once, against a git ref."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from gate_project import gate
from gate_project import make_repository
from gate_project import observations
from gate_project import record
from gate_project import said
from gate_project import verdict
from gate_project import write

pytestmark = pytest.mark.slow
TESTS = """
import pytest

WORDS = ["a0", "a1", "a2", "a3", "a4", "a5", "b6", "b7", "b8 | `x` <b> @everyone", "b9"]

@pytest.mark.parametrize("word", WORDS)
def test_word(word, evo_artifact):
    assert word[:2] in (evo_artifact / "words.txt").read_text().split()
"""
BASE = "a0 a1 a2 a3 a4 a5"
REF = "--evo-gate=git:main"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(
        tmp_path / "project", {"art/words.txt": BASE, "tests/test_ten.py": TESTS}
    )


@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        ("a0 a1 a2 a3 a4 a5 b6 b7 b8", 0, "passed"),
        ("a5 a4 a3 a2 a1 a0", 0, "passed"),
        ("a0 a1 a2", 1, "regressed"),
        ("a0 a1 a2 a3 b6 b7", 1, "regressed"),
        ("", 1, "regressed"),
    ],
    ids=["better", "same", "worse", "mixed", "much-worse"],
)
def test_gate_judges_a_change_of_the_artifact(
    project: Path, words: str, status: int, expected: str
) -> None:
    write(project, {"art/words.txt": words})
    done = gate(project, REF, "-n", "0")
    assert done.returncode == status, said(done)
    assert verdict(project) == expected
    lost = [word for word in BASE.split() if word not in words.split()]
    for word in lost:
        assert f"test_word[{word}]" in done.stdout
    fresh = [word for word in ("b6", "b7") if word in words]
    assert all(f"test_word[{word}]" in done.stdout for word in fresh)
    summary = (project / "evo-reports" / "summary.md").read_text()
    assert len(summary) < 65_536


def test_both_arms_run_interleaved_on_real_workers(project: Path) -> None:
    write(project, {"art/words.txt": "a0 a1 a2"})
    done = gate(project, REF, "-n", "2")
    assert done.returncode == 1, said(done)
    arms = [row["arm"] for row in observations(project)]
    assert arms.count("base") == arms.count("head")
    assert "base" in arms[:8]
    assert "head" in arms[:8]


def test_nothing_is_run_where_the_artifact_is_the_same(project: Path) -> None:
    done = gate(project, REF, "-n", "0")
    assert done.returncode == 0, said(done)
    assert "nothing was run" in done.stdout
    assert observations(project) == []


def test_gate_all_runs_an_unchanged_artifact(project: Path) -> None:
    done = gate(project, REF, "--evo-gate-all", "-n", "0")
    assert done.returncode == 0, said(done)
    first = [o for o in observations(project) if o["stage"] == "first"]
    assert len(first) == 20


def test_uncommitted_and_untracked_files_belong_to_the_head(project: Path) -> None:
    write(project, {"art/more.txt": "x"})
    done = gate(project, REF, "-n", "0")
    assert done.returncode == 0, said(done)
    assert "not in git" in done.stdout
    assert record(project)["record"]["change"]["files"] == ["more.txt"]


def test_junit_agrees_with_the_gate_and_has_plain_names(project: Path) -> None:
    write(project, {"art/words.txt": "a0 a1 a2"})
    gate(project, REF, "-n", "0")
    tree = ElementTree.parse(project / "evo-reports" / "junit.xml")
    cases = {case.get("name"): case for case in tree.iter("testcase")}
    failed = {name for name, case in cases.items() if case.find("failure") is not None}
    assert failed == {"verdict", "test_word[a3]", "test_word[a4]", "test_word[a5]"}
    assert cases["test_word[a0]"].get("classname") == "tests.test_ten"
    assert cases["test_word[b9]"].find("skipped") is not None  # fails on both sides
    trace = cases["test_word[a3]"].find("failure")
    assert trace is not None
    assert "words.txt" in (trace.text or "")


def test_junitxml_of_the_user_has_the_cases_of_the_head(project: Path) -> None:
    write(project, {"art/words.txt": "a0 a1 a2"})
    gate(project, REF, "-n", "0", "--junitxml=own.xml")
    suite = ElementTree.parse(project / "own.xml").getroot()[0]
    assert suite.get("tests") == "10"
    assert suite.get("failures") == "7"


def test_an_artifact_that_no_case_reads_is_not_called_unharmed(
    tmp_path: Path,
) -> None:
    root = make_repository(
        tmp_path / "blind",
        {"art/a.txt": "1", "tests/test_blind.py": "def test_it():\n    assert True\n"},
    )
    write(root, {"art/a.txt": "2"})
    done = gate(root, REF, "-n", "0")
    assert done.returncode == 17, said(done)
    assert "no case opened a file of the artifact" in done.stdout


def test_a_budget_that_is_spent_is_never_exceeded(project: Path) -> None:
    write(project, {"art/words.txt": "a5 a4 a3 a2 a1 a0"})
    done = gate(project, REF, "--budget-rollouts=7", "-n", "2")
    assert len(observations(project)) <= 7
    assert done.returncode == 17, said(done)


def test_evolve_and_gate_are_two_sessions(project: Path) -> None:
    done = gate(project, REF, "--evolve", "-n", "0")
    assert done.returncode == 4
    assert "two sessions" in said(done)
