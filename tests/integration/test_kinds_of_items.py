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
