"""Kill ``pytest --evolve`` at random moments and compare its end with a calm run.

    python tests/proofs/kill_harness.py [--kills 60] [--seed 1] [--parts LIST]

Parts: controller (SIGKILL, then resume), worker and child (SIGKILL, no resume), stop
(SIGSTOP of a worker), torn (every kind of torn file, then resume or refusal and
repair). Prints figures as JSON at its end; exit status 1 if anything did not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from survival import all_records
from survival import can_resume
from survival import check_books
from survival import Contents
from survival import differences
from survival import end_state
from survival import executed_keys
from survival import finished_keys
from survival import make_survival_project
from survival import of_kind
from survival import reported_cases
from survival import reports_are_whole
from survival import run_to_end
from survival import send
from survival import Session
from survival import without_attempts
from torn_files import damage
from torn_files import MIDDLE
from torn_files import TAIL

OPTIONS = ("-n", "2", "--evo-slots=2", "--evo-batch=4", "--evo-chain-depth=3")
GONE = 10.0
APART = 12
"""Executed cases between two kills, at least: more than are in flight."""


@dataclass
class Calm:
    """The undisturbed run and what is expected of every other one."""

    root: Path
    options: tuple[str, ...]
    seconds: float = 0.0
    state: list[dict[str, Any]] = field(default_factory=list)
    reports: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    lines: int = 0

    def compare(self, root: Path) -> None:
        """Insist on the same end."""
        wrong = differences(end_state(root), self.state)
        assert not wrong, wrong
        assert reported_cases(root) == self.reports, "other reports"
        check_books(root)


def calm_run(base: Path, iterations: int) -> Calm:
    """Run once without any harm."""
    root = make_survival_project(base / "calm")
    calm = Calm(root, (f"--budget-iterations={iterations}", *OPTIONS))
    began = time.monotonic()
    run_to_end(root, *calm.options)
    calm.seconds = time.monotonic() - began
    calm.state = end_state(root)
    calm.reports = reported_cases(root)
    calm.lines = len(executed_keys(root))
    check_books(root)
    return calm


# -- the controller ----------------------------------------------------------------


class Moment:
    """When to kill: after a time, after a number of rollouts, or near the end."""

    def __init__(self, rng: random.Random, calm: Calm, already: int) -> None:
        self.kind = rng.choices(("lines", "time", "stop"), (6, 3, 1))[0]
        self._delay = rng.uniform(0.0, 0.15)
        self._seconds = rng.uniform(0.1, calm.seconds)
        self._lines = rng.randint(already, max(already + 1, calm.lines))
        self._end = rng.uniform(0.0, 0.4)

    def wait(self, session: Session, began: float) -> None:
        """Wait for it, or for the end of the session."""
        while not session.ended:
            if self.kind == "time" and time.monotonic() - began > self._seconds:
                return
            if self.kind == "lines" and count_lines(session.root) >= self._lines:
                time.sleep(self._delay)
                return
            if self.kind == "stop" and has_stopped(session.root):
                time.sleep(self._end)
                return
            time.sleep(0.004)


def count_lines(root: Path) -> int:
    """Rollouts that have begun."""
    log = root / "executed.log"
    return log.read_bytes().count(b"\n") if log.exists() else 0


def is_retried(root: Path) -> bool:
    """Whether something that was killed waits for its second attempt, or has it.

    A retry comes when all else of its step has run, which may be many rollouts later.
    """
    rows = of_kind(all_records(root), "rollout")
    keys = {
        attempt: {
            (row["tree"], row["case"], row["repeat"])
            for row in rows
            if row["attempt"] == attempt and row["outcome"] != "lost"
            if attempt or row["outcome"] == "crashed"
        }
        for attempt in (0, 1)
    }
    return bool(keys[0] - keys[1])


def has_stopped(root: Path) -> bool:
    """Whether the journal has a last record."""
    return any(
        b'"kind":"stop"' in path.read_bytes()
        for path in root.glob(".evo/runs/*/journal.jsonl")
    )


@dataclass
class Figures:
    """What is reported at the end."""

    kills: dict[str, int] = field(default_factory=dict)
    runs: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    gone_after: float = 0.0
    phases: dict[str, int] = field(default_factory=dict)
    lost: int = 0

    def count(self, what: str, number: int = 1) -> None:
        """Add kills."""
        self.kills[what] = self.kills.get(what, 0) + number


def phase(root: Path) -> str:
    """Where a run was when it was killed."""
    rows = all_records(root)
    kinds = {row["kind"] for row in rows}
    for kind in ("stop", "final", "iteration", "noise"):
        if kind in kinds:
            return f"after {kind}"
    return "baseline" if kinds else "start"


def kill_controller(
    base: Path, calm: Calm, rng: random.Random, kills: int, figures: Figures
) -> int:
    """One run, killed some times, resumed to its end; returns how many kills."""
    root = make_survival_project(base)
    contents = Contents(root)
    done = 0
    finished: list[tuple[int, set[Any]]] = []
    old: list[Session] = []
    while done < kills:
        resume = ("--evo-resume=last",) if can_resume(root) else ()
        moment = Moment(rng, calm, count_lines(root))
        session = Session(root, (*calm.options, *resume))
        old.append(session)
        moment.wait(session, time.monotonic())
        if session.ended:
            assert session.wait() == 0, session.text()
            if has_stopped(root):
                break
            continue
        session.kill()
        done += 1
        where = f"{moment.kind}, {phase(root)}"
        figures.phases[where] = figures.phases.get(where, 0) + 1
        if rng.random() < 0.5:
            took = session.seconds_until_gone(GONE)
            figures.gone_after = max(figures.gone_after, took)
            # Nothing runs any more, so nothing that is finished can come again.
            if can_resume(root):
                keys = finished_keys(root, contents)
                finished.append((count_lines(root), keys))
        reports_are_whole(root)
    run_last(root, calm)
    for session in old:
        session.seconds_until_gone(GONE)
    for at, keys in finished:
        again = [key for key in executed_keys(root)[at:] if key in keys]
        assert not again, f"finished and run again: {again}"
    calm.compare(root)
    figures.lost += sum(
        row["outcome"] == "lost" for row in of_kind(all_records(root), "rollout")
    )
    return done


def run_last(root: Path, calm: Calm) -> None:
    """Go on undisturbed; twice, for a run that has ended must not change."""
    resume = ("--evo-resume=last",) if can_resume(root) else ()
    run_to_end(root, *calm.options, *resume)
    before = count_lines(root)
    again = run_to_end(root, *calm.options, "--evo-resume=last")
    assert "has ended already" in again.text(), again.text()
    assert count_lines(root) == before


# -- workers and test processes ----------------------------------------------------


def harm_processes(
    base: Path, calm: Calm, rng: random.Random, kills: int, what: str
) -> int:
    """One run whose workers or test processes are harmed; it must survive alone."""
    root = make_survival_project(base, more="timeout = 3\n" if what == "stop" else "")
    session = Session(root, calm.options)
    done = 0
    targets = sorted(rng.randint(1, calm.lines) for _ in range(kills))
    stopped: list[int] = []
    earliest = 0
    try:
        for target in targets:
            target = max(target, earliest)
            while not session.ended and count_lines(root) < target:
                time.sleep(0.004)
            while not session.ended and is_retried(root):
                time.sleep(0.02)
            time.sleep(rng.uniform(0.0, 0.05))
            pids = session.children() if what == "child" else session.workers()
            pids = [pid for pid in pids if pid not in stopped]
            if not pids or session.ended:
                continue
            victim = rng.choice(pids)
            number = signal.SIGSTOP if what == "stop" else signal.SIGKILL
            done += send(victim, number)
            stopped.append(victim)
            # What was killed is tried once more; killed again it would be a crash.
            earliest = count_lines(root) + APART
        status = session.wait(600)
        assert status == 0, session.text()
        session.seconds_until_gone(GONE)
    finally:
        session.destroy()
    assert reports_are_whole(root)
    wrong = differences(without_attempts(end_state(root)), without_attempts(calm.state))
    assert not wrong, wrong
    check_books(root)
    return done


# -- torn files --------------------------------------------------------------------


def tear(base: Path, calm: Calm, rng: random.Random, how: str) -> str:
    """Kill, damage, resume; a refusal must be mended by a repair. Returns which."""
    root = make_survival_project(base)
    session = Session(root, calm.options)
    # Later than baseline and noise, so that there is a middle to be damaged.
    target = rng.randint(calm.lines // 2, calm.lines - 5)
    while not session.ended and count_lines(root) < target:
        time.sleep(0.004)
    session.kill()
    session.seconds_until_gone(GONE)
    run = next((root / ".evo" / "runs").glob("2*"))
    damage(run, how, rng)
    resumed = run_to_end(root, *calm.options, "--evo-resume=last", status=None)
    text = resumed.text()
    assert "Traceback" not in text, text
    assert "INTERNALERROR" not in text, text
    if resumed.process.returncode == 0:
        assert how not in MIDDLE, "damage in the middle was not noticed"
        verdict = "resumed"
    else:
        assert resumed.process.returncode == 4, text
        assert "pytest-evo repair" in text or "Restore" in text, text
        repair(root)
        run_to_end(root, *calm.options, "--evo-resume=last")
        verdict = "refused, repaired, resumed"
    state = differences(end_state(root), calm.state)
    assert not state, state
    return verdict


def repair(root: Path) -> None:
    """``pytest-evo repair last``."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest_evo", "repair", "last"],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


# -- all of it ---------------------------------------------------------------------


def attempt(figures: Figures, name: str, work: Callable[[], Any], base: Path) -> None:
    """Run one part; keep the folder of a failure."""
    began = time.monotonic()
    try:
        found = work()
        print(f"ok   {name}: {found} ({time.monotonic() - began:.1f} s)", flush=True)
        shutil.rmtree(base, ignore_errors=True)
    except Exception as error:  # noqa: BLE001 - reported, and the harness goes on
        text = "".join(traceback.format_exception_only(error))
        tail = traceback.extract_tb(error.__traceback__)[-1]
        figures.failures.append(f"{name}: {text.strip()[:3000]} (in {tail.name})")
        print(f"FAIL {name} in {base}: {text.strip()[:3000]}", flush=True)


def main() -> int:
    """Run the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=8)
    parser.add_argument("--parts", default="controller,worker,child,stop,torn")
    parser.add_argument("--worker-kills", type=int, default=20)
    arguments = parser.parse_args()
    parts = arguments.parts.split(",")
    base = Path(tempfile.mkdtemp(prefix="kill-harness-"))
    figures = Figures()
    calm = calm_run(base, arguments.iterations)
    shutil.rmtree(calm.root / ".evo")
    print(f"calm run: {calm.seconds:.1f} s, {calm.lines} rollouts", flush=True)
    for part in parts:
        part_by_name(part, base, calm, arguments, figures)
    print(json.dumps({"seed": arguments.seed, **vars(figures)}, indent=1))
    return 1 if figures.failures else 0


def part_by_name(
    part: str, base: Path, calm: Calm, arguments: Any, figures: Figures
) -> None:
    """Run one part as often as it was asked for."""
    number = 0
    if part == "torn":
        for number, how in enumerate((*TAIL, *MIDDLE)):
            rng = random.Random(f"{arguments.seed}-torn-{number}")
            folder = base / f"torn-{how}"
            attempt(
                figures,
                f"torn {how}",
                lambda f=folder, r=rng, h=how: tear(f, calm, r, h),
                folder,
            )
        return
    wanted = {
        "controller": arguments.kills,
        "worker": arguments.worker_kills,
        "child": arguments.worker_kills,
        "stop": 2,
    }[part]
    while figures.kills.get(part, 0) < wanted and number < 3 * wanted:
        number += 1
        rng = random.Random(f"{arguments.seed}-{part}-{number}")
        left = wanted - figures.kills.get(part, 0)
        kills = min(left, rng.randint(3, 6) if part != "stop" else 1)
        folder = base / f"{part}-{number}"

        def work(f: Path = folder, r: random.Random = rng, k: int = kills) -> int:
            if part == "controller":
                done = kill_controller(f, calm, r, k, figures)
            else:
                done = harm_processes(f, calm, r, k, part)
            figures.count(part, done)
            return done

        before = len(figures.failures)
        attempt(figures, f"{part} {number} ({kills} kills)", work, folder)
        figures.runs[part] = figures.runs.get(part, 0) + 1
        if len(figures.failures) > before:
            figures.count(part, 1)


if __name__ == "__main__":
    sys.exit(main())
