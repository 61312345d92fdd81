from __future__ import annotations

import pytest

from pytest_evo.proposers.agent.outside import changed
from pytest_evo.proposers.agent.outside import look


@pytest.fixture
def project(tmp_path):
    for name in (
        "tests/test_a.py",
        "pyproject.toml",
        "evo-baseline.json",
        "data/notes.txt",
        ".evo/runs/x.py",
        "venv/pyvenv.cfg",
        "venv/lib/x.py",
        "node_modules/p/x.py",
        "tests/__pycache__/x.py",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return tmp_path


def test_what_judges_is_watched_and_nothing_else(project):
    assert {*look(project)} == {
        "tests/test_a.py",
        "pyproject.toml",
        "evo-baseline.json",
    }


def test_changes_additions_and_deletions_are_told(project):
    before = look(project)
    assert changed(before, look(project)) == ()
    (project / "tests" / "test_a.py").write_text("pass")
    (project / "conftest.py").write_text("")
    (project / "pyproject.toml").unlink()
    (project / "data" / "notes.txt").write_text("more")
    assert changed(before, look(project)) == (
        "conftest.py",
        "pyproject.toml",
        "tests/test_a.py",
    )


def test_files_that_cannot_be_read_are_passed_over(project):
    (project / "loop.py").symlink_to("loop.py")
    assert "loop.py" not in look(project)
