"""Stop ``pytest --evolve`` politely, share its run, starve its budget.

    python tests/proofs/stop_harness.py [--parts signals,two,budgets] [--seed 1]

signals: Ctrl-C, SIGTERM and SIGHUP, once and twice, to the controller and to its whole
group, at several moments; the run is resumed and must end like an undisturbed one.
two: a second controller on the same run, two runs side by side. budgets: what ran,
counted by the cases, never exceeds --budget-rollouts. Exit status 1 if anything failed.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from survival import can_resume
from survival import check_books
from survival import differences
from survival import end_state
from survival import executed_keys
from survival import journal
from survival import make_survival_project
from survival import of_kind
from survival import reports_are_whole
from survival import run_to_end
from survival import Session

OPTIONS = ("--budget-iterations=6", "-n", "2", "--evo-slots=2", "--evo-batch=4")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SOFT_SECONDS = 15.0
HARD_SECONDS = 10.0
REFUSED = 4
Part = Callable[[], str]


def lines(root: Path, name: str) -> list[str]:
    """Lines of a log of the cases."""
    path = root / name
    return path.read_text().split() if path.exists() else []


def wait_for(session: Session, rollouts: int) -> None:
    """Wait until so many rollouts have begun."""
    while not session.ended and len(executed_keys(session.root)) < rollouts:
        time.sleep(0.005)


def strike(
    root: Path, number: int, times: int, group: bool, after: tuple[str, float]
) -> Session:
    """Start a run and send it signals."""
    session = Session(root, OPTIONS)
    if after[0] == "seconds":
        time.sleep(after[1])
    else:
        wait_for(session, int(after[1]))
    for _ in range(times):
        if group:
            os.killpg(session.process.pid, number)
        else:
            os.kill(session.process.pid, number)
        time.sleep(0.3)
    return session


def stop_and_resume(
    base: Path,
    calm: list[dict[str, Any]],
    number: int,
    times: int,
    group: bool,
    after: tuple[str, float],
) -> str:
    """Stop once or twice; insist on status, torn-down fixtures, resume, same end."""
    root = make_survival_project(base, nap=0.1)
    session = strike(root, number, times, group, after)
    began = time.monotonic()
    status = session.wait(120)
    took = time.monotonic() - began
    session.seconds_until_gone(10.0)
    text = session.text()
    assert "INTERNALERROR" not in text, text
    assert took < (SOFT_SECONDS if times == 1 else HARD_SECONDS), f"took {took:.1f} s"
    ran = len(executed_keys(root))
    in_search = after[0] == "rollouts"
    assert status != 0, text
    if in_search:
        assert status == 2, f"status {status}: {text}"
        assert "--evo-resume=" in text, text
        reports_are_whole(root)
    if times == 1 and in_search:
        trail = lines(root, "trail.log")
        assert trail.count("up") == trail.count("down"), "fixtures not torn down"
    assert not of_kind(journal(root), "final")
    resume = ("--evo-resume=last",) if can_resume(root) else ()
    run_to_end(root, *OPTIONS, *resume)
    wrong = differences(end_state(root), calm)
    assert not wrong, wrong
    check_books(root)
    return f"status {status} in {took:.1f} s, {ran} rollouts"


def signal_parts(base: Path, rng: random.Random) -> Iterator[tuple[str, Part]]:
    """All combinations, each at a moment of its own."""
    root = make_survival_project(base / "calm", nap=0.1)
    run_to_end(root, *OPTIONS)
    calm = end_state(root)
    total = len(executed_keys(root))
    moments = [("seconds", rng.uniform(0.5, 3.0)), ("rollouts", 5), ("rollouts", 45)]
    moments += [("rollouts", rng.randint(61, total - 10)) for _ in range(9)]
    for index, after in enumerate(moments):
        number = SIGNALS[index % 3]
        times = 1 + index // 3 % 2
        group = index % 2 == 1
        name = (
            f"{signal.Signals(number).name} x{times}{' to the group' if group else ''}"
            f" after {after[1]:.1f} {after[0]}"
        )

        def part(
            i: int = index,
            n: int = number,
            t: int = times,
            g: bool = group,
            a: tuple[str, float] = after,
        ) -> str:
            return stop_and_resume(base / f"signal-{i}", calm, n, t, g, a)

        yield name, part


def second_controller(base: Path) -> str:
    """A second controller on the same run is refused before any rollout."""
    root = make_survival_project(base / "two", nap=0.1)
    first = Session(root, OPTIONS)
    wait_for(first, 10)
    before = (root / ".evo").stat()
    second = Session(root, (*OPTIONS, "--evo-resume=last"))
    status = second.wait()
    assert status == REFUSED, second.text()
    assert str(first.process.pid) in second.text(), second.text()
    assert before.st_ino == (root / ".evo").stat().st_ino
    assert first.wait() == 0, first.text()
    check_books(root)
    return f"refused with status {status}"


def side_by_side(base: Path) -> str:
    """Two runs in one project, each with a store of its own, and one store for both."""
    root = make_survival_project(base / "beside", nap=0.05)
    sessions = [
        Session(root, (*OPTIONS, f"--evo-run-dir=.evo{n}", f"--evo-reports=reports{n}"))
        for n in (1, 2)
    ]
    for session in sessions:
        assert session.wait() == 0, session.text()
    states = []
    for n in (1, 2):
        (root / ".evo").unlink(missing_ok=True)
        (root / ".evo").symlink_to(f".evo{n}")
        states.append(end_state(root))
    wrong = differences(*states)
    assert not wrong, wrong
    return "same end"


def budget(base: Path, total: int, workers: int) -> str:
    """Whatever runs is at most the budget, a resume included."""
    root = make_survival_project(base, train=3, val=2, nap=0.01)
    options = (f"--budget-rollouts={total}", "-n", str(workers), "--evo-slots=2")
    if total > 100:
        options += ("--budget-iterations=6",)
    session = Session(root, options)
    status = session.wait()
    text = session.text()
    assert "INTERNALERROR" not in text, text
    assert "Traceback" not in text, text
    ran = len(executed_keys(root))
    assert ran <= total, f"{ran} rollouts ran"
    if status == REFUSED:
        assert ran == 0 or "--budget-rollouts" in text, text
    else:
        assert status == 0, text
        assert ran == of_kind(journal(root), "stop")[-1]["rollouts"]
    if can_resume(root):
        again = Session(root, (*options, "--evo-resume=last"))
        again.wait()
        ran = len(executed_keys(root))
        assert ran <= total, f"{ran} rollouts ran after the resume"
    return f"status {status}, {ran} rollouts"


def malformed(base: Path, value: str) -> str:
    """No budget at all: a usage error before anything runs."""
    root = make_survival_project(base, train=3, val=2)
    session = Session(root, (f"--budget-rollouts={value}", "-n", "0"))
    status = session.wait()
    assert status == REFUSED, session.text()
    assert "Traceback" not in session.text(), session.text()
    assert not executed_keys(root)
    return f"status {status}"


def budget_parts(base: Path) -> Iterator[tuple[str, Part]]:
    """Those of the smallest runs, and what is no number."""
    for workers, totals in (
        (2, (0, 1, 4, 5, 6, 7, 9, 10, 11, 30, 71, 1000)),
        (8, (11, 68, 83)),
    ):
        for total in totals:
            folder = base / f"budget-{workers}-{total}"
            yield (
                f"budget {total}, {workers} workers",
                lambda f=folder, t=total, w=workers: budget(f, t, w),
            )
    for index, value in enumerate(("-1", "1.5", "abc", "1e3", "")):
        yield (
            f"budget {value!r}",
            lambda f=base / f"malformed-{index}", v=value: malformed(f, v),
        )


def main() -> int:
    """Run the parts that were asked for."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:  # in the background; inherited
            signal.signal(number, signal.SIG_DFL)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", default="signals,two,budgets")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    base = Path(tempfile.mkdtemp(prefix="stop-harness-"))
    wanted = arguments.parts.split(",")
    parts: list[tuple[str, Part]] = []
    if "two" in wanted:
        parts += [
            ("second controller", lambda: second_controller(base)),
            ("side by side", lambda: side_by_side(base)),
        ]
    if "budgets" in wanted:
        parts += budget_parts(base)
    if "signals" in wanted:
        parts += signal_parts(base, random.Random(arguments.seed))
    results, failed = {}, 0
    for name, part in parts:
        try:
            results[name] = part()
            print(f"ok   {name}: {results[name]}", flush=True)
        except AssertionError as error:
            failed += 1
            results[name] = f"FAILED: {str(error)[:2500]}"
            print(f"FAIL {name}: {str(error)[:2500]}", flush=True)
    print(json.dumps({"seed": arguments.seed, "failed": failed}))
    if not failed:
        shutil.rmtree(base, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
