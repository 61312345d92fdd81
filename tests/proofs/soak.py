"""Run 20,000 rollouts and watch that nothing grows.

    python tests/proofs/soak.py [--rollouts 20000] [--slots 8] [--workers 2]

Trivial cases, fork isolation. Every two seconds resident memory, open descriptors and
child processes of the controller and of each worker are sampled. Prints medians of the
first and the last quarter as JSON; exit status 1 where something grew.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "integration"))

from survival import children_of
from survival import journal
from survival import of_kind
from survival import processes_with
from survival import Session

PYPROJECT = """
[tool.pytest_evo]
artifact = "art"
objective = "never ends"
scripted = "proposals.py"
isolation = "fork"
"""
PROPOSALS = """
def propose(request):
    path = request.workspace / "artifact" / "number.txt"
    path.write_text(str(request.rng.random()))
    return "another number"
"""
CASES = """
import hashlib
import pytest

def passes(n, artifact):
    text = f"{n} {(artifact / 'number.txt').read_text()}"
    return hashlib.sha256(text.encode()).digest()[0] % 2

@pytest.mark.evo(split="train")
@pytest.mark.parametrize("n", range(24))
def test_train(n, evo_artifact):
    assert passes(n, evo_artifact)

@pytest.mark.evo(split="val")
@pytest.mark.parametrize("n", range(24, 48))
def test_val(n, evo_artifact):
    assert passes(n, evo_artifact)
"""
MEGABYTE = 1 << 20
WARMED_UP = 0.05  # of all samples are left out: imports, first allocations


@dataclass(frozen=True)
class Sample:
    """Of one process at one moment."""

    at: float
    memory: int
    descriptors: int
    processes: int


def take(pid: int, began: float) -> Sample | None:
    """Look at a process; None if it is gone."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
        memory = int(status.partition("VmRSS:")[2].split()[0]) * 1024
        descriptors = len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except (OSError, IndexError):
        return None
    return Sample(time.monotonic() - began, memory, descriptors, len(children_of(pid)))


def watch(session: Session, every: float) -> dict[str, list[Sample]]:
    """Sample until the run has ended."""
    began = time.monotonic()
    rows: dict[str, list[Sample]] = {}
    names: dict[int, str] = {session.process.pid: "controller"}
    while not session.ended:
        for pid in session.workers():
            names.setdefault(pid, f"worker {len(names) - 1}")
        for pid, name in names.items():
            sample = take(pid, began)
            if sample is not None:
                rows.setdefault(name, []).append(sample)
        time.sleep(every)
    return rows


def quarters(samples: Sequence[Sample]) -> dict[str, list[float]]:
    """First and last quarter of each measure, warm-up left out."""
    kept = samples[int(len(samples) * WARMED_UP) :]
    size = max(1, len(kept) // 4)
    first, last = kept[:size], kept[-size:]
    found = {}
    for name in ("memory", "descriptors", "processes"):
        pair = [median(getattr(row, name) for row in part) for part in (first, last)]
        scale = MEGABYTE if name == "memory" else 1
        found[name] = [round(value / scale, 1) for value in pair]
    return found


def grown(name: str, row: dict[str, list[float]]) -> list[str]:
    """What is more at the end than at the beginning, in words."""
    limits = {"memory": 1.10, "descriptors": 1.0, "processes": 1.0}
    slack = {"memory": 8.0, "descriptors": 4.0, "processes": 2.0}
    return [
        f"{measure} of {name} grew from {first} to {last}"
        for measure, (first, last) in row.items()
        if last > first * limits[measure] + slack[measure]
    ]


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=20_000)
    parser.add_argument("--slots", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--every", type=float, default=2.0)
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="soak-"))
    (root / "art").mkdir()
    (root / "art" / "number.txt").write_text("0")
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "proposals.py").write_text(PROPOSALS)
    (root / "test_numbers.py").write_text(CASES)
    began = time.monotonic()
    session = Session(
        root,
        (
            f"--budget-rollouts={arguments.rollouts}",
            f"--evo-slots={arguments.slots}",
            *("-n", str(arguments.workers)),
        ),
    )
    try:
        rows = watch(session, arguments.every)
        status = session.wait(60)
        seconds = time.monotonic() - began
        session.seconds_until_gone(10.0)
    finally:
        session.destroy()
    assert status == 0, session.text()[-4000:]
    stop = of_kind(journal(root), "stop")[-1]
    table = {name: quarters(samples) for name, samples in sorted(rows.items())}
    problems = [text for name, row in table.items() for text in grown(name, row)]
    report = {
        "rollouts": stop["rollouts"],
        "iterations": stop["iterations"],
        "reason": stop["reason"],
        "seconds": round(seconds, 1),
        "rollouts_per_second": round(stop["rollouts"] / seconds, 1),
        "first_and_last_quarter": table,
        "left_over": len(processes_with(session.token)),
        "problems": problems,
    }
    print(json.dumps(report, indent=1))
    print(session.text()[-600:])
    shutil.rmtree(root, ignore_errors=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
