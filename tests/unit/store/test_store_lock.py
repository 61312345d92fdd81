from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from datetime import datetime
from datetime import UTC
from pathlib import Path

import pytest

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.store import lock as lock_module
from pytest_evo.store.lock import RunLock

NOW = datetime(2026, 11, 29, 15, 30, tzinfo=UTC)
HOLDER = """\
import datetime, os, pathlib, sys, time
from pytest_evo.store.lock import RunLock
lock = RunLock(pathlib.Path(sys.argv[1]), datetime.datetime.now(datetime.UTC))
lock.acquire()
if "fork" not in sys.argv or os.fork() == 0:  # a fork says it when it has begun
    print("held", flush=True)
    sys.stdout.close()
time.sleep(60)
os._exit(0)
"""


def holder(run_dir: Path, *arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run_dir), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def end(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def test_second_controller_is_refused_by_name(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(RunDirectoryProblem) as caught:
            RunLock(tmp_path, NOW).acquire()
    finally:
        end(process)
    text = str(caught.value)
    assert f"process {process.pid} on host {socket.gethostname()} since 20" in text
    assert tmp_path.name in text
    assert f"kill {process.pid}" in text


def test_death_of_the_holder_frees_the_lock_at_once(tmp_path: Path) -> None:
    process = holder(tmp_path)
    end(process)
    with RunLock(tmp_path, NOW):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_does_not_keep_the_lock(tmp_path: Path) -> None:
    process = holder(tmp_path, "fork")
    try:
        process.kill()
        process.wait()
        with RunLock(tmp_path, NOW):
            pass
    finally:
        end(process)


def test_two_locks_of_one_process_exclude_each_other(tmp_path: Path) -> None:
    with (
        RunLock(tmp_path, NOW),
        pytest.raises(RunDirectoryProblem, match=f"process {os.getpid()}"),
    ):
        RunLock(tmp_path, NOW).acquire()


def test_released_lock_can_be_taken_again(tmp_path: Path) -> None:
    lock = RunLock(tmp_path, NOW)
    for _ in range(2):
        with lock:
            assert json.loads((tmp_path / "lock").read_bytes())["pid"] == os.getpid()
    lock.release()


def test_file_of_a_dead_holder_is_no_lock(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text('{"pid": 1, "host": "x", "since": "y"}')
    with RunLock(tmp_path, NOW):
        pass


def test_holder_that_has_not_said_its_name_is_still_respected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module.time, "sleep", lambda _: None)
    with RunLock(tmp_path, NOW):
        (tmp_path / "lock").write_bytes(b"")
        with pytest.raises(RunDirectoryProblem, match="in use by another controller"):
            RunLock(tmp_path, NOW).acquire()


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOLCK, "cannot be locked.*--evo-run-dir=DIR"),
        (errno.ENOTSUP, "has no locks"),
        (errno.EIO, "cannot write"),
    ],
)
def test_file_system_without_locks_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, says: str
) -> None:
    fcntl = pytest.importorskip("fcntl")

    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)  # as the kernel does
    with pytest.raises(RunDirectoryProblem, match=says):
        RunLock(tmp_path, NOW).acquire()


def test_place_that_cannot_hold_a_lock_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryProblem, match="cannot write"):
        RunLock(tmp_path / "missing", NOW).acquire()
