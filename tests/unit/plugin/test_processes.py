from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_evo.plugin import processes

pytestmark = pytest.mark.skipif(not processes.LINUX, reason="needs /proc")
NAP = "import time; time.sleep(100)"


def alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def nap():
    started = []

    def start(code=NAP, **options):
        started.append(subprocess.Popen([sys.executable, "-c", code], **options))
        return started[-1]

    yield start
    for process in started:
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()


def test_children_are_found(nap):
    process = nap()
    assert process.pid in processes.children(os.getpid())


def test_children_are_found_without_kernel_lists(nap, monkeypatch):
    process = nap()

    def refuse(path):
        raise FileNotFoundError(path)

    monkeypatch.setattr(processes, "_parent", lambda pid: {process.pid: 7}.get(pid, 1))
    monkeypatch.setattr(processes, "_read", refuse)
    monkeypatch.setattr(processes.os, "listdir", lambda path: ["7"])
    assert processes.children(7) == {process.pid}


def test_tree_dies_with_sessions_of_its_own(nap, tmp_path):
    note = tmp_path / "pid"
    code = (
        "import subprocess, sys, time\n"
        f"pid = subprocess.Popen([sys.executable, '-c', '{NAP}'],"
        " start_new_session=True).pid\n"
        f"open({str(note)!r}, 'w').write(str(pid) + '.')\n"
        "time.sleep(100)"
    )
    process = nap(code, start_new_session=True)
    while not note.exists() or not note.read_text().endswith("."):
        time.sleep(0.01)
    grandchild = int(note.read_text()[:-1])
    assert grandchild in processes.descendants(process.pid)
    processes.kill_tree(process.pid)
    process.wait(10)
    limit = time.monotonic() + 5
    while alive(grandchild) and time.monotonic() < limit:
        time.sleep(0.01)
    assert not alive(grandchild)


def test_belonging_is_told_by_session_and_by_environment(nap):
    stranger = nap(start_new_session=True)
    marked = nap(env={**os.environ, "X": "token-of-mine"}, start_new_session=True)
    limit = time.monotonic() + 5  # until it has executed its program
    while time.monotonic() < limit and not processes.belongs(
        marked.pid, (), b"token-of-mine"
    ):
        time.sleep(0.01)
    assert processes.belongs(marked.pid, (), b"token-of-mine")
    assert not processes.belongs(stranger.pid, (), b"token-of-mine")
    assert processes.belongs(stranger.pid, (stranger.pid,), b"token-of-mine")
    processes.sweep_leaders((), b"token-of-mine")
    assert marked.wait(5) == -9
    assert stranger.poll() is None
