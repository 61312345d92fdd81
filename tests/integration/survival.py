"""A project and a pair of eyes for runs that are killed, starved and stopped.

What ran is counted by the cases themselves, in a log outside the run directory, under
names that do not depend on the run: case, repeat, content of the artifact.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from uuid import uuid4

PYPROJECT = """
[tool.pytest_evo]
artifact = "art"
objective = "climb"
scripted = "proposals.py"
"""
PROPOSALS = """
import time

def propose(request):
    time.sleep({think})
    level = request.workspace / "artifact" / "level.txt"
    rise = request.rng.random() < 0.4
    level.write_text(str(int(level.read_text()) + rise))
    level.with_name("touched.txt").write_text(str(request.rng.random()))
    return "one more"
"""
CASES = """
import hashlib
import os
import time
from pathlib import Path

import pytest

LOG = Path(__file__).parent / "executed.log"
TRAIL = Path(__file__).parent / "trail.log"

def write(path, line):
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.write(descriptor, line.encode() + b"\\n")
    os.close(descriptor)

@pytest.fixture(autouse=True)
def trail(evo_artifact):
    write(TRAIL, "up")
    yield
    write(TRAIL, "down")

def judge(n, artifact):
    level = (artifact / "level.txt").read_bytes()
    touched = artifact / "touched.txt"
    more = touched.read_bytes() if touched.exists() else b""
    content = hashlib.sha256(level + b"|" + more).hexdigest()[:16]
    write(LOG, f"{{n}} {{os.environ['PYTEST_EVO_REPEAT']}} {{content}}")
    time.sleep({nap})
    assert int(level) >= n % {steps} + 1

@pytest.mark.evo(split="train")
@pytest.mark.parametrize("n", range({train}))
def test_train(n, evo_artifact):
    judge(n, evo_artifact)

@pytest.mark.evo(split="val")
@pytest.mark.parametrize("n", range({train}, {train} + {val}))
def test_val(n, evo_artifact):
    judge(n, evo_artifact)
"""
TOKEN = "SURVIVAL_TOKEN"
Key = tuple[str, str, str]
"""Names a rollout from outside: number of the case, repeat, content of the artifact."""


def make_survival_project(
    root: Path,
    *,
    train: int = 10,
    val: int = 10,
    nap: float = 0.02,
    think: float = 0.05,
    steps: int = 6,
    more: str = "",
) -> Path:
    """Write the project; returns its folder. ``more`` are further settings."""
    (root / "art").mkdir(parents=True)
    (root / "art" / "level.txt").write_text("0")
    (root / "pyproject.toml").write_text(PYPROJECT + more)
    (root / "proposals.py").write_text(PROPOSALS.format(think=think))
    cases = CASES.format(nap=nap, steps=steps, train=train, val=val)
    (root / "test_levels.py").write_text(cases)
    return root


def clean_environment(**more: str) -> dict[str, str]:
    """The environment of a session that is not one of pytest's own tests."""
    unwanted = ("PYTEST_", "COV_", "COVERAGE_PROCESS", TOKEN)
    kept = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    return {**kept, **more}


def pytest_command(*options: str) -> list[str]:
    """The command line of a run, without plugins that only cost start-up time."""
    unwanted = ("cacheprovider", "hypothesispytest", "anyio", "pytest_cov")
    blocked = [word for name in unwanted for word in ("-p", f"no:{name}")]
    return [sys.executable, "-m", "pytest", "--evolve", *blocked, *options]


# -- sessions --------------------------------------------------------------------------


@dataclass
class Session:
    """One ``pytest --evolve`` in a process group of its own, and all it started."""

    root: Path
    options: tuple[str, ...]
    token: str = field(default_factory=lambda: uuid4().hex)
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start it."""
        self.output = self.root / f"output-{self.token[:8]}.txt"
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                pytest_command(*self.options),
                cwd=self.root,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=clean_environment(**{TOKEN: self.token, **self.environment}),
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Whether the controller has ended."""
        return self.process.poll() is not None

    def text(self) -> str:
        """What it printed."""
        return self.output.read_text(errors="replace")

    def wait(self, seconds: float = 240.0) -> int:
        """Its exit status.

        Raises:
            AssertionError: it hangs.
        """
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            state = describe(self.living())
            self.destroy()
            raise AssertionError(f"hangs:\n{state}\n{self.text()}") from None

    def kill(self) -> None:
        """SIGKILL for the controller alone."""
        self.process.kill()
        self.process.wait()

    def living(self) -> list[int]:
        """Every process that the session started, however it was forked."""
        return processes_with(self.token)

    def workers(self) -> list[int]:
        """The workers of xdist."""
        mine = set(self.living()) - {self.process.pid}
        return [pid for pid in sorted(mine) if parent_of(pid) == self.process.pid]

    def children(self) -> list[int]:
        """The test processes."""
        workers = set(self.workers())
        return [pid for pid in self.living() if parent_of(pid) in workers]

    def seconds_until_gone(self, limit: float = 10.0) -> float:
        """How long something of it lives on.

        Raises:
            AssertionError: longer than ``limit`` seconds.
        """
        began = time.monotonic()
        while left := self.living():
            if time.monotonic() - began > limit:
                state = describe(left)
                self.destroy()
                raise AssertionError(f"left after {limit} s:\n{state}")
            time.sleep(0.05)
        return time.monotonic() - began

    def destroy(self) -> None:
        """End everything it started."""
        for pid in (self.process.pid, *self.living()):
            send(pid, signal.SIGKILL)
        self.process.wait()


def run_to_end(root: Path, *options: str, status: int | None = 0) -> Session:
    """Run to the end; insist on an exit status."""
    session = Session(root, options)
    found = session.wait()
    assert status is None or found == status, session.text()
    return session


def send(pid: int, number: int) -> bool:
    """Send a signal; False if there is no such process any more."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def processes_with(token: str) -> list[int]:
    """Living processes that were started with ``token`` in their environment."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if token.encode() in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def parent_of(pid: int) -> int:
    """Parent of a process; 0 if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return 0
    return int(stat.rpartition(b")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    """Direct children of a process, dead ones that nobody collected too."""
    found: list[int] = []
    try:
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_bytes().split())
    except OSError:
        pass
    return found


def describe(pids: Sequence[int]) -> str:
    """Some lines about processes."""
    rows = []
    for pid in pids:
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        rows.append(f"{pid} parent {status[1]} {status[0]} {command[:100]!r}")
    return "\n".join(rows)


# -- what ran --------------------------------------------------------------------------


def executed_keys(root: Path) -> list[Key]:
    """What really ran, in order, as the cases say themselves."""
    log = root / "executed.log"
    if not log.exists():
        return []
    rows = [line.split() for line in log.read_text().splitlines()]
    return [(row[0], row[1], row[2]) for row in rows]


def newest_run(root: Path) -> Path | None:
    """The directory of the newest run, if it has begun."""
    runs = root / ".evo" / "runs"
    if not runs.is_dir():
        return None
    found = [path for path in runs.iterdir() if (path / "run.json").exists()]
    return max(found, key=lambda path: path.name, default=None)


def can_resume(root: Path) -> bool:
    """Whether the newest run has read the artifact: else there is nothing to resume."""
    run = newest_run(root)
    if run is None:
        return False
    return json.loads((run / "run.json").read_text()).get("start_tree") is not None


def read_records(path: Path) -> list[dict[str, Any]]:
    """Whole records of a file of records; a torn tail is left out."""
    rows = []
    try:
        content = path.read_bytes()
    except FileNotFoundError:  # closed in this moment
        return []
    for line in content.split(b"\n"):
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def journal(root: Path) -> list[dict[str, Any]]:
    """The journal of the newest run."""
    run = newest_run(root)
    return [] if run is None else read_records(run / "journal.jsonl")


def all_records(root: Path) -> list[dict[str, Any]]:
    """The journal, and behind it what open scopes have noted."""
    run = newest_run(root)
    if run is None:
        return []
    notes = [read_records(path) for path in sorted((run / "open").glob("*.jsonl"))]
    return [*journal(root), *(row for rows in notes for row in rows)]


def of_kind(rows: Sequence[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    """The records of one kind."""
    return [row for row in rows if row["kind"] == kind]


class Contents:
    """Translates the tree of a record into the content that the cases saw."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, str] = {}

    def of(self, tree: str) -> str:
        """As the cases log it."""
        if tree not in self._known:
            self._known[tree] = self._read(tree)
        return self._known[tree]

    def _read(self, tree: str) -> str:
        run = newest_run(self._root)
        assert run is not None
        manifest = run / "trees" / f"{tree}.json"
        shas = {
            row["path"]: row["blob"]
            for row in json.loads(manifest.read_bytes())["entries"]
            if row["kind"] == "file"
        }
        parts = [self._blob(run, shas.get(f"{name}.txt")) for name in NAMES]
        return hashlib.sha256(b"|".join(parts)).hexdigest()[:16]

    def _blob(self, run: Path, sha: str | None) -> bytes:
        if sha is None:
            return b""
        return (run / "blobs" / sha[:2] / sha[2:]).read_bytes()


NAMES = ("level", "touched")


def key_of(row: Mapping[str, Any], contents: Contents) -> Key:
    """The outside name of a rollout in the journal."""
    number = row["case"].rpartition("[")[2].rstrip("]")
    return number, str(row["repeat"]), contents.of(row["tree"])


def finished_keys(root: Path, contents: Contents) -> set[Key]:
    """Rollouts that the run directory knows as finished for good."""
    return {
        key_of(row, contents)
        for row in of_kind(all_records(root), "rollout")
        if row["outcome"] in ("passed", "failed")
    }


# -- what came of it -------------------------------------------------------------------

VOLATILE = frozenset({"at", "seconds", "worker", "check", "seq", "trace", "scope"})
PASSING = frozenset({"resume", "closed", "stop"})


def end_state(root: Path) -> list[dict[str, Any]]:
    """All that a run found, without times and without what was lost on the way."""
    rows = []
    for row in journal(root):
        if row["kind"] in PASSING or row.get("outcome") == "lost":
            continue
        volatile = VOLATILE | ({"rollouts"} if row["kind"] == "iteration" else set())
        rows.append({k: v for k, v in row.items() if k not in volatile})
    stop = of_kind(journal(root), "stop")[-1]
    rows.append({k: stop[k] for k in ("kind", "reason", "winner", "iterations")})
    return rows


def without_attempts(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out first attempts that a crash took, and which attempt it was."""
    kept = []
    for row in rows:
        if row["kind"] == "rollout" and row["outcome"] in ("crashed", "error"):
            continue
        kept.append({k: v for k, v in row.items() if k != "attempt"})
    return kept


def check_books(root: Path) -> None:
    """Insist that no execution is missing in the journal and none is there twice."""
    contents = Contents(root)
    rows = of_kind(journal(root), "rollout")
    ran = Counter(executed_keys(root))
    booked = Counter(key_of(row, contents) for row in rows)
    assert not ran - booked, f"ran and was not charged: {dict(ran - booked)}"
    names = Counter(
        (row["tree"], row["case"], row["repeat"], row["attempt"])
        for row in rows
        if row["outcome"] != "lost"
    )
    twice = {name: count for name, count in names.items() if count > 1}
    assert not twice, f"recorded twice: {twice}"
    stop = of_kind(journal(root), "stop")[-1]
    assert stop["rollouts"] == len(rows), (stop["rollouts"], len(rows))


def differences(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> str:
    """The first differing records in words; empty if there are none."""
    for index, (one, other) in enumerate(zip(found, expected, strict=False)):
        if one != other:
            keys = [k for k in {*one, *other} if one.get(k) != other.get(k)]
            return f"record {index} ({one['kind']}, {other['kind']}): " + "; ".join(
                f"{key}: {one.get(key)!r} for {other.get(key)!r}" for key in keys
            )
    if len(found) != len(expected):
        return f"{len(found)} records for {len(expected)}"
    return ""


def reports_are_whole(root: Path) -> int:
    """Parse every report that is there; returns how many there are."""
    count = 0
    for path in (root / "evo-reports").rglob("*.xml"):
        ElementTree.parse(path)
        count += 1
    for path in (root / "evo-reports").rglob("*.json"):
        json.loads(path.read_text())
        count += 1
    return count


def reported_cases(root: Path) -> dict[str, list[tuple[str, str]]]:
    """Names and results of all JUnit files, by file."""
    found = {}
    for path in sorted((root / "evo-reports").rglob("*.xml")):
        found[str(path.relative_to(root))] = list(_cases(path))
    return found


def _cases(path: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        kinds = {child.tag for child in case} & {"failure", "error", "skipped"}
        yield f"{case.get('classname')}::{case.get('name')}", "".join(sorted(kinds))
