from __future__ import annotations

import os
import sys
import types
from pathlib import Path

import pytest

from pytest_evo.plugin.isolation.fresh import ZygoteSpec
from pytest_evo.plugin.isolation.relocation import Relocation


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "tests").mkdir(parents=True)
    (tmp_path / "copy" / "tests").mkdir(parents=True)
    return tmp_path / "project"


def moved(project: Path, *args: str, where: Path | None = None) -> list[str]:
    spec = ZygoteSpec(
        modules=(),
        rewritten=(),
        args=args,
        argv=(),
        leading_path=(),
        invocation_dir=str(where or project),
        rootdir=str(project),
        inifile=str(project / "pytest.ini"),
    )
    return Relocation(project, str(project.parent / "copy")).arguments(spec)


def test_without_a_copy_nothing_changes(project: Path) -> None:
    spec = ZygoteSpec((), (), ("-q", "tests"), (), (), str(project), str(project), None)
    assert Relocation(project, None).arguments(spec) == ["-q", "tests"]


def test_rootdir_and_ini_file_are_the_copys(project: Path) -> None:
    copy = project.parent / "copy"
    assert moved(project) == [f"--rootdir={copy}", "-c", f"{copy}/pytest.ini"]


def test_paths_are_moved_and_everything_else_is_kept(project: Path) -> None:
    copy = project.parent / "copy"
    given = [
        "-k",
        "tests",
        "tests",
        f"{project}/tests/test_a.py::test_b[x=1]",
        f"--confcutdir={project}",
        f"--junitxml={project.parent}/projection/out.xml",
        "--tone=loud",
    ]
    assert moved(project, *given)[3:] == [
        "-k",
        "tests",
        "tests",
        f"{copy}/tests/test_a.py::test_b[x=1]",
        f"--confcutdir={copy}",
        f"--junitxml={project.parent}/projection/out.xml",
        "--tone=loud",
    ]


def test_relative_paths_from_outside_lead_into_the_copy(project: Path) -> None:
    copy = project.parent / "copy"
    args = moved(project, "-q", "project/tests::x", where=project.parent)
    assert args[3:] == ["-q", f"{copy}/tests::x"]


def test_process_moves_with_its_module_search_path(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = project.parent / "copy"
    finder = types.ModuleType("__editable___thing_finder")
    vars(finder)["MAPPING"] = {"thing": str(project / "src" / "thing"), "far": "/far"}
    monkeypatch.setitem(sys.modules, finder.__name__, finder)
    monkeypatch.chdir(project / "tests")
    monkeypatch.setattr(sys, "path", [str(project), "/elsewhere"])
    relocation = Relocation(project, str(copy))
    relocation.enter()
    assert Path.cwd() == copy / "tests"
    assert sys.path == [str(copy), "/elsewhere"]
    assert vars(finder)["MAPPING"] == {
        "thing": str(copy / "src" / "thing"),
        "far": "/far",
    }
    environment = relocation.environment(
        {"PYTHONPATH": os.pathsep.join([str(project), "/x"]), "HOME": str(project)}
    )
    assert environment == {
        "PYTHONPATH": os.pathsep.join([str(copy), "/x"]),
        "HOME": str(project),
    }
