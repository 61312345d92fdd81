from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from pool_project import alive
from pool_project import project

__all__ = ["project"]

TESTS = """
import os, subprocess, sys, time
def note(pid):
    with open(os.environ["PIDS"], "a") as file: file.write(f"{pid}\\n")
def test_long():
    note(os.getppid())
    note(os.getpid())
    nap = [sys.executable, "-c", "import time; time.sleep(300)"]
    note(subprocess.Popen(nap, start_new_session=True).pid)
    end = float(os.environ.get("REST", "300"))
    time.sleep(end)
"""
DRIVE = """
rows = await driver.run("test_long")
return [*rows, {"soft": driver.soft_stops}]
"""


@pytest.fixture
def long(project):
    project.tests(TESTS)
    project.drive(DRIVE)
    project.pids = project.path / "pids"
    return project


def start(project, way, **environment):
    environment["PIDS"] = str(project.pids)
    process = project.start(way, environment=environment)
    wait_for(lambda: project.pids.exists() and len(noted(project)) == 3)
    return process


def noted(project):
    return [int(line) for line in project.pids.read_text().split()]


def wait_for(condition, seconds=40):
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, "waited in vain"
        time.sleep(0.05)


def group(process, number):
    os.killpg(process.pid, number)


@pytest.mark.parametrize("way", ["-n0", "-n1"])
@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_first_signal_to_the_group_is_a_soft_stop(long, way, name):
    process = start(long, way, REST="3", EVO_STATUS="2")
    group(process, getattr(signal, name))
    output, _ = process.communicate(timeout=40)
    assert process.returncode == 2, output
    row, said = long.result()
    assert (row["outcome"], said) == ("passed", {"soft": 1})
    assert not [pid for pid in noted(long) if alive(pid)]


@pytest.mark.parametrize("way", ["-n0", "-n1"])
def test_second_interrupt_ends_at_once_and_leaves_nothing(long, way):
    process = start(long, way)
    group(process, signal.SIGINT)
    time.sleep(0.5)
    group(process, signal.SIGINT)
    began = time.monotonic()
    output, _ = process.communicate(timeout=40)
    assert process.returncode == 2, output
    assert time.monotonic() - began < 15
    wait_for(lambda: not [pid for pid in noted(long) if alive(pid)], 5)


@pytest.mark.parametrize("way", ["-n0", "-n1"])
def test_nothing_outlives_a_killed_controller(long, way):
    process = start(long, way)
    process.kill()
    process.communicate(timeout=40)
    worker, child, nap = noted(long)
    wait_for(lambda: not alive(worker) and not alive(child), 10)
    if way != "-n0":  # without a worker nobody is left to find it
        wait_for(lambda: not alive(nap), 10)
    elif alive(nap):
        os.kill(nap, signal.SIGKILL)


def test_files_of_a_worker_are_gone_after_the_run(long, monkeypatch):
    temporary = Path(long.pytester.mkdir("temporary"))
    process = start(long, "-n1", REST="0", TMPDIR=str(temporary))
    process.communicate(timeout=40)
    assert process.returncode == 0
    assert list(temporary.glob("evo-*")) == []
