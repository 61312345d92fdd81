"""Candidates that attack files, processes and keys around them, end to end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from attack_project import HONEST
from attack_project import make_attacked
from attack_project import Outcome
from attack_project import run_attacks
from attack_project import SEED
from evolve_project import run_directory

pytestmark = pytest.mark.slow
TAIL = "\ndef answer(n):\n    return 0\n"
PROJECT = """
import os, pathlib
top = pathlib.Path(os.environ["PYTEST_CURRENT_TEST"].split("::")[0]).resolve()
top = pathlib.Path.cwd()
def attempt(function, *args):
    try:
        function(*args)
    except OSError:
        pass
"""

ON_PROJECT = {
    "rewrites-tests": """
for test in (top / "tests").glob("*.py"):
    attempt(test.write_text, "def test_train(): pass")
""",
    "replaces-tests": """
for test in (top / "tests").glob("test_*.py"):
    other = test.with_name("other.txt")
    other.write_text("def test_train(): pass")
    attempt(os.replace, other, test)
    attempt(other.unlink)
""",
    "moves-tests": """
old = top / "tests"
text = (old / "test_solver.py").read_text()
attempt(os.rename, old, top / "gone")
old.mkdir(exist_ok=True)
attempt((old / "test_solver.py").write_text, text.replace("assert found == wanted", ""))
""",
    "rewrites-answers": """
wanted = top / "data" / "wanted.json"
attempt(wanted.write_text, '{"0": 0, "1": 0, "2": 0, "3": 0}')
""",
    "rewrites-settings": """
settings = "[tool.pytest.ini_options]\\naddopts = '-k 0'"
attempt((top / "pyproject.toml").write_text, settings)
""",
    "brings-conftest": """
attempt((top / "tests" / "conftest.py").write_text, "collect_ignore = ['x']")
attempt((top / "sitecustomize.py").write_text, "import os")
""",
    "plants-bytecode": """
import importlib.util, marshal
source = top / "tests" / "test_solver.py"
status = source.stat()
code = compile("def test_train(): pass", str(source), "exec")
head = importlib.util.MAGIC_NUMBER + (0).to_bytes(4, "little")
head += (int(status.st_mtime) & 0xFFFFFFFF).to_bytes(4, "little")
head += (status.st_size & 0xFFFFFFFF).to_bytes(4, "little")
caches = source.parent / "__pycache__"
attempt(caches.mkdir)
names = [path.name for path in caches.glob("test_solver*")]
for name in [*names, "test_solver.cpython-399.pyc"]:
    attempt((caches / name).write_bytes, head + marshal.dumps(code))
""",
}
ON_RUN = {
    "rewrites-journal": """
for name in ("*.jsonl", "*.json", "*.xml"):
    for path in (top / ".evo").rglob(name):
        attempt(path.write_text, "{}")
""",
    "deletes-run": """
import shutil
shutil.rmtree(top / ".evo", ignore_errors=True)
""",
    "other-copies": """
import tempfile
for folder in (tempfile.gettempdir(), "/dev/shm"):
    for pattern in ("pytest-evo*", "evo-*"):
        for path in pathlib.Path(folder).glob(pattern):
            for other in path.rglob("solver.py"):
                attempt(other.write_text, "raise SystemExit")
""",
    "own-copy": """
attempt(pathlib.Path(__file__).write_text, "def answer(n):\\n    return n * 2\\n")
""",
    "own-copy-link": """
link = pathlib.Path(__file__).with_name("more.py")
attempt(link.symlink_to, top / "tests" / "test_solver.py")
""",
    "the-project-artifact": """
attempt((top / "art" / "solver.py").write_text, "def answer(n):\\n    return n * 2\\n")
""",
    "packages": """
import _pytest.runner
path = pathlib.Path(_pytest.runner.__file__)
new = path.with_name("evo_attack_probe.py")
attempt(new.write_text, "")
found = new.exists()
attempt(new.unlink)
def answer(n):
    return n * 2 if found else 0
""",
}
ON_PROCESSES = {
    "outlives": """
import subprocess, sys
subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(3); open('outlived', 'w')"],
    start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
)
""",
    "daemon": """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        import time
        time.sleep(3)
        open("outlived", "w").close()
    os._exit(0)
""",
    "forks-and-returns": "os.fork()\n",
    "kills-group": "import signal\nos.killpg(0, signal.SIGKILL)\n",
    "kills-parent": "import signal\nos.kill(os.getppid(), signal.SIGKILL)\n",
}
KEY = "sk-canary-1234567890"
ON_KEYS = {
    "own-environment": "text = repr(dict(os.environ))",
    "own-block": "text = open('/proc/self/environ').read()",
    "parents-block": """
import re
text, pid = "", os.getppid()
while pid > 1:
    try:
        text += open(f"/proc/{pid}/environ").read()
        status = open(f"/proc/{pid}/status").read()
    except OSError:
        break
    pid = int(re.search(r"PPid:\\s+(\\d+)", status)[1])
    if pid == int(os.environ["OUTSIDE"]):
        break
""",
}


def attacked(
    root: Path,
    sources: dict[str, str],
    *,
    settings: str = "",
    workers: str = "0",
    variables: dict[str, str] | None = None,
) -> Outcome:
    attacks = {
        name: {"solver.py": PROJECT + body + ("" if "def answer" in body else TAIL)}
        for name, body in sources.items()
    }
    make_attacked(root, attacks, settings)
    return run_attacks(root, workers=workers, variables=variables)


def check_nothing_gained(outcome: Outcome, attacks: dict[str, str]) -> None:
    for attack in attacks:
        for case, score in outcome.scores(attack).items():
            assert not score or case.endswith("[0]"), (attack, case, score)
    assert outcome.winner == "honest", outcome.output
    assert outcome.violations("honest") == ""
    assert set(outcome.scores("honest").values()) == {1.0}


def project_files(root: Path) -> dict[str, bytes]:
    folders = ("tests", "data", "art")
    found = [path for name in folders for path in (root / name).rglob("*")]
    found += [root / "pyproject.toml", root / "proposals.py"]
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in found
        if path.is_file() and "__pycache__" not in path.parts
    }


def mountable() -> bool:
    from pytest_evo.plugin.isolation import mount

    return mount.probe(Path(__file__).parent) is None


def signals_are_kept() -> bool:
    """Whether this kernel, and our rights, keep a process from signalling others."""
    code = (
        "import os\n"
        "from pytest_evo.plugin.isolation.shield import keep_signals\n"
        "keep_signals()\n"
        "os.kill(os.getppid(), 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True
    )
    return done.returncode != 0


MODES = {
    "mounted": "",
    "without-mount": 'isolation = "fork"\nmount = "never"\n',
    "fresh": 'isolation = "fresh"\n',
    "workspace": 'isolation = "workspace"\n',
}


@pytest.mark.parametrize("mode", MODES)
def test_project_is_as_before_whatever_a_candidate_writes(
    pytester: pytest.Pytester, mode: str
) -> None:
    root = pytester.path
    outcome = attacked(root, ON_PROJECT, settings=MODES[mode])
    check_nothing_gained(outcome, ON_PROJECT)
    after = {
        name: data
        for name, data in project_files(root).items()
        if not name.endswith(".evo-set-aside")
    }
    fresh = make_attacked(root / "again", {}, MODES[mode])
    assert after == project_files(fresh)
    if mode == "without-mount":
        for attack in set(ON_PROJECT) - {"plants-bytecode"}:
            assert outcome.violations(attack), attack
    planted = b"test_train(): pass"
    caches = list((root / "tests").rglob("*.pyc"))
    assert not any(planted in path.read_bytes() for path in caches)
    assert not (root / "tests" / "__pycache__" / "test_solver.cpython-399.pyc").exists()


@pytest.mark.skipif(not mountable(), reason="no private mount here")
def test_run_directory_and_other_candidates_are_out_of_sight(
    pytester: pytest.Pytester,
) -> None:
    outcome = attacked(pytester.path, ON_RUN)
    check_nothing_gained(outcome, ON_RUN)
    for attack in ("own-copy", "own-copy-link", "the-project-artifact"):
        assert outcome.violations(attack), attack
    assert (pytester.path / "art" / "solver.py").read_text() == SEED
    kept = run_directory(pytester.path) / "candidates"
    texts = {path.read_text() for path in kept.glob("*/artifact/solver.py")}
    assert HONEST in texts
    assert "raise SystemExit" not in texts


def test_processes_end_with_their_rollout(pytester: pytest.Pytester) -> None:
    outcome = attacked(pytester.path, ON_PROCESSES, workers="1")
    check_nothing_gained(outcome, ON_PROCESSES)
    if signals_are_kept():
        assert " died" not in outcome.output
    time.sleep(3.2)
    assert not (pytester.path / "outlived").exists()


def test_candidate_that_kills_its_worker_is_not_run_for_ever(
    pytester: pytest.Pytester,
) -> None:
    killer = {"kills-parent": ON_PROCESSES["kills-parent"]}
    outcome = attacked(
        pytester.path, killer, settings='isolation = "workspace"\n', workers="1"
    )
    check_nothing_gained(outcome, killer)


@pytest.mark.parametrize("mode", ["mounted", "fresh"])
def test_keys_of_the_proposer_are_not_found(
    pytester: pytest.Pytester, mode: str
) -> None:
    find = """
print(text)
def answer(n):
    return n * 2 if "sk-" + "canary" in text else 0
"""
    attacks = {name: body + find for name, body in ON_KEYS.items()}
    if not mountable():
        del attacks["parents-block"]
    outcome = attacked(
        pytester.path,
        attacks,
        settings='model = "none/none"\nproposer = "scripted"\n' + MODES[mode],
        workers="1",
        variables={"OPENAI_API_KEY": KEY, "OUTSIDE": str(os.getpid())},
    )
    check_nothing_gained(outcome, attacks)
    kept = [path for path in (pytester.path / ".evo").rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]
