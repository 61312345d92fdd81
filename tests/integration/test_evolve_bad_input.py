"""What bad input gets: exit code 4, what to type, nothing lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from evolve_project import evolve
from evolve_project import executed
from evolve_project import make_project

pytestmark = pytest.mark.slow
OPTIONS = ("--budget-iterations=2", "-n", "0")


def settings(root: Path, text: str) -> None:
    (root / "pyproject.toml").write_text(f"[tool.pytest_evo]\n{text}\n")


def refused(root: Path, *options: str) -> str:
    done = evolve(root, *(options or OPTIONS))
    text = done.stdout + done.stderr
    assert done.returncode == 4, text
    assert executed(root) == 0
    assert "Traceback (most recent" not in text
    assert "INTERNALERROR" not in text
    return text


SETTINGS = [
    ('artefact = "art"', "artifact"),
    ("objective = 'x'\nscripted = 'proposals.py'", "--evo-artifact=DIR"),
    ('artifact = "nowhere"', "nowhere"),
    ('artifact = "../outside"', "outside"),
    ('artifact = "empty"', "empty"),
    ('artifact = "art"\nscripted = "missing.py"', "missing.py"),
    ('artifact = "art"', "knob"),
    ('artifact = "art"\nscripted = "proposals.py"\nstrategy = "mra"', "mara"),
    ('artifact = "art"\nscripted = "proposals.py"\nacceptance = "pared"', "paired"),
    ('artifact = "art"\nproposer = "serch"', "search"),
    ('artifact = "art"\nproposer = "llm"', "--evo-model=PROVIDER/NAME"),
    ('artifact = "art"\nscripted = "proposals.py"\ncases = ["nothing*"]', "nothing*"),
    (
        'artifact = "art"\nscripted = "proposals.py"\n[tool.pytest_evo.split]\n'
        'train = ["*"]',
        "val",
    ),
    ('artifact = "art"\nscripted = "proposals.py"\nrun_dir = "art/.evo"', "run_dir"),
]


@pytest.mark.parametrize(("text", "expected"), SETTINGS, ids=range(len(SETTINGS)))
def test_unusable_settings_are_refused_with_what_to_change(
    pytester: pytest.Pytester, text: str, expected: str
) -> None:
    root = make_project(pytester)
    (root / "empty").mkdir()
    settings(root, text)
    done = evolve(root, *OPTIONS)
    said = done.stdout + done.stderr
    assert done.returncode == 4, said
    assert expected in said
    assert "Traceback (most recent" not in said


@pytest.mark.parametrize(
    "option",
    [
        "--budget-rollouts=-1",
        "--budget-rollouts=1e3",
        "--budget-rollouts=",
        "--budget-time=soon",
        "--evo-isolation=vm",
        "--evo-slots=0",
        "--evo-gate=git:main",
        "--evo-resume=20200101-000000-aaaa",
    ],
)
def test_unusable_option_values_are_refused(
    pytester: pytest.Pytester, option: str
) -> None:
    root = make_project(pytester)
    refused(root, option, "-n", "0")


@pytest.mark.parametrize("workers", ["0", "2"])
def test_collection_error_stops_the_run_before_it_starts(
    pytester: pytest.Pytester, workers: str
) -> None:
    root = make_project(pytester)
    (root / "test_broken.py").write_text("import nothing_of_that_name\n")
    text = refused(root, "--budget-iterations=2", "-n", workers)
    assert "nothing_of_that_name" in text
    assert not (root / ".evo").exists()


def test_no_tests_stop_the_run(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    text = refused(root, *OPTIONS, "-k", "no_such_test")
    assert "no tests were collected" in text


def test_workers_that_collect_different_tests_stop_the_run(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    (root / "test_level.py").write_text(
        "import os, pytest\n"
        "@pytest.mark.parametrize('n', [os.getpid(), 1])\n"
        "def test_n(n, evo_artifact):\n    assert n\n"
    )
    text = refused(root, "--budget-iterations=2", "-n", "2")
    assert "collected different tests" in text


def test_run_of_another_project_is_not_resumed(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    shared = str(root / "shared-runs")
    assert evolve(root, *OPTIONS, f"--evo-run-dir={shared}").returncode == 0
    other = root / "other"
    other.mkdir()
    for name in ("art", "pyproject.toml", "proposals.py", "test_level.py"):
        (root / name).rename(other / name)
    done = evolve(other, "--evo-resume=last", f"--evo-run-dir={shared}", "-n", "0")
    assert done.returncode == 4
    assert "pytest --evolve" in done.stdout + done.stderr


def test_run_that_was_refused_before_its_first_rollout_leaves_no_run(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    refused(root, "--budget-rollouts=9", "-n", "0")
    assert not list((root / ".evo" / "runs").glob("*"))


def test_dry_run_refuses_the_budget_that_the_run_refuses(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    text = refused(root, "--budget-rollouts=9", "--evo-dry-run", "-n", "0")
    assert "Give at least" in text


def test_budget_of_an_ended_run_cannot_be_raised(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    assert evolve(root, *OPTIONS).returncode == 0
    ran = executed(root)
    done = evolve(root, "--evo-resume=last", "--budget-iterations=900", "-n", "0")
    assert done.returncode == 4, done.stdout
    assert "its winner is measured" in done.stdout + done.stderr
    again = evolve(root, "--evo-resume=last", *OPTIONS)
    assert again.returncode == 0, again.stdout  # the same budget shows the result
    assert "has ended already" in again.stdout
    assert executed(root) == ran


def test_header_says_from_which_budget_on_chains_begin(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    done = evolve(root, "--budget-rollouts=120", "-n", "0")
    assert "chain depth 0 (5 from --budget-rollouts=" in done.stdout, done.stdout


def test_artifact_that_ends_workers_while_they_collect_is_told(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    tests = root / "test_level.py"
    tests.write_text("import os\nos._exit(3)\n" + tests.read_text())
    text = refused(root, "--budget-rollouts=100", "-n", "1")
    assert "could not be collected" in text
    assert "--collect-only" in text
