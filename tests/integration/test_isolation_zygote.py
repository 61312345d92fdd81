"""The parent process of fresh rollouts: what it loads, how it and its children end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_evo.errors import EvoError
from pytest_evo.plugin.frames import frame_pair
from pytest_evo.plugin.isolation.fresh import FreshTask
from pytest_evo.plugin.isolation.fresh import Zygote
from pytest_evo.plugin.isolation.fresh import ZygoteSpec
from pytest_evo.plugin.isolation.installed import installed_prefixes
from pytest_evo.plugin.isolation.installed import is_installed

SUITE = """
import sys
import time

LOADED = set(sys.modules)

def test_loaded():
    print("json" in LOADED, "wave" in LOADED, "project_mod" in LOADED)

def test_path():
    import project_mod
    print(sys.argv, project_mod.__file__)

def test_hangs():
    time.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for name in ("artifact", "candidate"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "prompt.txt").write_text(name)
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "project_mod.py").write_text("")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    return tmp_path


def spec_for(project: Path, *modules: str) -> ZygoteSpec:
    return ZygoteSpec(
        modules=modules,
        rewritten=(),
        args=("-p", "no:cacheprovider"),
        argv=("pytest", "-p", "no:cacheprovider"),
        leading_path=(str(project),),
        invocation_dir=str(project),
        rootdir=str(project),
        inifile=str(project / "pytest.ini"),
    )


def task_for(project: Path, *names: str) -> FreshTask:
    return FreshTask(
        runs=tuple((f"test_it.py::{name}", 0) for name in names),
        candidate=str(project / "candidate"),
        artifact=str(project / "artifact"),
        project=str(project),
        basetemp=str(project / "tmp"),
        log=str(project / "log"),
    )


@pytest.fixture
def zygote(project: Path) -> Iterator[Zygote]:
    # a module that does not exist, and one of the project, are no reason to fail
    names = ("wave", "no_such_module", "project_mod")
    started = Zygote.start(spec_for(project, *names))
    yield started
    started.close()


def run(zygote: Zygote, task: FreshTask) -> dict[str, str]:
    reader, descriptor = frame_pair()
    pid = zygote.fork(task, descriptor)
    os.close(descriptor)
    printed = {}
    ended = False
    while not ended:
        select.select([reader, zygote], [], [], 30)
        for message in reader.messages():
            if message.kind == "rollout":
                phases = json.loads(message.payload)["phases"]
                printed[message.case.partition("::")[2]] = str(phases)
        ended = pid in [one.pid for one in zygote.exits()]
    reader.close()
    return printed


def test_installed_modules_are_loaded_and_the_projects_are_not(
    zygote: Zygote, project: Path
) -> None:
    printed = run(zygote, task_for(project, "test_loaded", "test_path"))
    assert "True True False" in printed["test_loaded"]
    assert "['pytest', '-p', 'no:cacheprovider']" in printed["test_path"].replace(
        "\\", ""
    )
    assert str(project / "project_mod.py") in printed["test_path"]


def test_close_kills_children_that_still_run(zygote: Zygote, project: Path) -> None:
    reader, descriptor = frame_pair()
    pid = zygote.fork(task_for(project, "test_hangs"), descriptor)
    os.close(descriptor)
    wait_for_start(reader)
    zygote.close()
    assert is_gone(pid)
    reader.close()


def test_killed_child_is_told_with_its_status(zygote: Zygote, project: Path) -> None:
    reader, descriptor = frame_pair()
    pid = zygote.fork(task_for(project, "test_hangs"), descriptor)
    os.close(descriptor)
    wait_for_start(reader)
    os.killpg(pid, signal.SIGKILL)
    select.select([zygote], [], [], 30)
    (end,) = zygote.exits()
    assert end.pid == pid
    assert os.WTERMSIG(end.status) == signal.SIGKILL
    assert zygote.exits() == []
    reader.close()


def test_children_die_with_a_killed_zygote(zygote: Zygote, project: Path) -> None:
    reader, descriptor = frame_pair()
    pid = zygote.fork(task_for(project, "test_hangs"), descriptor)
    wait_for_start(reader)
    os.kill(zygote.pid, signal.SIGKILL)
    with pytest.raises(EvoError, match="gone"):
        zygote.fork(task_for(project, "test_hangs"), descriptor)
    assert zygote.exits() == []
    if sys.platform == "linux":
        assert is_gone(pid)
    os.close(descriptor)
    reader.close()


def test_zygote_that_cannot_start_says_so(project: Path) -> None:
    spec = spec_for(project / "missing")
    with pytest.raises(EvoError, match=r"did not start.*missing"):
        Zygote.start(spec)


def test_zygote_that_gets_stuck_is_ended(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = project / "slow"
    site.mkdir()
    (site / "slow_mod.py").write_text("import time\ntime.sleep(600)\n")
    monkeypatch.setenv("PYTHONPATH", str(site))
    with pytest.raises(EvoError, match="no answer within"):
        Zygote.start(spec_for(project / "artifact", "slow_mod"), timeout=1.5)


def test_only_installed_modules_are_named() -> None:
    prefixes = installed_prefixes()
    assert is_installed("json", sys.modules["json"], prefixes)
    assert is_installed("pytest", sys.modules["pytest"], prefixes)
    assert is_installed("pytest_evo.errors", sys.modules["pytest_evo.errors"], prefixes)
    here = sys.modules[__name__]
    assert not is_installed(__name__, here, prefixes)
    assert not is_installed("sys", sys, prefixes)
    assert not is_installed("os.path", os.path, prefixes)
    assert not is_installed("__main__", sys.modules["__main__"], prefixes)


def wait_for_start(reader) -> None:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        select.select([reader], [], [], 1)
        if any(message.kind == "started" for message in reader.messages()):
            return
    raise AssertionError("the child did not start its test")


def is_gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX":
                time.sleep(0.02)
                continue
        return True
    return False
