"""Whole runs of suites whose output is huge, hostile, or where it does not belong."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from evolve_project import run_directory
from odd_project import make_odd
from odd_project import run_odd

PASSED, FAILED = "passed", "failed"
STREAMS = r"""
import ctypes
import logging
import os
import subprocess
import sys
from pathlib import Path

def ready(): return (Path(__file__).parent / "art" / "ready.txt").read_text() == "yes"

def test_writes_by_all_means():
    print("by print")
    sys.stderr.write("by stderr\n")
    os.write(1, b"by descriptor 1\n")
    os.write(2, b"by descriptor 2\n")
    sys.__stdout__.write("by the first stdout\n")
    sys.__stdout__.flush()
    subprocess.run(["echo", "by a process"], check=True)
    logging.getLogger("odd").warning("by log")
    assert ready()

def test_reads_nothing():
    assert os.read(0, 10) == b""
    try:
        assert sys.stdin.read(1) == ""
    except OSError:
        pass  # pytest's own stand-in refuses
    subprocess.run(["cat"], check=True)

def test_closes_the_output():
    os.close(1)
    os.close(2)
    assert ready()

def test_falls():
    ctypes.string_at(0)

def test_is_quiet(): assert ready()
"""
HOSTILE = r"""
import os
import sys
import pytest

from test_streams import ready

def test_controls():
    print("".join(map(chr, range(32))) + "\x7f\x85\u2028\u2029\rgone")
    assert ready(), "".join(map(chr, range(32)))

def test_surrogates(): assert ready(), "\ud83d and \udc80"
def test_no_characters(): assert ready(), "\ufffe \uffff ]]> & <b> \U0001f419"

def test_bytes():
    os.write(1, b"\xff\xc3 \xed\xa0\x80")
    assert ready()

def test_terminal():
    print("\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]8;;http://localhost\x07link\x1b]8;;\x07")
    sys.stderr.write("\x1bc\x1b[?1049h")
    assert ready(), "\x1b[2J cleared"

class Silent(Exception):
    def __str__(self): raise RuntimeError("no words")
    __repr__ = __str__

def test_without_words():
    if not ready():
        raise Silent
"""


@pytest.mark.parametrize("options", [("-n", "1"), ("-n", "0", "-s")])
def test_output_of_all_kinds_is_kept_and_harms_nothing(
    pytester: pytest.Pytester, options: tuple[str, ...]
) -> None:
    files = {
        "art/ready.txt": "no",
        "test_streams.py": STREAMS,
        "test_hostile_words.py": HOSTILE,
    }
    ini = "log_cli = true\nlog_level = INFO\npythonpath = .\n"
    root = make_odd(pytester.path, files, [{"ready.txt": "yes"}], ini=ini)
    done = run_odd(root, *options)
    start = done.outcomes()
    assert start == {
        **dict.fromkeys(start, FAILED),
        "test_reads_nothing": PASSED,
        "test_falls": "crashed",
    }
    assert set(done.outcomes(1).values()) == {PASSED}
    assert len(start) == len(done.junit()) == 11
    said = done.told("test_writes_by_all_means")
    means = ("print", "stderr", "descriptor 1", "descriptor 2", "the first stdout")
    for mean in (*means, "a process", "log"):
        assert f"by {mean}" in said, mean
    assert "by print" not in done.told("test_is_quiet")
    assert "Segmentation fault" in done.told("test_falls")
    check_texts(root, done.output)
    again = run_odd(root, "-n", "0", "--evo-resume=last")
    assert again.records("rollout") == done.records("rollout")


def check_texts(root: Path, shown: str) -> None:
    """What is stored is whole for its readers; nothing acts on the terminal."""
    assert "\x1b" not in shown
    assert "\x07" not in shown
    octopus = "\U0001f419"
    reports = [path.read_text("utf-8") for path in root.rglob("*.xml")]
    assert any(octopus in text for text in reports)
    for line in (run_directory(root) / "journal.jsonl").read_bytes().split(b"\n")[:-1]:
        json.loads(line.decode("utf-8"))


HUGE = """
import sys
from pathlib import Path

MANY = 100_000_000

def ready(): return (Path(__file__).parent / "art" / "ready.txt").read_text() == "yes"

def test_many_lines():
    block = ("x" * 99 + "\\n") * 100_000
    for _ in range(MANY // len(block)):
        sys.stdout.write(block)
    assert ready(), "the end of many lines"

def test_long_message(): assert ready(), "begin" + "z" * MANY + "finish"
def test_modest(): assert ready()
"""
MEASURES = """
from pathlib import Path

def pytest_unconfigure(config):
    name = getattr(config, "workerinput", {}).get("workerid", "controller")
    # not ru_maxrss, which takes over the size of the process that started this one
    status = Path("/proc/self/status").read_text()
    peak = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    with (Path(__file__).parent / "peaks.log").open("a") as peaks:
        peaks.write(f"{name} {peak}\\n")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory is measured in kB")
def test_output_of_100_mb_is_cut_before_it_costs(pytester: pytest.Pytester) -> None:
    files = {
        "art/ready.txt": "no",
        "conftest.py": MEASURES,
        "test_huge.py": HUGE,
    }
    root = make_odd(pytester.path, files, [{"ready.txt": "no!"}], timeout=60)
    done = run_odd(root, "-n", "1")
    assert list(done.outcomes().values()) == [FAILED] * 3
    assert "the end of many lines" in done.told("test_many_lines")
    assert "finish" in done.told("test_long_message")
    sizes = [path.stat().st_size for path in (root / ".evo").rglob("*.*")]
    assert max(sizes) < 2_000_000
    for case in done.junit().values():
        for element in case.iter():
            assert all(len(value) < 20_000 for value in element.attrib.values())
    peaks = dict(line.split() for line in (root / "peaks.log").read_text().splitlines())
    assert set(peaks) == {"controller", "gw0"}
    assert all(int(peak) < 400 for peak in peaks.values()), peaks
