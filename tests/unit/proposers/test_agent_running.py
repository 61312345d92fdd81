"""Commands that do what they want, run to their end."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from pathlib import Path

import pytest

from pytest_evo.proposers.agent.running import run

SPAWN = """
import os, subprocess, sys, time
code = "import os, time; open({path!r}, 'w').write(str(os.getpid())); time.sleep(600)"
for _ in range(2):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", code])
        os._exit(0)
deadline = time.monotonic() + 20
while not os.path.exists({path!r}) and time.monotonic() < deadline:
    time.sleep(0.01)
"""


def run_python(tmp_path, code, **options):
    lines = []
    ended = run(
        [sys.executable, "-c", code],
        folder=tmp_path,
        environment=options.pop("environment", {"PATH": os.environ["PATH"]}),
        stdin=options.pop("stdin", None),
        seconds=options.pop("seconds", 20),
        heard=lambda line, aside: lines.append((line, aside)),
        **options,
    )
    return ended, lines


def is_alive(pid):
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def test_status_and_lines_of_both_streams_come_back(tmp_path):
    code = "import sys; print('a'); print('b', file=sys.stderr); print('c', end='')"
    ended, lines = run_python(tmp_path, f"{code}; sys.exit(3)")
    assert (ended.how, ended.status, ended.by_signal) == ("itself", 3, False)
    assert sorted(lines) == [("a", False), ("b", True), ("c", False)]


def test_signal_is_told(tmp_path):
    ended, _ = run_python(tmp_path, "import os; os.kill(os.getpid(), 9)")
    assert ended.by_signal
    assert ended.status == -9


def test_program_that_is_not_there_is_told(tmp_path):
    ended = run(
        [str(tmp_path / "nothing")],
        folder=tmp_path,
        environment={},
        stdin=None,
        seconds=5,
        heard=lambda line, aside: None,
    )
    assert ended.how == "unborn"
    assert "No such file" in ended.error


def test_time_limit_ends_what_ignores_signals(tmp_path):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    began = time.monotonic()
    ended, _ = run_python(tmp_path, code, seconds=0.7)
    assert ended.how == "timeout"
    assert time.monotonic() - began < 10


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_processes_that_left_the_session_end_with_the_command(tmp_path):
    path = tmp_path / "pid"
    ended, _ = run_python(tmp_path, SPAWN.format(path=str(path)))
    assert ended.how == "itself"
    assert ended.left >= 1
    assert not is_alive(int(path.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="needs a subreaper")
def test_processes_that_left_the_session_end_with_the_time_limit(tmp_path):
    path = tmp_path / "pid"
    code = SPAWN.format(path=str(path)) + "time.sleep(600)"
    ended, _ = run_python(tmp_path, code, seconds=2.5)
    assert ended.how == "timeout"
    assert not is_alive(int(path.read_text()))


def test_end_does_not_wait_for_who_holds_the_pipes(tmp_path):
    code = "import os, time; os.fork() or time.sleep(600)"
    began = time.monotonic()
    run_python(tmp_path, code)
    assert time.monotonic() - began < 10


def test_it_can_be_stopped(tmp_path):
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    ended, _ = run_python(tmp_path, "import time; time.sleep(600)", stop=stop.is_set)
    timer.join()
    assert ended.how == "stopped"


def test_there_is_no_input_and_no_terminal(tmp_path):
    code = """
import sys
print(repr(sys.stdin.read()))
try:
    open("/dev/tty")
except OSError:
    print("no terminal")
"""
    _, lines = run_python(tmp_path, code)
    assert [line for line, _ in lines] == ["''", "no terminal"]


def test_input_is_a_file(tmp_path):
    (tmp_path / "in").write_text("hello\nthere")
    code = "import sys; print(len(sys.stdin.read()))"
    _, lines = run_python(tmp_path, code, stdin=tmp_path / "in")
    assert lines == [("11", False)]


def test_environment_is_what_is_given_and_no_descriptor_is_left_open(tmp_path):
    code = "import os; print(*{*os.environ} - {'LC_CTYPE'}, len(os.listdir('/dev/fd')))"
    _, lines = run_python(tmp_path, code, environment={"ONLY": "this"})
    assert lines == [("ONLY 4", False)]  # three, and the folder that is listed


def test_flood_of_output_is_read_to_its_end(tmp_path):
    code = """
import os
os.write(1, b"x" * 20_000_000 + b"\\n")
for _ in range(200):
    os.write(1, b"thinking about it, thinking about it\\n" * 2000)
print("last")
"""
    ended, lines = run_python(tmp_path, code)
    assert ended.status == 0
    assert len(lines) == 400_002
    assert len(lines[0][0]) == 8_000_000
    assert lines[-1] == ("last", False)


def test_bytes_that_are_no_text_are_read(tmp_path):
    _, lines = run_python(tmp_path, r"import os; os.write(1, b'\xff\xfe\x00ok\r\n')")
    assert lines[0][0].endswith("\x00ok")


@pytest.mark.skipif(sys.platform != "linux", reason="dies with its parent there")
def test_command_ends_when_whoever_wants_it_is_gone(tmp_path):
    path = tmp_path / "pid"
    code = f"import os, time; open({str(path)!r}, 'w').write(str(os.getpid()))"
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException):
            run_python(tmp_path, f"{code}; time.sleep(600)")
        os._exit(0)
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    while is_alive(int(path.read_text())):
        assert time.monotonic() < deadline
        time.sleep(0.01)
