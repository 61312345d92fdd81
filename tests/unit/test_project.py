from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.errors import SettingsProblem
from pytest_evo.project import find_rootdir
from pytest_evo.project import init_project
from pytest_evo.project import settings_table
from pytest_evo.settings import load_settings


def test_init_creates_what_settings_load(tmp_path):
    (tmp_path / "flows").mkdir()
    init_project(tmp_path, "flows")
    assert load_settings(tmp_path, {}).artifact == "flows"


@pytest.mark.parametrize(
    "before",
    [
        "[project]\nname = 'x'  # keep me\n",
        "# only a comment, no line end",
        "[tool.ruff]\nselect = [\n  'A',  # why\n]\n[project]\nname = 'y'\n[tool.z]\n",
        "[tool.a]\r\nb = 1\r\n",
        "[[tool.x.y]]\na = 1\n[[tool.x.y]]\na = 2\n",
    ],
)
def test_init_keeps_every_byte_that_was_there(tmp_path, before):
    path = tmp_path / "pyproject.toml"
    path.write_bytes(before.encode())
    path.chmod(0o640)
    init_project(tmp_path)
    after = path.read_bytes().decode()
    assert after.startswith(before)
    assert after.count("\n") - after.count("\r\n") in (0, after.count("\n"))
    assert load_settings(tmp_path, {}).artifact == "prompts"
    assert path.stat().st_mode & 0o777 == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["pyproject.toml"]


@pytest.mark.parametrize(
    "before", ["[tool.pytest_evo]\n", "tool = {pytest_evo = {artifact = 'x'}}\n"]
)
def test_init_refuses_to_overwrite(tmp_path, before):
    (tmp_path / "pyproject.toml").write_text(before)
    with pytest.raises(SettingsProblem, match="has settings already"):
        init_project(tmp_path)
    assert (tmp_path / "pyproject.toml").read_text() == before


def test_init_refuses_beside_a_settings_file_of_its_own(tmp_path):
    (tmp_path / "pytest_evo.toml").write_text("")
    with pytest.raises(SettingsProblem, match="has settings already"):
        init_project(tmp_path)
    assert not (tmp_path / "pyproject.toml").exists()


@pytest.mark.parametrize("before", ["not toml", "tool = {a = 1}\n", "[tool.a\n"])
def test_init_leaves_alone_what_it_cannot_extend(tmp_path, before):
    (tmp_path / "pyproject.toml").write_text(before)
    with pytest.raises(SettingsProblem, match=r"Nothing was written.*pytest_evo\.toml"):
        init_project(tmp_path)
    assert (tmp_path / "pyproject.toml").read_text() == before


def test_init_guesses_a_directory_that_is_there(tmp_path):
    (tmp_path / "skills").mkdir()
    assert 'artifact = "skills"' in init_project(tmp_path)


@pytest.mark.parametrize("name", ["asistant", "elsewhere/x", "a_file", ".", ".."])
def test_init_refuses_an_artifact_that_is_no_directory_here(tmp_path, name):
    (tmp_path / "assistant").mkdir()
    (tmp_path / "a_file").write_text("")
    with pytest.raises(SettingsProblem, match="Nothing was written") as caught:
        init_project(tmp_path, name)
    assert ("--artifact=assistant" in str(caught.value)) is (name == "asistant")
    assert not (tmp_path / "pyproject.toml").exists()


def test_init_shows_examples_that_are_settings_once_uncommented(tmp_path):
    (tmp_path / "flows").mkdir()
    text = init_project(tmp_path, "flows")
    examples = re.sub(r"(?m)^# (?=\[|\w+ = [^,]*$)", "", text)
    (tmp_path / "pyproject.toml").write_text(examples)
    files = load_settings(tmp_path, {}).file
    assert [len(file.knob) for file in files] == [0, 1]


@settings(max_examples=50)
@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_init_writes_any_name_so_that_it_is_read_back(name):
    found = tomllib.loads(settings_table(name))
    assert found["tool"]["pytest_evo"]["artifact"] == name


def test_rootdir_is_the_nearest_with_settings_or_runs(tmp_path):
    deep = tmp_path / "a/b/c"
    deep.mkdir(parents=True)
    assert find_rootdir(deep) == deep
    (tmp_path / ".evo/runs").mkdir(parents=True)
    assert find_rootdir(deep) == tmp_path
    (tmp_path / "a/pyproject.toml").write_text("[tool.other]\n")
    assert find_rootdir(deep) == tmp_path
    (tmp_path / "a/pyproject.toml").write_text("[tool.pytest_evo]\n")
    assert find_rootdir(deep) == tmp_path / "a"
