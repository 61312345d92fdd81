"""Whole runs of suites that would read an earlier version of the artifact."""

from __future__ import annotations

import importlib.util
import marshal
import sqlite3
from pathlib import Path

import pytest
from odd_project import make_odd
from odd_project import run_odd

PASSED, FAILED = "passed", "failed"
READERS = """
from functools import lru_cache
from pathlib import Path

HERE = Path(__file__).parent
KEPT = {}

@lru_cache(maxsize=None)
def cached(folder):
    return (Path(folder) / "word.txt").read_text()

def kept(folder):
    if "word" not in KEPT:
        KEPT["word"] = (Path(folder) / "word.txt").read_text()
    return KEPT["word"]
"""
CACHES = """
import pytest
import readers

@pytest.fixture(scope="session")
def of_the_session(tmp_path_factory):
    return (readers.HERE / "art" / "word.txt").read_text()

def true_word():
    return (readers.HERE / "art" / "own.txt").read_text()

def test_session(of_the_session): assert of_the_session == true_word()
def test_cached(): assert readers.cached("art") == true_word()
def test_global(): assert readers.kept("art") == true_word()
def test_warm(of_the_session): assert of_the_session == "warm"
"""
NEVER = """
import pytest

# one of them is a train case: where a batch is perfect nothing is proposed
@pytest.mark.parametrize("n", range(2))
def test_never(n, {fixture}): assert False
"""


def test_caches_of_a_long_lived_worker_hold_one_version(
    pytester: pytest.Pytester,
) -> None:
    words = ["warm", "cold", "cool", "warm", "mild", "warm", "cold", "icy"]
    # numbered: a version that was judged before would not run again
    edits = [
        {"word.txt": word, "own.txt": word, "at.txt": str(at)}
        for at, word in enumerate(words)
    ]
    files = {
        "art/word.txt": "cold",
        "art/own.txt": "cold",
        "readers.py": READERS,
        "test_caches.py": CACHES,
        "test_never.py": NEVER.format(fixture="request"),
    }
    root = make_odd(pytester.path, files, edits, ini="pythonpath = .\n")
    done = run_odd(root, "-n", "1")
    for number, word in enumerate(words, 1):
        assert done.outcomes(number) == {
            **dict.fromkeys(("test_session", "test_cached", "test_global"), PASSED),
            "test_warm": PASSED if word == "warm" else FAILED,
            **dict.fromkeys(("test_never[0]", "test_never[1]"), FAILED),
        }


MODULES = """
import sys
from pathlib import Path

import plan
import toolbox
from kit import rules
from conftest import AT_START

HERE = Path(__file__).parent

def number():
    return int((HERE / "art" / "number.txt").read_text())

def test_module(): assert plan.NUMBER == number()
def test_helper(): assert rules.NUMBER == number()
def test_data(): assert plan.from_file() == number()
def test_conftest(): assert AT_START == number()
def test_own_toolbox(): assert toolbox.OWNER == "project"
def test_seven(): assert plan.NUMBER == 7
"""


def of_number(number: int) -> dict[str, str]:
    return {
        "number.txt": f"{number}",
        "plan.py": "from pathlib import Path\nfrom kit import rules\n"
        f"NUMBER = {number}\n"
        "def from_file():\n"
        "    return int(Path(__file__).with_name('number.txt').read_text())\n",
        "kit/__init__.py": "",
        "kit/rules.py": f"NUMBER = {number}\n",
    }


def test_modules_of_the_same_names_are_each_candidates_own(
    pytester: pytest.Pytester,
) -> None:
    numbers = [7, 8, 9, 7]
    edits = [{**of_number(n), "at.txt": str(at)} for at, n in enumerate(numbers)]
    shadow = {**of_number(7), "toolbox.py": "OWNER = 'candidate'\n"}
    files = {
        **{f"art/{name}": text for name, text in of_number(1).items()},
        "conftest.py": "import plan\nAT_START = plan.NUMBER\n",
        "toolbox.py": "OWNER = 'project'\n",
        "test_modules.py": MODULES,
    }
    ini = "pythonpath = . art\n"
    root = make_odd(pytester.path, files, [*edits, shadow], ini=ini)
    done = run_odd(root, "-n", "1")
    names = ("test_module", "test_helper", "test_data", "test_conftest")
    for number, value in enumerate([*numbers, 7], 1):
        seven = PASSED if value == 7 else FAILED
        wanted = {**dict.fromkeys((*names, "test_own_toolbox"), PASSED)}
        assert done.outcomes(number) == {**wanted, "test_seven": seven}, number


BYTECODE = """
from pathlib import Path

import rule

def test_reads_the_source():
    source = Path("art/rule.py").read_text()
    assert rule.NAME in source

def test_right(): assert rule.NAME == "right"
"""


def test_byte_code_beside_the_source_is_never_run(pytester: pytest.Pytester) -> None:
    edit = {"rule.py": "NAME = 'right'\n", "__pycache__/rule.pyc": "planted"}
    files = {"art/rule.py": "NAME = 'wrong'\n", "test_rule.py": BYTECODE}
    root = make_odd(pytester.path, files, [edit], ini="pythonpath = art\n")
    plant_byte_code(root / "art" / "rule.py")
    done = run_odd(root, "-n", "0")
    assert done.outcomes() == {"test_reads_the_source": PASSED, "test_right": FAILED}
    assert set(done.outcomes(1).values()) == {PASSED}
    assert not list((root / ".evo").rglob("*.pyc"))


def plant_byte_code(source: Path) -> None:
    """A cache file of the kind that Python runs without a look at the source."""
    head = importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8)
    code = compile("NAME = 'planted'\n", str(source), "exec")
    cache = Path(importlib.util.cache_from_source(str(source)))
    cache.parent.mkdir()
    cache.write_bytes(head + marshal.dumps(code))


WAYS = """
import os
import subprocess
import sys
from importlib import resources
from pathlib import Path

import wordbook

HERE = Path(__file__).resolve().parent
AT_IMPORT = HERE / "art" / "wordbook.py"
WANTED = "WORD = 'new'\\n"

def test_by_standing_there(): assert Path("art/wordbook.py").read_text() == WANTED
def test_by_the_file(): assert (HERE / "art/wordbook.py").read_text() == WANTED
def test_by_the_root(pytestconfig):
    assert (pytestconfig.rootpath / "art" / "wordbook.py").read_text() == WANTED
def test_by_import(): assert wordbook.WORD == "new"
def test_by_a_path_of_before(): assert AT_IMPORT.read_text() == WANTED
def test_by_a_process():
    command = [sys.executable, "-c", "print(open('art/wordbook.py').read(), end='')"]
    assert subprocess.check_output(command, text=True) == WANTED
def test_by_the_variable():
    folder = Path(os.environ["PYTEST_EVO_ARTIFACT"])
    assert (folder / "wordbook.py").read_text() == WANTED
def test_by_resources():
    assert resources.files("pages").joinpath("one.txt").read_text() == "new"
def test_by_a_library():
    import sqlite3
    base = sqlite3.connect("file:art/words.db?mode=ro", uri=True)
    assert base.execute("select word from words").fetchone() == ("new",)
"""
DATABASE = """
import sqlite3
def propose(request):
    artifact = request.workspace / "artifact"
    (artifact / "wordbook.py").write_text("WORD = 'new'\\n")
    (artifact / "pages" / "one.txt").write_text("new")
    with sqlite3.connect(artifact / "words.db") as base:
        base.execute("update words set word = 'new'")
    base.close()
    return "everything new"
"""


@pytest.mark.parametrize("mount", ["auto", "never"])
def test_every_usual_way_to_the_artifact_leads_to_the_candidate(
    pytester: pytest.Pytester, mount: str
) -> None:
    files = {
        "art/wordbook.py": "WORD = 'old'\n",
        "art/pages/__init__.py": "",
        "art/pages/one.txt": "old",
        "test_ways.py": WAYS,
        "proposals.py": DATABASE,
    }
    ini = "pythonpath = art\n"
    root = make_odd(pytester.path, files, [{}], ini=ini, mount=mount)
    with sqlite3.connect(root / "art" / "words.db") as base:
        base.execute("create table words (word)")
        base.execute("insert into words values ('old')")
    base.close()
    done = run_odd(root, "-n", "1")
    assert len(done.outcomes()) == 9
    assert set(done.outcomes().values()) == {FAILED}
    assert done.outcomes(1) == dict.fromkeys(done.outcomes(), PASSED)


WRITES = """
import shutil

import pytest

def hits(artifact):
    path = artifact / "hits.txt"
    count = len(path.read_text()) if path.exists() else 0
    path.write_text("x" * (count + 1))
    return count

def test_a_counts(evo_artifact): assert hits(evo_artifact) == 0
def test_b_counts(evo_artifact): assert hits(evo_artifact) == 0
def test_c_empties(evo_artifact):
    for path in evo_artifact.iterdir():
        path.unlink()
def test_d_rewrites(evo_artifact):
    level = int((evo_artifact / "level.txt").read_text())
    (evo_artifact / "level.txt").write_text("99")
    assert level > 0
def test_e_level(evo_artifact):
    assert int((evo_artifact / "level.txt").read_text()) < 9
"""
UP = """
def propose(request):
    path = request.workspace / "artifact" / "level.txt"
    assert sorted(p.name for p in path.parent.iterdir()) == ["level.txt"]
    path.write_text(str(int(path.read_text()) + 1))
    return "one up"
"""


def test_what_tests_write_into_the_artifact_stays_nowhere(
    pytester: pytest.Pytester,
) -> None:
    files = {
        "art/level.txt": "0",
        "test_writes.py": WRITES,
        "test_never.py": NEVER.format(fixture="evo_artifact"),
        "proposals.py": UP,
    }
    root = make_odd(pytester.path, files, [{}] * 3, parents="parts:Newest")
    before = (root / "art" / "level.txt").stat()
    done = run_odd(root, "-n", "1")
    assert done.outcomes()["test_d_rewrites"] == FAILED
    for number in (1, 2, 3):
        outcomes = done.outcomes(number)
        failing = {name for name, outcome in outcomes.items() if outcome == FAILED}
        assert (len(outcomes), failing) == (7, {"test_never[0]", "test_never[1]"})
    kept = (root / ".evo").glob("runs/*/candidates/c*/artifact/*")
    texts = {path.parts[-3]: path.read_text() for path in kept}
    assert texts == {"c0000": "0", "c0001": "1", "c0002": "2", "c0003": "3"}
    after = (root / "art" / "level.txt").stat()
    assert (after.st_mtime_ns, after.st_ino) == (before.st_mtime_ns, before.st_ino)
    assert [path.name for path in (root / "art").iterdir()] == ["level.txt"]


BROKEN = {
    "syntax": "def value(:\n",
    "import-error": "import no_such_module_anywhere\n",
    "leaves": "import os\nos._exit(0)\n",
    "falls": "import ctypes\nctypes.string_at(0)\n",
    "skips": "import pytest\npytest.skip('later', allow_module_level=True)\n",
    "exits": "raise SystemExit(3)\n",
    "ends-pytest": "import pytest\npytest.exit('fine', returncode=0)\n",
    "gone": None,
}
USES = """
import pytest
import formula

@pytest.mark.parametrize("n", range(3))
def test_value(n): assert formula.value() > n
"""


def test_candidates_that_cannot_be_loaded_lose_every_case(
    pytester: pytest.Pytester,
) -> None:
    good = "def value():\n    return 9\n"
    edits: list[dict[str, str | None]] = [
        {"formula.py": text, "more.txt": name} for name, text in BROKEN.items()
    ]
    files = {"art/formula.py": "def value():\n    return 1\n", "test_use.py": USES}
    root = make_odd(
        pytester.path,
        files,
        [*edits[1:], {"formula.py": good}],
        ini="pythonpath = art\n",
        timeout=5,
    )
    done = run_odd(root, "-n", "1")
    last = len(edits)
    for number in range(1, last):
        outcomes = done.outcomes(number)
        assert outcomes, number
        assert PASSED not in outcomes.values()
        assert not any(row["score"] for row in done.rollouts(number))
    assert set(done.outcomes(last).values()) == {PASSED}
    assert "no_such_module_anywhere" in done.told("test_value[0]", 1)
    assert done.records("stop")[-1]["winner"] == f"c{last:04}"
    assert "worker" not in done.output.partition("probe")[2]
