"""Every usual way to read the artifact, in every isolation mode, on real workers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pool_driver
import pytest

from pytest_evo.models import COPY_CHANGED
from pytest_evo.plugin.isolation.mount import probe

MOUNTS = sys.platform == "linux" and probe(Path(__file__).parent) is None
needs_mount = pytest.mark.skipif(not MOUNTS, reason="no private mounts here")

# Words of one length, written within one second: only their content tells them apart.
WORDS = ("aaaa", "bbbb")

READER = """
import functools
import os
from pathlib import Path

FIXED = Path(__file__).parent / "artifact"
_KEPT = {}

def told():
    return Path(os.environ["PYTEST_EVO_ARTIFACT"])

@functools.lru_cache(maxsize=None)
def by_lru():
    return (told() / "word.txt").read_text()

def by_global():
    if "word" not in _KEPT:
        _KEPT["word"] = (told() / "word.txt").read_text()
    return _KEPT["word"]
"""

BY_FIXTURE = """
import importlib.resources
import subprocess
import sys

import pytest

import reader

@pytest.fixture(scope="session")
def word(evo_artifact):
    return (evo_artifact / "word.txt").read_text()

@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(str(reader.told()))

def test_session_fixture(word, evo_trace):
    evo_trace("word", word=word)

def test_lru_cache(evo_trace):
    evo_trace("word", word=reader.by_lru())

def test_module_global(evo_trace):
    evo_trace("word", word=reader.by_global())

def test_late_import(modules, evo_trace):
    import wordlib
    evo_trace("word", word=wordlib.WORD)

def test_module_of_a_package(modules, evo_trace):
    from wordpkg import inner
    evo_trace("word", word=inner.WORD)

def test_resource_of_a_package(modules, evo_trace):
    text = importlib.resources.files("wordpkg").joinpath("word.txt").read_text()
    evo_trace("word", word=text)

def test_process(evo_artifact, evo_trace):
    done = subprocess.run(
        [sys.executable, str(evo_artifact / "say.py")],
        capture_output=True, text=True, check=True,
    )
    evo_trace("word", word=done.stdout)
"""

BY_PLACE = """
import subprocess
import sys
from pathlib import Path

import reader

def test_fixed_path(evo_trace):
    evo_trace("word", word=(reader.FIXED / "word.txt").read_text())

def test_relative_path(evo_trace):
    evo_trace("word", word=Path("artifact/word.txt").read_text())

def test_rootpath(pytestconfig, evo_trace):
    path = pytestconfig.rootpath / "artifact" / "word.txt"
    evo_trace("word", word=path.read_text())

def test_process_with_a_relative_path(evo_trace):
    done = subprocess.run(
        [sys.executable, "artifact/say.py"], capture_output=True, text=True, check=True
    )
    evo_trace("word", word=done.stdout)
"""

EARLY = """
from pathlib import Path

import conftest
import pytest
import wordlib

AT_IMPORT = (Path(__file__).parent / "artifact" / "word.txt").read_text()

def test_constant(evo_trace):
    evo_trace("word", word=AT_IMPORT)

def test_default(evo_trace, word=AT_IMPORT):
    evo_trace("word", word=word)

def test_import(evo_trace):
    evo_trace("word", word=wordlib.WORD)

def test_import_of_conftest(evo_trace):
    evo_trace("word", word=conftest.wordlib.WORD)

@pytest.mark.parametrize("word", [AT_IMPORT])
def test_parameter(word, evo_trace):
    evo_trace("word", word=word)
"""

DRIVE = """
import asyncio

def change(driver, word):
    folder = driver.root / "candidates" / word
    (folder / "wordpkg").mkdir(parents=True)
    (folder / "word.txt").write_text(word)
    (folder / "wordlib.py").write_text(f"WORD = {word!r}\\n")
    (folder / "say.py").write_text(
        "from pathlib import Path\\n"
        "print((Path(__file__).parent / 'word.txt').read_text(), end='')\\n"
    )
    (folder / "wordpkg" / "__init__.py").write_text("")
    (folder / "wordpkg" / "inner.py").write_text(f"WORD = {word!r}\\n")
    (folder / "wordpkg" / "word.txt").write_text(word)
    return driver.add(folder)

async def drive(driver):
    driver.pool.set_isolation(MODE, MOUNT)
    trees = {word: change(driver, word) for word in WORDS}
    names = [one for one in driver.cases() if "aaaa" not in one]
    rows = []
    for word in [*WORDS, WORDS[0]]:
        rows += [(word, one) for one in await driver.run(*names, tree=trees[word])]
    both = await asyncio.gather(
        *(driver.run(*names, tree=trees[word]) for word in WORDS)
    )
    for word, answers in zip(WORDS, both):
        rows += [(word, one) for one in answers]
    return [
        {
            "word": word,
            "case": one.case.partition("::")[2],
            "outcome": str(one.outcome),
            "read": [step.data["word"] for step in one.detail.steps],
            "reach": list(one.reach.files),
            "stale": list(one.reach.stale),
            "exact": one.reach.exact,
            "violation": one.violation,
            "said": [phase.longrepr for phase in one.detail.phases],
        }
        for word, one in rows
    ]
"""


@pytest.fixture
def project(pytester):
    make_artifact(pytester.path / "artifact", "seed")
    pytester.makepyfile(
        reader=READER, pool_driver=Path(pool_driver.__file__).read_text()
    )
    return Project(pytester)


def make_artifact(folder, word):
    (folder / "wordpkg").mkdir(parents=True)
    (folder / "word.txt").write_text(word)
    (folder / "wordlib.py").write_text(f"WORD = {word!r}\n")
    (folder / "say.py").write_text(
        "from pathlib import Path\n"
        "print((Path(__file__).parent / 'word.txt').read_text(), end='')\n"
    )
    (folder / "wordpkg" / "__init__.py").write_text("")
    (folder / "wordpkg" / "inner.py").write_text(f"WORD = {word!r}\n")
    (folder / "wordpkg" / "word.txt").write_text(word)


class Project:
    def __init__(self, pytester):
        self.pytester = pytester
        self.path = pytester.path

    def drive(self, body, mode, mount):
        head = f"MODE, MOUNT, WORDS = {mode!r}, {mount!r}, {WORDS!r}\n"
        (self.path / "drive.py").write_text(head + body)

    def run(self, *args, way="-n1"):
        result = self.pytester.runpytest_subprocess(
            "-p", "pool_driver", "-p", "no:cacheprovider", way, *args, timeout=120
        )
        assert result.ret == 0, result.stdout.str() + result.stderr.str()
        return json.loads((self.path / "result.json").read_text())["rows"]


def check_all_right(rows, count):
    assert len(rows) == count * 5
    wrong = [row for row in rows if row["read"] != [row["word"]]]
    assert wrong == []
    assert [row for row in rows if row["stale"] or row["violation"]] == []


@pytest.mark.parametrize(
    ("mode", "mount", "way"),
    [
        ("fork", False, "-n0"),
        pytest.param("fork", True, "-n2", marks=needs_mount),
        pytest.param("fresh", True, "-n1", marks=needs_mount),
        ("fresh", False, "-n2"),
        ("workspace", False, "-n1"),
    ],
)
def test_reads_by_fixture_and_variable_are_the_candidates(project, mode, mount, way):
    project.pytester.makepyfile(test_it=BY_FIXTURE)
    project.drive(DRIVE, mode, mount)
    rows = project.run(way=way)
    check_all_right(rows, 7)
    assert all("word.txt" in row["reach"] for row in rows if "lru" in row["case"])
    assert not any(row["exact"] for row in rows if "process" in row["case"])
    assert (project.path / "artifact" / "word.txt").read_text() == "seed"


@pytest.mark.parametrize(
    ("mode", "mount"),
    [
        pytest.param("fork", True, marks=needs_mount),
        pytest.param("fresh", True, marks=needs_mount),
        ("workspace", False),
    ],
)
def test_reads_by_place_are_the_candidates(project, mode, mount):
    project.pytester.makepyfile(test_it=BY_PLACE)
    project.drive(DRIVE, mode, mount)
    check_all_right(project.run(), 4)


def test_reads_by_place_without_a_mount_are_never_silent(project):
    project.pytester.makepyfile(test_it=BY_PLACE)
    project.drive(DRIVE, "fork", False)
    rows = project.run()
    assert {tuple(row["read"]) for row in rows} == {("seed",)}
    for row in rows:
        if "process" in row["case"]:
            assert not row["exact"]
        else:
            assert row["stale"] == ["word.txt"]


@pytest.mark.parametrize(
    ("mode", "mount", "way"),
    [
        pytest.param("fresh", True, "-n2", marks=needs_mount),
        ("workspace", False, "-n1"),
    ],
)
def test_reads_at_collection_are_the_candidates(project, mode, mount, way):
    project.pytester.makeini("[pytest]\npythonpath = artifact .\n")
    project.pytester.makepyfile(test_it=EARLY, conftest="import wordlib\n")
    project.drive(DRIVE, mode, mount)
    rows = project.run(way=way)
    assert {row["case"] for row in rows} >= {"test_constant", "test_import"}
    wrong = [
        row
        for row in rows
        if row["read"] != [row["word"]] and "parameter" not in row["case"]
    ]
    assert wrong == []
    # the seed's parameter does not exist for a candidate: its id is never re-used
    assert {row["outcome"] for row in rows if "parameter" in row["case"]} == {"missing"}
    assert all({"word.txt", "wordlib.py"} <= set(row["reach"]) for row in rows[:4])


BROKEN = """
async def drive(driver):
    driver.pool.set_isolation(MODE, MOUNT)
    folder = driver.root / "candidate"
    folder.mkdir()
    (folder / "word.txt").write_text("aaaa")
    (folder / "wordlib.py").write_text(WORDLIB)
    tree = driver.add(folder)
    return [
        {
            "case": one.case.partition("::")[2],
            "outcome": str(one.outcome),
            "score": one.score,
            "said": [phase.message for phase in one.detail.phases],
        }
        for one in await driver.run(*driver.cases(), tree=tree)
    ]
"""


@needs_mount
@pytest.mark.parametrize(
    ("wordlib", "where", "said"),
    [
        ("WORD = (", "test module", "SyntaxError"),
        ("raise KeyError('gone wrong')", "conftest", "gone wrong"),
        ("import pytest; pytest.exit('over')", "conftest", "over"),
    ],
)
def test_candidate_that_cannot_be_collected_is_missing(project, wordlib, where, said):
    project.pytester.makeini("[pytest]\npythonpath = artifact .\n")
    imports = "import wordlib\n"
    project.pytester.makepyfile(
        conftest=imports if where == "conftest" else "",
        test_it=("" if where == "conftest" else imports) + "def test_a(): pass\n",
        test_other="def test_b(): pass\n",
    )
    project.drive(f"WORDLIB = {wordlib!r}\n{BROKEN}", "fresh", True)
    rows = {row["case"]: row for row in project.run()}
    assert rows["test_a"]["outcome"] == "missing"
    assert said in rows["test_a"]["said"][0]
    expected = "missing" if where == "conftest" else "passed"
    assert rows["test_b"]["outcome"] == expected


WRITES = """
async def drive(driver):
    driver.pool.set_isolation(MODE, MOUNT)
    rows = []
    for _ in range(2):
        rows += await driver.run(*driver.cases())
    return [
        {"outcome": str(one.outcome), "violation": one.violation} for one in rows
    ]
"""


@pytest.mark.parametrize(
    ("mode", "mount"),
    [
        ("fork", False),
        pytest.param("fork", True, marks=needs_mount),
        pytest.param("fresh", True, marks=needs_mount),
        ("workspace", False),
    ],
)
def test_writes_of_a_test_stay_in_its_request_and_are_told(project, mode, mount):
    project.pytester.makepyfile(
        test_it="""
        import shutil

        def test_a_starts_from_the_stored_files(evo_artifact):
            assert (evo_artifact / "word.txt").read_text() == "seed"
            assert not (evo_artifact / "hits.txt").exists()

        def test_b_writes(evo_artifact):
            (evo_artifact / "hits.txt").write_text("x")
            (evo_artifact / "word.txt").write_text("scribble")
        """
    )
    project.drive(WRITES, mode, mount)
    before = {
        path: path.stat().st_mtime_ns
        for path in (project.path / "artifact").rglob("*.txt")
    }
    rows = project.run()
    assert [row["outcome"] for row in rows] == ["passed"] * 4
    told = f"{COPY_CHANGED}added hits.txt; changed word.txt"
    assert all(row["violation"] == told for row in rows)
    after = {path: path.stat().st_mtime_ns for path in before}
    assert before == after
    assert not (project.path / "artifact" / "hits.txt").exists()


FRESH_SESSION = """
async def drive(driver):
    driver.pool.set_isolation(MODE, MOUNT)
    rows = await driver.run(*driver.cases())
    return [
        {
            "case": one.case,
            "outcome": str(one.outcome),
            "said": [phase.longrepr for phase in one.detail.phases],
            "warnings": list(one.detail.warnings),
        }
        for one in rows
    ]
"""


@needs_mount
def test_fresh_session_is_configured_like_the_users(project):
    project.pytester.makeini(
        """
        [pytest]
        addopts = --import-mode=importlib --strict-markers -p no:doctest
        strict = true
        filterwarnings = error
        testpaths = sub
        """
    )
    project.pytester.makeconftest(
        """
        def pytest_addoption(parser):
            parser.addoption("--tone", default="plain")
        """
    )
    for name in ("one", "two"):
        folder = project.path / "sub" / name
        folder.mkdir(parents=True)
        (folder / "conftest.py").write_text(
            "import pytest\n"
            "@pytest.fixture\n"
            "def tone(request):\n"
            f"    return '{name}-' + request.config.getoption('--tone')\n"
        )
        (folder / "test_same.py").write_text(
            "import os, sys, warnings\n"
            "import pytest\n"
            "def test_tone(tone, request):\n"
            f"    assert tone == '{name}-loud'\n"
            "    assert not request.config.pluginmanager.hasplugin('doctest')\n"
            "def test_warns():\n"
            "    warnings.warn('old way', DeprecationWarning)\n"
            "def test_rewritten_assertion():\n"
            "    left = [1]\n"
            "    assert left == [2]\n"
        )
    project.drive(FRESH_SESSION, "fresh", True)
    rows = {row["case"]: row for row in project.run("--tone=loud", way="-n2")}
    assert len(rows) == 6
    for name in ("one", "two"):
        start = f"sub/{name}/test_same.py::"
        assert rows[f"{start}test_tone"]["outcome"] == "passed", rows
        assert rows[f"{start}test_warns"]["outcome"] == "failed"
        failed = rows[f"{start}test_rewritten_assertion"]
        assert "assert [1] == [2]" in "".join(failed["said"])
    assert all(
        "cannot be rewritten" not in str(row["warnings"]) for row in rows.values()
    )


@needs_mount
def test_project_threads_do_not_hang_a_fresh_rollout(project):
    project.pytester.makeconftest(
        """
        import threading
        import time

        LOCK = threading.Lock()

        def busy():
            while True:
                with LOCK:
                    time.sleep(0.05)
                time.sleep(0.0005)

        threading.Thread(target=busy, daemon=True).start()
        """
    )
    project.pytester.makepyfile(
        """
        import conftest

        def test_takes_lock():
            with conftest.LOCK:
                pass
        """
    )
    project.drive(FRESH_SESSION, "fresh", True)
    rows = project.run()
    assert [row["outcome"] for row in rows] == ["passed"], rows


@needs_mount
def test_include_narrows_what_is_replaced(project, pytester, monkeypatch):
    monkeypatch.setenv("EVO", json.dumps({"files": ["word.txt"]}))
    project.pytester.makepyfile(
        """
        from pathlib import Path

        def test_word(evo_artifact, evo_trace):
            beside = (evo_artifact / "wordlib.py").read_text()
            word = Path("artifact/word.txt").read_text()
            assert "seed" in beside
            evo_trace("word", word=word)
        """
    )
    body = DRIVE.replace(
        "return driver.add(folder)",
        "import shutil; shutil.rmtree(folder / 'wordpkg')\n"
        "    (folder / 'wordlib.py').unlink(); (folder / 'say.py').unlink()\n"
        "    return driver.add(folder)",
    )
    project.drive(body, "fork", True)
    check_all_right(project.run(), 1)
