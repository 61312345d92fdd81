from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pytest_evo.plugin.environment import enter_environment
from pytest_evo.plugin.environment import rollout_environment

BASE = {"PATH": "/bin", "OPENAI_API_KEY": "k", "JUDGE_API_KEY": "j", "MINE": "1"}


def test_rollouts_get_everything_less_what_is_hidden():
    wanted = rollout_environment(
        BASE, artifact=Path("/c"), hidden=["OPENAI_API_KEY"], run="r1", repeat=2
    )
    assert wanted == {
        "PATH": "/bin",
        "JUDGE_API_KEY": "j",
        "MINE": "1",
        "PYTEST_EVO_ARTIFACT": "/c",
        "PYTEST_EVO_REPEAT": "2",
        "PYTEST_EVO_RUN": "r1",
    }


def test_allow_lets_only_named_variables_through():
    wanted = rollout_environment(
        BASE, artifact=Path("/c"), allow=["MI*", "*_API_KEY"], hidden=["OPENAI_*"]
    )
    assert set(wanted) == {
        "PATH",
        "MINE",
        "JUDGE_API_KEY",
        "PYTEST_EVO_ARTIFACT",
        "PYTEST_EVO_REPEAT",
    }


def test_nothing_allowed_leaves_what_an_interpreter_needs():
    assert "PATH" in rollout_environment(BASE, artifact=Path("/c"), allow=[])


def test_entering_an_environment_removes_the_rest(monkeypatch):
    monkeypatch.setattr(os, "environ", dict(BASE))
    enter_environment({"MINE": "2", "NEW": "3"})
    assert os.environ == {"MINE": "2", "NEW": "3"}


def test_variables_that_stay_as_they_are_are_not_written_again(monkeypatch):
    class Written(dict[str, str]):
        def __setitem__(self, name: str, value: str) -> None:
            written.append(name)
            super().__setitem__(name, value)

    written: list[str] = []
    monkeypatch.setattr(os, "environ", Written(BASE))
    enter_environment({**BASE, "MINE": "2", "NEW": "3"})
    assert written == ["MINE", "NEW"]
    assert os.environ == {**BASE, "MINE": "2", "NEW": "3"}


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_concealed_variables_leave_the_block_of_the_program_and_stay_usable() -> None:
    code = (
        "import os\n"
        "from pytest_evo.plugin.environment import conceal\n"
        "conceal(['*_API_KEY'])\n"
        "assert os.environ['SOME_API_KEY'] == 'sk-canary-1'\n"
        "import subprocess, sys\n"
        "show = 'import os; print(os.environ[\"SOME_API_KEY\"])'\n"
        "seen = subprocess.check_output([sys.executable, '-c', show])\n"
        "assert b'sk-canary-1' in seen\n"
        "assert os.environ['OTHER'] == 'kept'\n"
        "block = open('/proc/self/environ', 'rb').read()\n"
        "assert b'canary' not in block\n"
        "assert b'kept' in block\n"
        "if os.fork() == 0:\n"
        "    os._exit(b'canary' in open('/proc/self/environ', 'rb').read())\n"
        "assert os.wait()[1] == 0\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SOME_API_KEY": "sk-canary-1", "OTHER": "kept"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
