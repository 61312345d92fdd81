from __future__ import annotations

import os
from pathlib import Path

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
