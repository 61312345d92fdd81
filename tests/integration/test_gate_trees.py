"""--evo-gate-arm=tree: the base in its own project, under the tests of the change."""

from __future__ import annotations

from pathlib import Path

import pytest
from gate_project import gate
from gate_project import make_repository
from gate_project import record
from gate_project import said
from gate_project import verdict
from gate_project import write

pytestmark = pytest.mark.slow
TESTS = """
import lib
import pytest

@pytest.mark.parametrize("n", range(3))
def test_it(n, evo_artifact):
    assert int((evo_artifact / "level.txt").read_text()) * lib.FACTOR > n
"""
SETTINGS = (
    '[tool.pytest_evo]\nartifact = "art"\n'
    '[tool.pytest.ini_options]\npythonpath = ["."]\n'
)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    files = {
        "pyproject.toml": SETTINGS,
        "art/level.txt": "3",
        "lib/__init__.py": "FACTOR = 1\n",
        "tests/test_it.py": TESTS,
    }
    return make_repository(tmp_path / "project", files)


def test_project_code_is_compared_only_with_the_whole_tree(project: Path) -> None:
    write(project, {"lib/__init__.py": "FACTOR = 0\n", "art/level.txt": "4"})
    done = gate(project, "--evo-gate=git:main", "-n", "0")
    assert done.returncode == 0, said(done)  # both sides ran the broken code
    assert "lib/__init__.py" in done.stdout
    assert "--evo-gate-arm=tree" in done.stdout
    done = gate(project, "--evo-gate=git:main", "--evo-gate-arm=tree", "-n", "2")
    assert done.returncode == 1, said(done)
    assert record(project)["record"]["isolation"] == "workspace"


def test_the_base_runs_the_tests_of_the_change(project: Path) -> None:
    write(
        project,
        {
            "lib/__init__.py": "FACTOR = 2\n",
            "tests/test_it.py": TESTS.replace("range(3)", "range(5)"),
        },
    )
    done = gate(project, "--evo-gate=git:main", "--evo-gate-arm=tree", "-n", "0")
    assert done.returncode == 0, said(done)
    assert verdict(project) == "passed"
    assert "test_it[4]" in done.stdout
    assert "fixed" in done.stdout


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--evo-gate=baseline", "--evo-gate-arm=tree"), "needs REF's files"),
        (
            ("--evo-gate=git:main", "--evo-gate-arm=tree", "--evo-isolation=fork"),
            "Leave the isolation out",
        ),
    ],
)
def test_what_a_tree_needs_is_said(
    project: Path, options: tuple[str, ...], text: str
) -> None:
    write(project, {"lib/__init__.py": "FACTOR = 0\n"})
    done = gate(project, *options, "-n", "0")
    assert done.returncode == 4, said(done)
    assert text in said(done)


def test_a_fixed_path_is_read_of_the_right_version_without_a_mount(
    tmp_path: Path,
) -> None:
    tests = """
from pathlib import Path

def test_fixed():
    place = Path(__file__).parents[1] / "art" / "level.txt"
    assert int(place.read_text()) > 1
"""
    root = make_repository(
        tmp_path / "fixed",
        {
            "pyproject.toml": SETTINGS.replace('"art"', '"art"\nmount = "never"'),
            "art/level.txt": "1",
            "tests/test_fixed.py": tests,
        },
    )
    write(root, {"art/level.txt": "2"})
    done = gate(root, "--evo-gate=git:main", "-n", "0")
    assert done.returncode == 0, said(done)
    assert "fixed" in done.stdout  # failed at the base, passes now
    assert "thrown away" in done.stdout
    assert record(root)["record"]["isolation"] == "workspace"


def test_of_several_targets_the_changed_one_is_judged(tmp_path: Path) -> None:
    settings = "".join(
        f'[[tool.pytest_evo.target]]\nname = "{name}"\nartifact = "{name}"\n'
        f'cases = ["tests/test_{name}.py*"]\n'
        for name in ("one", "two")
    )
    files = {"pyproject.toml": settings}
    for name in ("one", "two"):
        files[f"{name}/level.txt"] = "1"
        files[f"tests/test_{name}.py"] = (
            "def test_it(evo_artifact):\n"
            "    assert int((evo_artifact / 'level.txt').read_text()) == 1\n"
        )
    root = make_repository(tmp_path / "targets", files)
    done = gate(root, "--evo-gate=git:main", "-n", "0")
    assert done.returncode == 0, said(done)
    write(root, {"two/level.txt": "2"})
    done = gate(root, "--evo-gate=git:main", "-n", "0")
    assert done.returncode == 1, said(done)
    assert "tests/test_two.py::test_it" in done.stdout
    assert "tests/test_one.py" not in done.stdout
    write(root, {"one/level.txt": "2"})
    done = gate(root, "--evo-gate=git:main", "-n", "0")
    assert done.returncode == 4, said(done)
    assert "--evo-target=one" in said(done)
    done = gate(root, "--evo-gate=git:main", "--evo-target=one", "-n", "0")
    assert done.returncode == 1, said(done)
    assert "tests/test_one.py::test_it" in done.stdout
