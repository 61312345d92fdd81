"""Whole runs of suites whose items, output and endings are odd."""

from __future__ import annotations

import json
import os
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from evolve_project import environment
from evolve_project import evolve_command
from evolve_project import records
from evolve_project import run_directory

SETTINGS = """
artifact = "art"
scripted = "proposals.py"
noise = "none"
batch = 100
batches = "epoch"
validation = "full"
survivors = "keep-all"
acceptance = "equal-or-better"
"""
PROPOSALS = """
def propose(request):
    (request.workspace / "artifact" / "level.txt").write_text("9")
    return "higher"
"""
CONFTEST = """
import pytest

def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".words":
        return Words.from_parent(parent, path=file_path)

class Words(pytest.File):
    def collect(self):
        for line in self.path.read_text().splitlines():
            name, least = line.split()
            yield Word.from_parent(self, name=name, least=int(least))

class Word(pytest.Item):
    def __init__(self, *, least, **kwargs):
        super().__init__(**kwargs)
        self.least = least

    def runtest(self):
        level = self.config.rootpath / "art" / "level.txt"
        assert int(level.read_text()) >= self.least

    def repr_failure(self, excinfo):
        return f"plain words about {self.name}"

    def reportinfo(self):
        return self.path, None, self.name
"""
TESTS = """
import os
import sys
import unittest
from pathlib import Path

import pytest

LEVEL = Path(__file__).parent / "art" / "level.txt"

def level():
    return int(LEVEL.read_text())

class TestOld(unittest.TestCase):
    def test_each(self):
        for least in (1, 5, 0):
            with self.subTest(least=least):
                self.assertGreaterEqual(level(), least)

    @unittest.expectedFailure
    def test_known(self):
        self.fail("known")

@pytest.mark.parametrize("n", [1], ids=["a::b]/../c[\\x1b\\ud800 " + "x" * 300])
def test_id(n):
    assert level() > 5

@pytest.mark.parametrize("n", [1], ids=["a::b]/../c[\\x1b\\ud800 " + "x" * 300 + "y"])
def test_other_id(n):
    assert level() > 0

def test_output(capfd):
    os.write(1, b"\\xff\\x00\\x1b[2J]]>\\xe2\\x80\\xa8")
    print("\\ud800\\ufffe", file=sys.stderr)
    assert level() > 5, "\\x00\\x1b]0;title\\x07 ]]> \\ud800"

def test_much_output():
    print("start" + "m" * 3_000_000 + "end")
    assert level() > 5

def test_secret():
    print(dict(os.environ))
    assert level() > 5, os.environ["DEMO_API_KEY"]

def test_skipped():
    pytest.skip("not here")

def test_ends_the_session():
    pytest.exit("done", returncode=0)

def test_interrupts():
    raise KeyboardInterrupt

def test_leaves():
    os._exit(0)

def test_leaves_a_process():
    import subprocess
    sleeper = [sys.executable, "-c", "import time; time.sleep(600)", "left-behind"]
    subprocess.Popen(sleeper, start_new_session=True)
    assert level() > 5
"""
SECRET = "not-for-anybodys-eyes-71"


def write_project(root: Path, ini: str = "") -> None:
    """A suite of odd items over a number in a file."""
    (root / "art").mkdir()
    (root / "art" / "level.txt").write_text("1")
    (root / "pytest_evo.toml").write_text(SETTINGS)
    (root / "proposals.py").write_text(PROPOSALS)
    (root / "pytest.ini").write_text(f"[pytest]\n{ini}")
    (root / "conftest.py").write_text(CONFTEST)
    (root / "test_odd.py").write_text(TESTS)
    (root / "some.words").write_text("low 1\nhigh 5\n")


def run(
    root: Path, *options: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """One iteration of a run with further environment variables."""
    return subprocess.run(
        evolve_command("--budget-iterations=1", *options),
        cwd=root,
        capture_output=True,
        text=True,
        timeout=120,
        env={**environment(), "DEMO_API_KEY": SECRET, **variables},
        check=False,
    )


def vector(root: Path, candidate: str) -> dict[str, str]:
    """The last outcome of each case; long parameters are left out."""
    return {
        row["case"].rpartition("::")[2].partition("[")[0]
        if "test_id" not in row["case"] and "other_id" not in row["case"]
        else row["case"].split("::")[1].partition("[")[0]: row["outcome"]
        for row in records(root, "rollout")
        if row["candidate"] == candidate
    }


PASSING = ("test_other_id", "low")
BY_LEVEL = (
    "test_each",
    "test_id",
    "test_output",
    "test_much_output",
    "test_secret",
    "test_leaves_a_process",
    "high",
)
ALWAYS_FAILING = ("test_known", "test_ends_the_session", "test_interrupts")


def processes_named(text: str) -> list[str]:
    """Ids of processes whose command line holds a text."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if text.encode() in command and int(entry.name) != os.getpid():
                found.append(entry.name)
    return found


@pytest.mark.parametrize("workers", ["0", "2"])
def test_odd_items_have_the_outcomes_of_plain_pytest(
    pytester: pytest.Pytester, workers: str
) -> None:
    root = pytester.path
    write_project(root, "addopts = -rA -x --maxfail=1 --showlocals\n")
    done = run(root, "-n", workers)
    assert done.returncode == 0, done.stdout + done.stderr
    start = vector(root, "c0000")
    assert start == {
        **dict.fromkeys(PASSING, "passed"),
        **dict.fromkeys(BY_LEVEL, "failed"),
        **dict.fromkeys(ALWAYS_FAILING, "failed"),
        "test_skipped": "skipped",
        "test_leaves": "crashed",
    }
    child = vector(root, "c0001")
    assert child == {
        **dict.fromkeys((*PASSING, *BY_LEVEL), "passed"),
        **dict.fromkeys(ALWAYS_FAILING, "failed"),
    }
    assert not processes_named("left-behind")
    check_reports(root)
    check_secret(root, done.stdout + done.stderr)


def check_reports(root: Path) -> None:
    """Reports parse, count what is in them, and are bounded."""
    for path in (root / "evo-reports").rglob("*.xml"):
        assert path.stat().st_size < 1_000_000
        for suite in ET.parse(path).iter("testsuite"):
            cases = suite.findall("testcase")
            assert int(suite.attrib["tests"]) == len(cases)
            bad = [case for case in cases if case.find("failure") is not None]
            assert int(suite.attrib["failures"]) == len(bad)
    journal = (run_directory(root) / "journal.jsonl").read_bytes().decode("utf-8")
    for line in journal.removesuffix("\n").split("\n"):
        json.loads(line)
    leaves = (run_directory(root) / "candidates" / "c0000" / "rollouts").iterdir()
    assert all(len(os.fsencode(leaf.name)) < 200 for leaf in leaves)


def check_secret(root: Path, shown: str) -> None:
    """What a test printed of the environment is nowhere."""
    assert SECRET not in shown
    stored = [root / "evo-reports", root / ".evo"]
    for path in (path for top in stored for path in top.rglob("*") if path.is_file()):
        assert SECRET.encode() not in path.read_bytes(), path
    texts = (run_directory(root) / "candidates").rglob("rollouts/*.json")
    assert any("[redacted DEMO_API_KEY]" in path.read_text() for path in texts)


def test_plugins_that_are_named_one_by_one_suffice(pytester: pytest.Pytester) -> None:
    root = pytester.path
    write_project(root)
    plugins = ("-p", "pytest_evo.plugin.entry", "-p", "xdist.plugin")
    one = "test_odd.py::test_other_id", "some.words"
    done = run(root, *plugins, "-n", "1", *one, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    assert done.returncode == 0, done.stdout + done.stderr
    start = {"test_other_id": "passed", "low": "passed", "high": "failed"}
    assert vector(root, "c0000") == start


def test_selection_of_nothing_ends_before_any_rollout(
    pytester: pytest.Pytester,
) -> None:
    root = pytester.path
    write_project(root)
    done = run(root, "-n", "0", "-k", "no_such_test")
    assert done.returncode == 4
    assert "no tests were collected" in done.stderr
    assert not (root / ".evo").exists()


SHUFFLER = """
def pytest_addoption(parser):
    parser.addoption("--randomly-seed", default="default")

def pytest_report_header(config):
    return f"shuffled with {config.option.randomly_seed}"
"""


def test_shuffling_plugin_gets_one_seed_for_the_whole_run(
    pytester: pytest.Pytester,
) -> None:
    root = pytester.path
    write_project(root)
    (root / "shuffler.py").write_text(SHUFFLER)
    one = ("-p", "shuffler", "-n", "0", "--evo-seed=7", "some.words")
    done = run(root, *one, PYTHONPATH=str(root))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "shuffled with 7" in done.stdout
    assert "every rollout has --randomly-seed=7" in done.stdout
