"""Whole runs of suites whose tests hang, die, eat, and leave things behind."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest
from odd_project import make_odd
from odd_project import run_odd

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="processes are found in /proc"
)
PASSED, FAILED = "passed", "failed"
HEAD = """
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent

def ready():
    return (HERE / "art" / "ready.txt").read_text() == "yes"

def count(name):
    with (HERE / "ran.log").open("a") as log:
        log.write(name + "\\n")

@pytest.fixture(autouse=True)
def counted(request):
    count(request.node.name)

NAP = [sys.executable, "-c", "import time; time.sleep(300)", "odd-leftover"]
"""
ENDINGS = """
import ctypes

def test_first(): pass
def test_ready(): assert ready()
def test_quits(): os._exit(0)
def test_quits_badly(): os._exit(7)
def test_killed(): os.kill(os.getpid(), signal.SIGKILL)
def test_terminated(): os.kill(os.getpid(), signal.SIGTERM)
def test_aborts(): os.abort()
def test_reads_nowhere(): ctypes.string_at(1)
def test_other_program(): os.execv("/bin/sh", ["sh", "-c", "exit 0"])
def test_stops_the_session(): pytest.exit("enough", returncode=0)
def test_stops_python(): sys.exit(0)
def test_pressed_a_key(): raise KeyboardInterrupt
def test_group(): os.killpg(0, signal.SIGKILL)
def test_last(): assert ready()

def test_eats_memory():
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (1 << 30, hard))
    eaten = []
    while True:
        eaten.append(bytearray(1 << 26))

def test_goes_too_deep():
    def deeper(n): return deeper(n + 1) + 1
    deeper(0)

def test_opens_everything():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (80, hard))
    kept = [open(os.devnull) for _ in range(200)]

def test_limits_are_the_usual():
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 80
"""


def test_tests_that_end_their_process_cost_only_themselves(
    pytester: pytest.Pytester,
) -> None:
    files = {"art/ready.txt": "no", "test_ends.py": HEAD + ENDINGS}
    root = make_odd(pytester.path, files, [{"ready.txt": "yes"}])
    done = run_odd(root, "-n", "1")
    start = done.outcomes()
    ended = {
        "test_quits": "exit status 0",
        "test_quits_badly": "exit status 7",
        "test_killed": "SIGKILL",
        "test_terminated": "SIGTERM",
        "test_aborts": "SIGABRT",
        "test_reads_nowhere": "SIGSEGV",
        "test_other_program": "exit status 0",
        "test_group": "SIGKILL",
    }
    assert {name for name, outcome in start.items() if outcome == "crashed"} == {*ended}
    for name, how in ended.items():
        assert how in done.told(name), name
    passing = {name for name, outcome in start.items() if outcome == PASSED}
    assert passing == {"test_first", "test_limits_are_the_usual"}
    assert len(start) == 18
    assert set(done.junit()) == set(start)
    assert done.outcomes(1)["test_ready"] == done.outcomes(1)["test_last"] == PASSED
    assert "Interrupted" not in done.output
    ran = (root / "ran.log").read_text().split()
    charged = [row for row in done.records("rollout") if row["outcome"] != "lost"]
    assert len(ran) == len(charged)


HANGS = """
def pytest_limit(seconds):
    # ends the process from a thread, as plugins do where no signal can be used
    def end():
        time.sleep(seconds)
        os._exit(1)
    threading.Thread(target=end, daemon=True).start()

def test_quick(): assert ready()

def test_ignores_the_polite():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(300)

def test_hears_nothing():
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    time.sleep(300)

def test_counts_in_c(): sum(range(10 ** 14))

def test_waits_for_another():
    subprocess.run(NAP, start_new_session=True)

def test_ends_itself():
    pytest_limit(0.2)
    time.sleep(300)

def test_quick_too(): assert ready()
"""


def test_tests_that_hang_are_timeouts_and_nothing_else_is(
    pytester: pytest.Pytester,
) -> None:
    files = {"art/ready.txt": "no", "test_hangs.py": HEAD + HANGS}
    root = make_odd(pytester.path, files, [{"ready.txt": "yes"}], timeout=1)
    began = time.monotonic()
    done = run_odd(root, "-n", "1")
    assert time.monotonic() - began < 60
    hanging = {
        "test_ignores_the_polite": "timeout",
        "test_hears_nothing": "timeout",
        "test_counts_in_c": "timeout",
        "test_waits_for_another": "timeout",
    }
    quick = ("test_quick", "test_quick_too")
    start = {**hanging, "test_ends_itself": "crashed", **dict.fromkeys(quick, FAILED)}
    assert done.outcomes() == start
    assert done.outcomes(1) == dict.fromkeys(quick, PASSED)
    for name in set(hanging) - {"test_hears_nothing"}:  # the last words of others
        assert f"in {name}" in done.told(name)
    assert "exit status 1" in done.told("test_ends_itself")
    assert not processes_named("odd-leftover")


LEFT = """
def test_a_thread_sleeps(): threading.Thread(target=time.sleep, args=(60,)).start()

def test_b_thread_talks():
    def talk():
        while True:
            os.write(1, b"chatter\\n")
            time.sleep(0.005)
    threading.Thread(target=talk, daemon=True).start()

def test_c_child_keeps_the_output(): subprocess.Popen(NAP)

def test_d_grandchild_leaves_the_group():
    code = "import os, sys\\nif os.fork(): os._exit(0)\\nos.setsid()\\n"
    code += "os.execv(sys.executable, " + repr(NAP) + ")"
    subprocess.run([sys.executable, "-c", code])

def test_e_thread_fails_later():
    def fail():
        time.sleep(0.05)
        raise RuntimeError("nobody waited for this")
    threading.Thread(target=fail, daemon=True).start()

def test_f_changes_everything(monkeypatch):
    os.chdir("/")
    os.environ["ODD_LEFT"] = "1"
    sys.path.insert(0, "/odd-left")
    sys.modules["odd_left"] = os
    sys.setrecursionlimit(123456)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    time.sleep(3000)

def test_g_next_one_is_quiet(capfd):
    time.sleep(0.2)
    assert ready()
"""
LATER = (
    HEAD
    + """
def test_in_a_process_of_its_own():
    assert Path.cwd() == HERE
    assert "ODD_LEFT" not in os.environ
    assert "/odd-left" not in sys.path
    assert "odd_left" not in sys.modules
    assert sys.getrecursionlimit() < 123456
    assert time.sleep(0) is None
    assert ready()

# one of them is a train case: where a batch is perfect nothing is proposed
@pytest.mark.parametrize("n", range(2))
def test_never(n): assert False
"""
)


def test_leftovers_of_tests_are_gone_and_reach_no_other_candidate(
    pytester: pytest.Pytester,
) -> None:
    files = {
        "art/ready.txt": "no",
        "test_left.py": HEAD + LEFT,
        "test_later.py": LATER,
    }
    edits = [{"ready.txt": "yes"}, {"ready.txt": "yes", "more.txt": ""}]
    root = make_odd(pytester.path, files, edits)
    began = time.monotonic()
    done = run_odd(root, "-n", "1")
    assert time.monotonic() - began < 60
    never = dict.fromkeys(("test_never[0]", "test_never[1]"), FAILED)
    start = done.outcomes()
    assert never.items() <= start.items()
    by_the_artifact = {"test_g_next_one_is_quiet", "test_in_a_process_of_its_own"}
    assert {name for name, said in start.items() if said == FAILED} == {
        *by_the_artifact,
        *never,
    }
    assert len(start) == 10
    for number in (1, 2):
        assert done.outcomes(number) == dict.fromkeys(start, PASSED) | never
        assert "chatter" not in done.told("test_in_a_process_of_its_own", number)
    assert not processes_named("odd-leftover")


TEMPORARY = """
import socket

@pytest.fixture(scope="session")
def named(tmp_path_factory):
    return tmp_path_factory.mktemp("named", numbered=False)

def test_named(named, tmp_path):
    assert not list(named.iterdir())
    (named / "own.txt").write_text("own")
    (tmp_path / "own.txt").write_text("own")
    time.sleep(0.05)
    assert (named / "own.txt").exists() and (tmp_path / "own.txt").exists()
    with (HERE / "places.log").open("a") as places:
        places.write(f"{tmp_path}\\n")

def test_socket(tmp_path):
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(tmp_path / "socket"))

@pytest.mark.parametrize("long", ["rather-long-" * 25])
def test_long_name(tmp_path, long): assert ready() and tmp_path.is_dir()
"""


def test_temporary_folders_are_each_candidates_own_and_gone(
    pytester: pytest.Pytester,
) -> None:
    files = {"art/ready.txt": "no", "test_temporary.py": HEAD + TEMPORARY}
    edits = [{"ready.txt": "yes", "more.txt": str(n)} for n in range(4)]
    root = make_odd(
        pytester.path, files, edits, slots=2, ini="addopts = --basetemp=base\n"
    )
    done = run_odd(root, "-n", "2")
    for number in range(1, 5):
        assert set(done.outcomes(number).values()) == {PASSED}
    places = (root / "places.log").read_text().split()
    assert len(places) == len(set(places)) >= 5
    assert not [place for place in places if Path(place).exists()]
    assert not [place for place in places if "/art/" in place]


def processes_named(text: str) -> list[str]:
    """Ids of processes whose command line holds a text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in command:
                found.append(entry.name)
    return found


LOCKS = """
import threading
import time

LOCK = threading.Lock()

def hold():
    while True:
        with LOCK:
            time.sleep(0.02)

def pytest_configure(config):
    threading.Thread(target=hold, daemon=True).start()
"""
TAKES = """
from conftest import LOCK
from pathlib import Path

def test_takes_the_lock():
    with LOCK:
        pass

def test_ready():
    assert (Path(__file__).parent / "art" / "ready.txt").read_text() == "yes"
"""


def test_lock_of_a_thread_does_not_stop_the_suite(pytester: pytest.Pytester) -> None:
    files = {
        "art/ready.txt": "no",
        "conftest.py": LOCKS,
        "test_lock.py": TAKES,
    }
    root = make_odd(pytester.path, files, [{"ready.txt": "yes"}], timeout=5)
    done = run_odd(root, "-n", "1")
    assert done.outcomes() == {"test_takes_the_lock": PASSED, "test_ready": FAILED}
    assert set(done.outcomes(1).values()) == {PASSED}
    assert "isolation: fresh" in done.output
