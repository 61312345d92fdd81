from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_evo.plugin.isolation.protected import ProtectedFiles
from pytest_evo.plugin.isolation.protected import SET_ASIDE


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "tests").mkdir(parents=True)
    (root / "tests" / "test_a.py").write_text("assert 1\n")
    (root / "pyproject.toml").write_text("[project]\n")
    return root


def protect(root: Path) -> ProtectedFiles:
    return ProtectedFiles(root, (root / "pyproject.toml", root / "tests" / "test_a.py"))


def test_untouched_files_are_no_news(project: Path) -> None:
    files = protect(project)
    os.utime(project / "pyproject.toml")
    assert files.check() == (None, None)


def test_changed_file_is_told_and_put_back_with_its_mode(project: Path) -> None:
    test = project / "tests" / "test_a.py"
    test.chmod(0o640)
    files = protect(project)
    test.write_text("assert 0\n")
    assert files.check() == ("changed tests/test_a.py of the project", None)
    assert test.read_text() == "assert 1\n"
    assert test.stat().st_mode & 0o777 == 0o640
    assert test.with_name(f"test_a.py{SET_ASIDE}").read_text() == "assert 0\n"
    assert files.check() == (None, None)


def test_change_with_the_old_times_is_found(project: Path) -> None:
    test = project / "tests" / "test_a.py"
    files = protect(project)
    before = test.stat()
    test.write_text("assert 2\n")
    os.utime(test, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert files.check()[0] is not None


def test_deleted_file_comes_back(project: Path) -> None:
    files = protect(project)
    (project / "tests" / "test_a.py").unlink()
    (project / "tests").rmdir()
    assert files.check()[0] is not None
    assert (project / "tests" / "test_a.py").read_text() == "assert 1\n"


def test_folder_replaced_by_a_link_is_not_written_through(
    project: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    files = protect(project)
    (project / "tests").rename(project / "gone")
    (project / "tests").symlink_to(outside)
    assert files.check()[0] is not None
    assert not list(outside.iterdir())
    assert (project / "tests" / "test_a.py").read_text() == "assert 1\n"


def test_planted_link_in_place_of_a_file_is_not_written_through(
    project: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    files = protect(project)
    test = project / "tests" / "test_a.py"
    test.unlink()
    test.symlink_to(target)
    assert files.check()[0] is not None
    assert target.read_text() == "mine"
    assert not test.is_symlink()


@pytest.mark.parametrize("name", ["conftest.py", "pytest.ini", "sitecustomize.py"])
def test_new_file_that_acts_by_itself_is_set_aside(project: Path, name: str) -> None:
    files = protect(project)
    (project / "tests" / name).write_text("")
    assert files.check() == (f"changed tests/{name} (new) of the project", None)
    assert not (project / "tests" / name).exists()
    assert (project / "tests" / f"{name}{SET_ASIDE}").exists()


def test_other_new_files_are_nobodys_business(project: Path) -> None:
    files = protect(project)
    (project / "tests" / "executed.log").write_text("1")
    (project / "tests" / "helper.py").write_text("")
    assert files.check() == (None, None)


def test_change_of_a_frozen_file_is_somebody_elses(project: Path) -> None:
    test = project / "tests" / "test_a.py"
    files = protect(project)
    test.write_text("# edited by hand\n")
    mine, others = files.check(frozen=frozenset({test}))
    assert mine is None
    assert others is not None
    assert "tests/test_a.py" in others
    assert test.read_text() == "# edited by hand\n"
    assert files.check(frozen=frozenset({test})) == (None, None)


def test_frozen_file_in_a_folder_that_was_moved_is_put_back(project: Path) -> None:
    test = project / "tests" / "test_a.py"
    files = protect(project)
    (project / "tests").rename(project / "gone")
    (project / "tests").mkdir()
    test.write_text("def test_nothing(): pass\n")
    assert files.check(frozen=frozenset({test}))[0] is not None
    assert test.read_text() == "assert 1\n"


def test_what_the_start_changes_is_taken_over(project: Path) -> None:
    files = protect(project)
    (project / "tests" / "test_a.py").write_text("# the suite does this\n")
    (project / "tests" / "conftest.py").write_text("")
    mine, others = files.check(blame=False)
    assert mine is None
    assert others is not None
    assert (project / "tests" / "conftest.py").exists()
    assert files.check() == (None, None)


def test_new_and_changed_byte_code_is_deleted(project: Path) -> None:
    caches = project / "tests" / "__pycache__"
    caches.mkdir()
    kept, changed = caches / "kept.pyc", caches / "changed.pyc"
    kept.write_bytes(b"1")
    changed.write_bytes(b"1")
    files = protect(project)
    changed.write_bytes(b"22")
    (caches / "new.pyc").write_bytes(b"3")
    assert files.check() == (None, None)
    assert [path.name for path in caches.iterdir()] == ["kept.pyc"]
