"""Options that do not exist: what is said, and when nothing is."""

from __future__ import annotations

import tomllib

import pytest

from pytest_evo.plugin.misspelt import hint_for
from pytest_evo.plugin.options import looks_misspelt
from pytest_evo.plugin.options import OPTIONS
from pytest_evo.settings import Settings
from pytest_evo.settings_text import option_name

KEYS = [
    key
    for key in Settings.model_fields
    if key != "targets" and option_name(key) not in OPTIONS
]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("--budget-rollout=100", "--budget-rollouts"),
        ("--evo-budget-rollouts=100", "--budget-rollouts"),
        ("--evo-artefact", "--evo-artifact"),
        ("--evo_gate=git:main", "--evo-gate"),
        ("--evolv", "--evolve"),
    ],
)
def test_misspelt_option_gets_the_nearest_one(given, meant):
    assert hint_for(given) == f"for {given.split('=')[0]}, did you mean {meant}?"


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ("--evo-gate-margin=0.1", "gate_margin = 0.1"),
        ("--evo-gate-margn=0.1", "gate_margin = 0.1"),
        ("--evo-gate-margin=much", "gate_margin = 0.02"),  # the example
        ("--evo-gate-margin", "gate_margin = 0.02"),
        ("--evo-max-bytes=70", "max_bytes = 70"),
        ("--evo-count-model-calls=false", "count_model_calls = false"),
        ("--evo-objective=be brief", 'objective = "be brief"'),
        ("--evo-protect=data/**", 'protect = ["data/**"]'),
        ("--evo-mount=1\nseed = 2", 'mount = "never"'),
    ],
)
def test_option_of_a_setting_of_the_file_is_told_as_its_line(given, line):
    hint = hint_for(given)
    assert hint is not None
    assert hint.endswith(f"write [tool.pytest_evo] {line}")


@pytest.mark.parametrize("key", KEYS)
def test_every_setting_without_an_option_is_told_how_it_is_written(key):
    hint = hint_for(f"{option_name(key)}=0")
    assert hint is not None
    written = hint.partition(f"the setting {key} has none, write ")[2]
    line = written.removeprefix("[tool.pytest_evo] ")
    if line != written:
        assert Settings.model_validate(tomllib.loads(line))
    else:
        assert f"[tool.pytest_evo.{key}]" in written


@pytest.mark.parametrize("given", ["--evo-frobnicate", "--budgetary", "-x", "test.py"])
def test_what_is_like_no_option_gets_no_hint(given):
    assert hint_for(given) is None


def test_only_unknown_names_like_ours_are_looked_at():
    assert not looks_misspelt([*OPTIONS, "--evo-gate=x", "-k", "evo", "--cov", "a.py"])
    assert looks_misspelt(["-q", "--evo-gate-margin=1"])
    assert looks_misspelt(["--budgets"])


def test_hint_stands_in_the_usage_error_of_pytest(pytester):
    with pytest.raises(pytest.UsageError) as told:
        pytester.parseconfig("--evo-gate-margin=0.1", "--evo-artefact", "--frob")
    text = str(told.value)
    assert "unrecognized arguments: --evo-gate-margin=0.1 --evo-artefact --frob" in text
    assert "write [tool.pytest_evo] gate_margin = 0.1; for --evo-artefact, did" in text


def test_options_of_other_plugins_get_no_hint(pytester):
    pytester.makeconftest(
        "def pytest_addoption(parser): parser.addoption('--evo-artefacts')"
    )
    config = pytester.parseconfig("--evo-artefacts=--evo-seeds")
    assert config.getoption("--evo-artefacts") == "--evo-seeds"
    with pytest.raises(pytest.UsageError, match="--frob") as told:
        pytester.parseconfig("--evo-artefacts=x", "--frob")
    assert "pytest-evo:" not in str(told.value)
