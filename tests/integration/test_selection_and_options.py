"""Whole runs under options, plugins and hooks that choose, order or repeat tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from evolve_project import environment
from odd_project import make_odd
from odd_project import run_odd

PASSED, FAILED = "passed", "failed"
HOOKS = """
import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "slow: not today")

def pytest_collection_modifyitems(config, items):
    dropped = [item for item in items if item.get_closest_marker("slow")]
    config.hook.pytest_deselected(items=dropped)
    kept = [item for item in items if item not in dropped]
    items[:] = sorted(kept, key=lambda item: item.name, reverse=True)
"""
CHOSEN = """
from pathlib import Path

import pytest

HERE = Path(__file__).parent

def yes():
    with (HERE / "ran.log").open("a") as ran:
        ran.write("x")
    return (HERE / "art" / "answer.txt").read_text() == "yes"

def test_a(): assert yes()
def test_b(): assert yes()
def test_c(): assert yes() or True
@pytest.mark.slow
def test_d(): assert yes()
@pytest.mark.slow
def test_e(): assert yes()
"""


def plain(root: Path, *options: str, **variables: str) -> int:
    """The exit status of a plain run."""
    command = [sys.executable, "-m", "pytest", "-q", *options]
    env = {**environment(), **variables}
    done = subprocess.run(command, cwd=root, capture_output=True, env=env, check=False)
    return done.returncode


def test_cases_are_what_hooks_and_options_leave(pytester: pytest.Pytester) -> None:
    files = {
        "art/answer.txt": "no",
        "conftest.py": HOOKS,
        "test_pick.py": CHOSEN,
    }
    root = make_odd(pytester.path, files, [{"answer.txt": "yes"}])
    assert plain(root, "-p", "no:xdist") == 1
    cache = root / ".pytest_cache" / "v" / "cache" / "lastfailed"
    known = cache.read_bytes()
    assert b"test_a" in known

    done = run_odd(root, "-n", "1")
    assert done.outcomes() == {"test_a": FAILED, "test_b": FAILED, "test_c": PASSED}
    assert done.outcomes(1) == dict.fromkeys(("test_a", "test_b", "test_c"), PASSED)
    few = run_odd(root, "-n", "0", "test_pick.py::test_b", "test_pick.py::test_c")
    assert few.outcomes() == {"test_b": FAILED, "test_c": PASSED}
    blocked = ("hypothesispytest", "anyio")
    latest = run_odd(root, "-n", "0", "--lf", "-k", "test_a or test_c", blocked=blocked)
    assert "--lf ignored" in latest.output
    assert latest.outcomes() == {"test_a": FAILED, "test_c": PASSED}
    assert cache.read_bytes() == known


SHUFFLER = """
import random

import pytest

def pytest_addoption(parser):
    parser.addoption("--randomly-seed", default="default")

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    seed = config.option.randomly_seed
    random.Random(None if seed == "default" else seed).shuffle(items)

def pytest_runtest_setup(item):
    random.seed(item.config.option.randomly_seed)

def pytest_generate_tests(metafunc):
    if "twice" in metafunc.fixturenames:
        metafunc.parametrize("twice", [0, 1], ids=["1-2", "2-2"])

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    from _pytest.runner import runtestprotocol
    for attempt in range(3):
        reports = runtestprotocol(item, nextitem=nextitem, log=False)
        if not any(report.failed for report in reports):
            break
    for report in reports:
        item.ihook.pytest_runtest_logreport(report=report)
    return True
"""
SHUFFLED = """
import random
from pathlib import Path

HERE = Path(__file__).parent
STATE = []

def test_leaves_state(): STATE.append(1)
def test_needs_state(): assert STATE
def test_draw():
    with (HERE / "draws.log").open("a") as draws:
        draws.write(f"{random.random()}\\n")
def test_twice(twice): assert floor() > 0.5
def test_floor(): assert floor() > 0.5

def floor():
    with (HERE / "ran.log").open("a") as ran:
        ran.write("x")
    return float((HERE / "art" / "floor.txt").read_text())
"""


def test_plugins_that_shuffle_repeat_and_rerun_change_nothing_between_candidates(
    pytester: pytest.Pytester,
) -> None:
    files = {
        "art/floor.txt": "0.1",
        "shuffler.py": SHUFFLER,
        "test_shuffled.py": SHUFFLED,
    }
    edits = [{"floor.txt": text} for text in ("0.9", "0.8", "0.2")]
    ini = "addopts = -p shuffler\n"
    root = make_odd(pytester.path, files, edits, ini=ini, seed=23)
    done = run_odd(root, "-n", "2", variables={"PYTHONPATH": str(root)})
    assert "every rollout has --randomly-seed=23" in done.output
    by_floor = ("test_twice[1-2]", "test_twice[2-2]", "test_floor")
    alone = {"test_leaves_state": PASSED, "test_needs_state": FAILED}
    assert done.outcomes() | alone == done.outcomes()
    for number, outcome in ((1, PASSED), (2, PASSED), (3, FAILED)):
        seen = done.outcomes(number)
        assert {name: seen[name] for name in by_floor} == dict.fromkeys(
            by_floor, outcome
        )
    draws = (root / "draws.log").read_text().split()
    assert len(draws) >= 2
    assert len(set(draws)) == 1
    # each rollout ran once, however often the plugin would try
    charged = [
        row
        for row in done.records("rollout")
        if "floor" in row["case"] or "twice" in row["case"]
    ]
    assert len((root / "ran.log").read_text()) == len(charged)


def test_options_of_the_project_for_xdist_are_settled(
    pytester: pytest.Pytester,
) -> None:
    files = {"art/answer.txt": "no", "test_pick.py": CHOSEN, "conftest.py": HOOKS}
    ini = "addopts = -n 3 --dist loadfile -x -rA --tb=long\n"
    root = make_odd(pytester.path, files, [{"answer.txt": "yes"}], ini=ini)
    done = run_odd(root, "-n", "1")
    assert "1/1 worker" in done.output
    assert done.outcomes() == {"test_a": FAILED, "test_b": FAILED, "test_c": PASSED}
    assert set(done.outcomes(1).values()) == {PASSED}

    refused = run_odd(root, "-p", "no:xdist", status=4)
    assert "unrecognized arguments" in refused.output  # as plain pytest has it
    (root / "pytest.ini").write_text("[pytest]\n")
    without = run_odd(root, "-p", "no:xdist")
    assert "xdist is not loaded, so rollouts run as with -n 0" in without.output
    assert without.outcomes(1) == done.outcomes(1)


TONE = """
import pytest

@pytest.fixture
def tone(request):
    return {name!r} + request.config.getoption("--tone")
"""
SAME = """
from pathlib import Path

def test_tone(tone): assert tone == {name!r} + "plain"
def test_text(pytestconfig):
    text = (pytestconfig.rootpath / "art" / "text.txt").read_text()
    assert text == "good"
"""
TONES = """
def pytest_addoption(parser):
    parser.addoption("--tone", default="plain")
"""


def test_start_from_anywhere_finds_the_same_cases(pytester: pytest.Pytester) -> None:
    root = pytester.path / "project"
    files = {
        "art/text.txt": "bad",
        "conftest.py": TONES,
        **{
            f"sub/{name}/{file}": text.format(name=name)
            for name in ("one", "two")
            for file, text in (("conftest.py", TONE), ("test_same.py", SAME))
        },
    }
    ini = "addopts = --import-mode=importlib\npythonpath = .\n"
    make_odd(root, files, [{"text.txt": "good"}], ini=ini)
    starts = (
        (root, ("sub",)),
        (root / "sub", ("-c", "../pytest.ini", "--rootdir", "..")),
        (root.parent, ("project/sub",)),
    )
    wanted = {
        f"sub/{folder}/test_same.py::{name}"
        for folder in ("one", "two")
        for name in ("test_tone", "test_text")
    }
    for folder, options in starts:
        junit = f"--junitxml={folder.name}.xml"
        done = run_odd(root, "-n", "0", junit, *options, cwd=folder)
        assert {row["case"] for row in done.rollouts(0)} == wanted, folder
        assert {row["outcome"] for row in done.rollouts(1)} == {PASSED}
        assert (folder / f"{folder.name}.xml").exists()


NAMED = """
from pathlib import Path

def test_limits_are_there(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("limits")
def test_shuffler_is_not(pytestconfig):
    assert not pytestconfig.pluginmanager.hasplugin("shuffler")
def test_word():
    assert (Path(__file__).parent / "art" / "word.txt").read_text() == "right"
"""


@pytest.mark.parametrize("how", ["by-environment", "by-name", "by-conftest"])
def test_plugins_are_the_same_in_every_process(
    pytester: pytest.Pytester, how: str
) -> None:
    files = {
        "art/word.txt": "wrong",
        "limits.py": "",
        "shuffler.py": "",
        "test_named.py": NAMED,
    }
    root = make_odd(
        pytester.path, files, [{"word.txt": "right"}], ini="addopts = -p no:shuffler\n"
    )
    paths = {"PYTHONPATH": str(root)}
    options = ["-n", "1"]
    if how == "by-environment":
        paths |= {"PYTEST_PLUGINS": "limits,shuffler"}
    else:
        paths |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        options += ["-p", "xdist.plugin", "-p", "limits"]
    if how == "by-name":
        options += ["-p", "evo"]
    if how == "by-conftest":
        source = 'pytest_plugins = ["pytest_evo.plugin.entry"]\n'
        (root / "conftest.py").write_text(source)
    done = run_odd(root, *options, variables=paths)
    names = ("test_limits_are_there", "test_shuffler_is_not")
    start = dict.fromkeys(names, PASSED) | {"test_word": FAILED}
    assert done.outcomes() == start
    assert done.outcomes(1) == start | {"test_word": PASSED}


def test_blocked_plugin_leaves_the_project_as_it_was(pytester: pytest.Pytester) -> None:
    files = {"art/answer.txt": "no", "test_pick.py": CHOSEN, "conftest.py": HOOKS}
    root = make_odd(pytester.path, files, [{"answer.txt": "yes"}])
    strict = ("--strict-config", "--strict-markers", "-p", "no:xdist")
    assert plain(root, "-p", "no:evo", *strict) == 1
    assert not (root / ".evo").exists()
    refused = run_odd(root, "-p", "no:evo", status=4)
    assert "--evolve" in refused.output
    twice = run_odd(root, "-p", "evo", "-n", "0")
    assert twice.outcomes() == {"test_a": FAILED, "test_b": FAILED, "test_c": PASSED}


STRICT = """
import os
import threading
import warnings
from pathlib import Path

import pytest

def text():
    return (Path(__file__).parent / "art" / "mood.txt").read_text()

def test_warns():
    if text() != "calm":
        warnings.warn("loud", UserWarning)

def test_quiet(): assert text()

@pytest.mark.xfail(reason="not yet")
def test_must_fail(): assert text() == "loudest"

def test_forks_itself():
    process = os.fork()
    if not process:
        os._exit(0)
    os.waitpid(process, 0)
    assert text()

def test_is_started_with_filters():
    import subprocess, sys
    code = "import warnings; warnings.warn('x')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == 1
"""


def test_strict_projects_meet_no_warning_of_ours(pytester: pytest.Pytester) -> None:
    ini = "addopts = --strict-markers --strict-config -W error\nxfail_strict = true\n"
    ini += "filterwarnings = error\n"
    files = {"art/mood.txt": "loud", "test_strict.py": STRICT}
    root = make_odd(pytester.path, files, [{"mood.txt": "calm"}], ini=ini)
    done = run_odd(root, "-n", "1", variables={"PYTHONWARNINGS": "error"})
    start = {
        "test_warns": FAILED,
        "test_quiet": PASSED,
        "test_must_fail": FAILED,  # as expected
        "test_forks_itself": PASSED,
        "test_is_started_with_filters": PASSED,
    }
    assert done.outcomes() == start
    assert done.outcomes(1) == start | {"test_warns": PASSED}
    assert "Warning" not in done.output


SIGNS = """
import sign

def test_positive(): assert sign.of(4) == 1
def test_zero(): assert sign.of(0) == 0
def test_negative(): assert sign.of(-4) == -1
"""


def test_coverage_of_the_project_is_neither_lost_nor_made_by_candidates(
    pytester: pytest.Pytester,
) -> None:
    pytest.importorskip("pytest_cov")
    files = {
        "art/sign.py": "def of(n):\n    return 1 if n > 0 else -1\n",
        "test_sign.py": SIGNS,
    }
    edit = {"sign.py": "def of(n):\n    return (n > 0) - (n < 0)\n"}
    ini = "pythonpath = art\naddopts = --cov=art --cov-fail-under=100\n"
    root = make_odd(pytester.path, files, [edit], ini=ini)
    assert plain(root, "-p", "no:xdist") == 1
    before = (root / ".coverage").read_bytes()
    done = run_odd(root, "-n", "1")
    assert "--cov-fail-under ignored" in done.output
    assert done.outcomes()["test_zero"] == FAILED
    assert set(done.outcomes(1).values()) == {PASSED}
    assert [path.name for path in root.glob(".coverage*")] == [".coverage"]
    assert (root / ".coverage").read_bytes() == before


GIVEN = """
import json
import time

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

import clamp

@settings(derandomize=False)
@given(st.integers())
def test_in_range(n): assert 0 <= clamp.to_ten(n) <= 10

@settings(deadline=20)
@given(st.just(1))
def test_deadline(n): time.sleep(0.05)

def test_a_patches(monkeypatch):
    monkeypatch.setattr(json, "dumps", lambda value: "patched")
    assert json.dumps(1) == "patched"

def test_b_is_not_patched(): assert json.dumps(1) == "1"
"""


def test_generated_examples_of_one_candidate_reach_no_other(
    pytester: pytest.Pytester,
) -> None:
    files = {
        "art/clamp.py": "def to_ten(n):\n    return min(n, 10)\n",
        "test_given.py": GIVEN,
    }
    edit = {"clamp.py": "def to_ten(n):\n    return max(0, min(n, 10))\n"}
    root = make_odd(pytester.path, files, [edit], ini="pythonpath = art\n")
    done = run_odd(root, "-n", "1", blocked=("anyio",))
    steady = {
        "test_deadline": FAILED,
        "test_a_patches": PASSED,
        "test_b_is_not_patched": PASSED,
    }
    assert done.outcomes() == steady | {"test_in_range": FAILED}
    assert done.outcomes(1) == steady | {"test_in_range": PASSED}
    assert "n=-1" in done.told("test_in_range")
    assert "DeadlineExceeded" in done.told("test_deadline", 1)
    assert not (root / ".hypothesis" / "examples").exists()
    assert [path.name for path in (root / "art").glob("[!_]*")] == ["clamp.py"]
