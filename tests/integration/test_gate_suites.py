"""Cases that were added, removed, renamed, moved, skipped or changed since the base."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from gate_project import gate
from gate_project import make_repository
from gate_project import observations
from gate_project import said
from gate_project import verdict
from gate_project import write

pytestmark = pytest.mark.slow
LEVEL = """
import pytest


def level(folder):
    return int((folder / "level.txt").read_text())


def test_one(evo_artifact):
    assert level(evo_artifact) >= 1


def test_two(evo_artifact):
    assert level(evo_artifact) >= 2


def test_three(evo_artifact):
    assert level(evo_artifact) >= 3


def test_nine(evo_artifact):
    assert level(evo_artifact) >= 9


@pytest.mark.parametrize("n", [1, 2], ids=["n=1", "n=2"])
def test_param(n, evo_artifact):
    assert level(evo_artifact) >= n
"""
MORE = """
def test_more(evo_artifact):
    assert int((evo_artifact / "level.txt").read_text()) >= {least}
"""
MARKS = """
import pytest

def pytest_collection_modifyitems(items):
    for item in items:
        if item.name in {names}:
            item.add_marker(pytest.mark.{mark})
"""
TWO = """def test_two(evo_artifact):
    assert level(evo_artifact) >= 2


"""
NINE = TWO.replace("two", "nine").replace("2", "9")
FILE = "tests/test_level.py"


def rewritten(old: str, new: str) -> Callable[[Path], None]:
    assert old in LEVEL
    return lambda root: write(root, {FILE: LEVEL.replace(old, new)})


def written(**files: str) -> Callable[[Path], None]:
    names = {
        name.replace("__", "/").replace("_DOT_", "."): t for name, t in files.items()
    }
    return lambda root: write(root, names)


def moved(root: Path) -> None:
    (root / "tests" / "unit").mkdir()
    (root / FILE).rename(root / "tests" / "unit" / "test_level.py")


def totals_kept(root: Path) -> None:
    text = LEVEL.replace(">= 2\n", ">= 22\n", 1).replace(">= 9", ">= 0")
    write(root, {FILE: text})


HEADS: dict[str, tuple[Callable[[Path], None], int, str]] = {
    "removed-passing": (rewritten(TWO, ""), 1, "passed before"),
    "removed-failing": (rewritten(NINE, ""), 0, "failed before"),
    "renamed": (rewritten("test_two", "test_at_least_two"), 0, "1 case renamed"),
    "new-ids": (rewritten('"n=1", "n=2"', '"n-1", "n-2"'), 0, "2 cases renamed"),
    "moved": (moved, 0, "6 cases renamed"),
    "added-failing": (
        written(tests__test_more_DOT_py=MORE.format(least=20)),
        0,
        "1 case added",
    ),
    "added-passing": (
        written(tests__test_more_DOT_py=MORE.format(least=0)),
        0,
        "1 case added",
    ),
    "newly-skipped": (
        written(
            conftest_DOT_py=MARKS.format(
                names=["test_two"], mark='skip(reason="later")'
            ),
            art__level_DOT_txt="1",
        ),
        1,
        "skipped now",
    ),
    "newly-xfailed": (
        written(
            conftest_DOT_py=MARKS.format(
                names=["test_two", "test_three"], mark="xfail"
            ),
            art__level_DOT_txt="1",
        ),
        1,
        "test_three",
    ),
    "narrowed": (
        written(pytest_DOT_ini="[pytest]\naddopts = -k 'not two'\n"),
        1,
        "passed before",
    ),
    "same-totals": (totals_kept, 1, "test_two"),
}


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with its baseline file."""
    root = tmp_path_factory.mktemp("suites") / "base"
    make_repository(root, {"art/level.txt": "3", FILE: LEVEL})
    done = gate(root, "--evo-baseline-update", "-n", "0")
    assert done.returncode == 0, said(done)
    return root


@pytest.fixture
def project(measured: Path, tmp_path: Path) -> Path:
    """A copy of it, of its own."""
    files = {
        path.relative_to(measured).as_posix(): path.read_text()
        for path in measured.rglob("*")
        if path.is_file() and path.suffix in (".py", ".txt", ".json", ".toml")
        if "evo-reports" not in path.parts
    }
    return make_repository(tmp_path / "project", files)


@pytest.mark.parametrize("name", HEADS)
def test_changes_of_the_suite_are_seen_against_a_baseline(
    project: Path, name: str
) -> None:
    change, status, text = HEADS[name]
    change(project)
    done = gate(project, "--evo-gate=baseline", "-n", "0")
    assert done.returncode == status, said(done)
    assert text in done.stdout


@pytest.mark.parametrize(
    "name", ["removed-passing", "removed-failing", "renamed", "narrowed"]
)
def test_changes_of_the_suite_are_seen_against_a_ref_without_a_baseline(
    project: Path, name: str
) -> None:
    (project / "evo-baseline.json").unlink()
    change, status, text = HEADS[name]
    change(project)
    done = gate(project, "--evo-gate=git:main", "-n", "0")
    assert done.returncode == status, said(done)
    assert text in done.stdout


def test_a_gate_that_stands_in_the_settings_is_not_run_inside_itself(
    tmp_path: Path,
) -> None:
    root = make_repository(
        tmp_path / "project",
        {
            "art/level.txt": "3",
            FILE: LEVEL,
            "pytest.ini": "[pytest]\naddopts = --evo-gate=git:main -n 0\n",
        },
    )
    HEADS["removed-passing"][0](root)
    done = gate(root)
    assert done.returncode == 1, said(done)
    assert "passed before" in done.stdout


@pytest.mark.parametrize("name", ["removed-passing", "same-totals"])
def test_removed_cases_go_where_that_is_accepted(project: Path, name: str) -> None:
    HEADS[name][0](project)
    done = gate(project, "--evo-gate=baseline", "--evo-accept-removed", "-n", "0")
    assert done.returncode == 0, said(done)
    assert verdict(project) == "passed"


def test_a_quarantine_holds_until_its_day_and_not_for_the_change_that_brings_it(
    project: Path,
) -> None:
    entry = '[[tool.pytest_evo.quarantine]]\ncase = "*test_three"\nreason = "12"\n'
    settings = (project / "pyproject.toml").read_text()
    write(project, {"art/level.txt": "2"})
    for until, status in (("2020-01-31", 1), ("2999-01-31", 0)):
        text = f"{settings}{entry}until = {until}\n"
        write(project, {"pyproject.toml": text})
        done = gate(project, "--evo-gate=baseline", "-n", "0")
        assert done.returncode == status, said(done)
    done = gate(project, "--evo-gate=git:main", "-n", "0")
    assert done.returncode == 1, said(done)
    assert "do not hold before" in done.stdout


def test_a_baseline_of_another_suite_or_another_model_says_what_to_do(
    project: Path,
) -> None:
    path = project / "evo-baseline.json"
    settings = (project / "pyproject.toml").read_text()
    write(project, {"pyproject.toml": f'{settings}fingerprint_env = ["JUDGE"]\n'})
    done = gate(project, "--evo-gate=baseline", "-n", "0", JUDGE="new")
    assert done.returncode == 4
    assert "other values of JUDGE" in said(done)
    write(project, {"pyproject.toml": settings})
    data = json.loads(path.read_text())
    data["cases"] = {f"x{name}": row for name, row in data["cases"].items()}
    for row in data["cases"].values():
        row["body"] = ""
    path.write_text(json.dumps(data))
    done = gate(project, "--evo-gate=baseline", "-n", "0")
    assert done.returncode == 4
    assert "of another suite" in said(done)
    assert "--evo-baseline-update" in said(done)
    path.write_text("{")
    done = gate(project, "--evo-gate=baseline", "-n", "0")
    assert done.returncode == 4
    assert "not JSON" in said(done)


def test_only_what_the_change_can_reach_is_run(tmp_path: Path) -> None:
    tests = """
import pytest

@pytest.mark.parametrize("n", range(20))
@pytest.mark.parametrize("name", ["a", "b"])
def test_reads(name, n, evo_artifact):
    assert (evo_artifact / f"{name}.txt").read_text() == "fine"
"""
    root = make_repository(
        tmp_path / "project",
        {"art/a.txt": "fine", "art/b.txt": "fine", "tests/test_reads.py": tests},
    )
    assert gate(root, "--evo-baseline-update", "-n", "0").returncode == 0
    write(root, {"art/a.txt": "worse"})
    done = gate(root, "--evo-gate=baseline", "-n", "0")
    assert done.returncode == 1, said(done)
    names = {row["case"] for row in observations(root)}
    reached = {name for name in names if "[a-" in name}
    spots = names - reached
    assert len(reached) == 20
    assert 0 < len(spots) < 20
    assert "unchanged, not run" in done.stdout
    gate(root, "--evo-gate=baseline", "--evo-gate-all", "-n", "0")
    assert len({row["case"] for row in observations(root)}) == 40


def test_one_surprise_turns_the_saving_off(tmp_path: Path) -> None:
    tests = """
import os
import pytest

@pytest.mark.parametrize("n", range(30))
def test_reads(n, evo_artifact):
    assert (evo_artifact / "b.txt").read_text() == "fine"
    if os.environ.get("CURIOUS"):
        (evo_artifact / "a.txt").read_text()
"""
    root = make_repository(
        tmp_path / "project",
        {"art/a.txt": "fine", "art/b.txt": "fine", "tests/test_reads.py": tests},
    )
    assert gate(root, "--evo-baseline-update", "-n", "0").returncode == 0
    write(root, {"art/a.txt": "other"})
    gate(root, "--evo-gate=baseline", "-n", "0")
    assert len({row["case"] for row in observations(root)}) < 30
    done = gate(root, "--evo-gate=baseline", "-n", "0", CURIOUS="1")
    assert "was not known to" in done.stdout, said(done)
    assert len({row["case"] for row in observations(root)}) == 30


@pytest.mark.parametrize("option", ["-kone", "-k", "tests/test_level.py::test_one"])
def test_a_baseline_of_a_part_of_the_suite_is_refused(
    project: Path, option: str
) -> None:
    before = (project / "evo-baseline.json").read_bytes()
    more = ["one"] if option == "-k" else []
    done = gate(project, "--evo-baseline-update", "-n", "0", option, *more)
    assert done.returncode == 4
    assert "selects a part" in said(done)
    assert (project / "evo-baseline.json").read_bytes() == before


def test_measuring_the_same_artifact_again_changes_only_times(project: Path) -> None:
    before = json.loads((project / "evo-baseline.json").read_text())
    done = gate(project, "--evo-baseline-update", "-n", "2")
    assert done.returncode == 0, said(done)
    after = json.loads((project / "evo-baseline.json").read_text())
    for data in (before, after):
        data["commit"] = ""
        for row in data["cases"].values():
            row["seconds"] = 0
    assert after == before
