"""Whole runs of suites with items of all kinds, compared with plain pytest."""

from __future__ import annotations

import pytest
from odd_project import make_odd
from odd_project import run_odd

UNITTESTS = """
import os
import unittest
from pathlib import Path

HERE = Path(__file__).parent

def level():
    return int((HERE / "art" / "level.txt").read_text())

class Steps(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with (HERE / "class-ups.log").open("a") as log:
            log.write(f"{os.getpid()}\\n")

    def test_all_below(self):
        for step in (0, 3, 7):
            with self.subTest(step=step):
                self.assertLess(step, level())

    def test_one_is_skipped(self):
        for step in (0, 99):
            with self.subTest(step=step):
                if step > 9:
                    self.skipTest("too high to tell")

    @unittest.expectedFailure
    def test_known(self):
        self.assertEqual(level(), -1)

    @unittest.expectedFailure
    def test_mended(self):
        self.assertGreater(level(), 0)

    def test_clean_up_fails(self):
        self.addCleanup(self.fail, "on the way out")

class Waiting(unittest.IsolatedAsyncioTestCase):
    async def test_waits(self):
        self.assertGreater(level(), 0)

class Closed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        raise OSError("the door is shut")

    def test_left(self):
        pass

    def test_right(self):
        pass
"""
SUBTESTS = """
from pathlib import Path

def words():
    return (Path(__file__).parent / "art" / "words.txt").read_text().split()

def test_goes_on_after_a_failure(subtests):
    for word in words():
        with subtests.test("ends well", word=word):
            assert word.endswith("!")

def test_none_fails(subtests):
    for word in words():
        with subtests.test(word=word):
            assert word
"""
LISTS = """
import asyncio
import inspect

import pytest

def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".list":
        return Listed.from_parent(parent, path=file_path)

class Listed(pytest.File):
    def collect(self):
        for line in self.path.read_text().splitlines():
            yield Bare.from_parent(self, name=line)

class Bare(pytest.Item):
    def runtest(self):
        words = (self.config.rootpath / "art" / "words.txt").read_text()
        if self.name not in words:
            raise LookupError(self.name)

    def repr_failure(self, excinfo):
        return f"'{self.name}' is not said anywhere"

@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    if inspect.iscoroutinefunction(pyfuncitem.obj):
        asyncio.run(pyfuncitem.obj())
        return True
"""
ASYNC = '''
from pathlib import Path

def first():
    """The first word.

    >>> first()
    'so'
    """
    return (Path(__file__).parent / "art" / "words.txt").read_text().split()[0]

async def test_awaits():
    assert first() == "so!"
'''
PASSED, FAILED, ERROR = "passed", "failed", "error"


def test_items_of_all_kinds_come_out_as_in_plain_pytest(
    pytester: pytest.Pytester,
) -> None:
    root = make_odd(
        pytester.path,
        {
            "art/level.txt": "5",
            "art/words.txt": "so what!",
            "test_old.py": UNITTESTS,
            "test_subs.py": SUBTESTS,
            "test_later.py": ASYNC,
            "heard.list": "so\nthen",
            "conftest.py": LISTS,
        },
        [
            {"level.txt": "8", "words.txt": "so! then!"},
            {"more.list": "so\nwhat", "test_free.py": "def test_free(): pass\n"},
        ],
        ini="addopts = --doctest-modules\nnorecursedirs = nowhere\n",
    )
    done = run_odd(root, "-n", "1")
    start = {
        "Steps::test_all_below": FAILED,
        "Steps::test_one_is_skipped": PASSED,
        "Steps::test_known": FAILED,  # as expected: not done, and not skipped
        "Steps::test_mended": FAILED,  # an unexpected success
        "Steps::test_clean_up_fails": FAILED,
        "Waiting::test_waits": PASSED,
        "Closed::test_left": ERROR,
        "Closed::test_right": ERROR,
        "test_goes_on_after_a_failure": FAILED,
        "test_none_fails": PASSED,
        "test_awaits": FAILED,
        "test_later.first": PASSED,
        "so": PASSED,
        "then": FAILED,
    }
    assert done.outcomes() == start
    errors = {name for name, outcome in start.items() if outcome == ERROR}
    steady = {name: start[name] for name in start if name not in errors}
    raised = dict.fromkeys(
        ("Steps::test_all_below", "test_goes_on_after_a_failure", "then"), PASSED
    )
    raised |= {"test_awaits": PASSED, "test_later.first": FAILED}
    assert done.outcomes(1) == steady | raised
    assert done.outcomes(2) == steady  # what a candidate brings is no case
    assert len(done.junit()) == len(start)
    for name in ("test_left", "test_right"):
        assert "the door is shut" in str(done.junit()[name].find("error").attrib)
    assert "2 of the tests neither passed nor failed on the start" in done.output
    check_traces(done)
    ups = (root / "class-ups.log").read_text().split()
    assert len(ups) == len(set(ups))  # once in each process


def check_traces(done):
    """Which subtest failed is kept; texts that are no tracebacks are kept whole."""
    said = done.told("test_goes_on_after_a_failure")
    assert "[ends well]" in said
    assert "word='so'" in said
    subs = done.junit()["test_goes_on_after_a_failure"]
    assert len(subs.findall("failure")) == 1
    bare = done.junit()["then"].find("failure")
    assert "'then' is not said anywhere" in (bare.text or "") + bare.attrib["message"]


NAMES = r"""
import pytest
from pathlib import Path

ODD = [
    "nul\0", "line\nbreak", "tab\t", "[open", "shut]", "file.py::name", "a/b", "../c",
    "two words", " ", "", "<&>'\"", "-flag", "@file", "100%", "\u6771", "\U0001f419",
    "\udc80", "l" * 500 + "1", "l" * 500 + "2",
]

def ready():
    return (Path(__file__).parent / "art" / "ready.txt").read_text() == "yes"

@pytest.mark.parametrize("odd", ODD)
def test_odd(odd):
    assert ready()

@pytest.mark.parametrize("n", range(3), ids=["twin", "twin", "twin0"])
def test_twins(n):
    assert ready() or n == 1

@pytest.mark.parametrize("accent", ["\u00e5", "a\u030a"])
def test_accents(accent):
    assert ready()

@pytest.mark.parametrize("left", ["a-b", "a"])
@pytest.mark.parametrize("right", ["c", "b-c"])
def test_pairs(left, right):
    assert ready()

@pytest.mark.parametrize("word", {"elm", "oak", "ash", "fir", "yew", "box"})
def test_of_a_set(word):
    assert ready() == (word != "elm") or word == "ash"
"""


def test_odd_names_and_orders_are_told_apart_in_every_process(
    pytester: pytest.Pytester,
) -> None:
    files = {"art/ready.txt": "no", "test_names.py": NAMES}
    edits = [{"ready.txt": "yes"}, {"ready.txt": "yes", "more.txt": "2"}]
    root = make_odd(pytester.path, files, edits)
    done = run_odd(root, "-n", "2")
    start, child = done.outcomes(), done.outcomes(1)
    assert len(start) == len(child) == 20 + 3 + 2 + 4 + 6
    passing = {name for name, outcome in start.items() if outcome == PASSED}
    assert passing == {"test_twins[twin2]", "test_of_a_set[ash]", "test_of_a_set[elm]"}
    failing = {name for name, outcome in child.items() if outcome == FAILED}
    assert failing == {"test_of_a_set[elm]"}
    assert len(done.junit()) == len(start)
    folders = list((root / ".evo").rglob("rollouts/*"))
    assert all(len(folder.name.encode()) < 200 for folder in folders)

    assert done.outcomes(2) == child
    assert list(done.junit(2)) == list(done.junit(1)) == list(done.junit(0))
    again = run_odd(root, "-n", "0", "--evo-resume=last")
    assert again.records("rollout") == done.records("rollout")
    few = run_odd(root, "-n", "0", "-k", "elm or a/b")
    assert set(few.outcomes()) == {"test_of_a_set[elm]", "test_odd[a/b]"}


SCOPES = """
import os
from pathlib import Path

import pytest

HERE = Path(__file__).parent

def note(word, scope):
    with (HERE / "trail.log").open("a") as trail:
        trail.write(f"{os.getpid()} {word} {scope}\\n")

def scoped(scope, **options):
    @pytest.fixture(scope=scope, **options)
    def made(request):
        name = f"{scope}{getattr(request, 'param', '')}"
        note("up", name)
        request.addfinalizer(lambda: note("down", name))
        return (HERE / "art" / "hue.txt").read_text()
    return made

whole = scoped("session")
folder = scoped("package")
file = scoped("module", params=[1, 2])
kind = scoped("class")
single = scoped("function")

@pytest.fixture(scope="class")
def box(request, whole):
    note("up", "box")
    yield request.param + whole
    note("down", "box")

@pytest.mark.usefixtures("single")
class TestBoxes:
    @pytest.mark.parametrize("box", ["x", "y"], indirect=True)
    def test_box(self, box, file):
        assert box in ("xblue", "yblue", "yred")

    def test_kind(self, kind):
        assert kind

class TestSession:
    def test_whole(self, whole, folder):
        assert whole == folder == (HERE / "art" / "hue.txt").read_text()
"""
PHASES = """
from pathlib import Path

import pytest

def mood():
    return (Path(__file__).parent / "art" / "hue.txt").read_text()

@pytest.fixture
def late():
    yield
    raise RuntimeError("late trouble")

@pytest.fixture
def late_when_red():
    yield
    assert mood() == "blue"

@pytest.fixture
def early():
    raise RuntimeError("early trouble")

def test_early(early): pass
def test_late(late): pass
def test_wrong_and_late(late): assert mood() == "green"
def test_skipped_and_late(late): pytest.skip("not now")
def test_two_late(late, late_when_red): pass
def test_late_by_mood(late_when_red): pass

@pytest.fixture(scope="module", autouse=True)
def of_the_module():
    yield
    raise OSError("the module stays open")

def test_innocent(): assert mood()
"""


def test_fixtures_and_phases_are_told_apart_in_any_batch(
    pytester: pytest.Pytester,
) -> None:
    root = make_odd(
        pytester.path,
        {
            "art/hue.txt": "red",
            "test_scopes.py": SCOPES,
            "test_phases.py": PHASES,
        },
        [{"hue.txt": "blue"}],
    )
    done = run_odd(root, "-n", "1")
    boxes = {f"TestBoxes::test_box[{n}-{box}]" for n in (1, 2) for box in "xy"}
    start, child = done.outcomes(), done.outcomes(1)
    assert start == {
        **{name: PASSED if name.endswith("y]") else FAILED for name in boxes},
        "TestBoxes::test_kind": PASSED,
        "TestSession::test_whole": PASSED,
        **dict.fromkeys(("test_early", "test_late", "test_two_late"), ERROR),
        **dict.fromkeys(("test_skipped_and_late", "test_late_by_mood"), ERROR),
        "test_wrong_and_late": FAILED,
        "test_innocent": PASSED,
    }
    counted = {name for name, outcome in start.items() if outcome != ERROR}
    passing = dict.fromkeys(counted, PASSED)
    assert child == passing | {"test_wrong_and_late": FAILED}
    assert '"when":"setup","outcome":"failed"' in done.told("test_early")
    assert '"when":"teardown","outcome":"failed"' in done.told("test_late")
    assert "the module stays open" in done.told("test_innocent")
    late = done.junit()["test_late"]
    assert [len(late.findall(kind)) for kind in ("error", "failure")] == [1, 0]
    check_trail((root / "trail.log").read_text().splitlines())


def check_trail(lines):
    """In each process all that was set up is torn down, the widest scope last."""
    trails = {}
    for line in lines:
        process, word, scope = line.split()
        trails.setdefault(process, []).append((word, scope))
    assert len(trails) > 2
    for trail in trails.values():
        ups = sorted(scope for word, scope in trail if word == "up")
        assert ups == sorted(scope for word, scope in trail if word == "down")
        assert trail[-1][1] == "session" or "session" not in ups
