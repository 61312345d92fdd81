"""What a rollout costs on persistent workers, against a fresh pytest per candidate.

    python tests/benchmarks/bench_rollouts.py [iterations]

200 trivial cases, batches of 4, fork isolation, ``-n 2``, journal and traces included.
All cases pass, with half a score; the same with every other case failing is shown too,
where most of the time is pytest writing tracebacks.
The figure is the time between the first and the last record of the search, by the
journal's own stamps, over the rollouts in between; the slower of two runs counts. In
the same minute a fresh ``pytest -n 2`` runs 4 of the cases, as one would without
workers that stay; the median of five counts.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

CASES = """
import pytest

@pytest.mark.parametrize("n", range(200))
def test_trivial(n, evo_artifact, evo_score):
    assert (evo_artifact / "level.txt").read_text() != str(n)
    evo_score(0.5)
    assert n % 2 or not {failing}
"""
PROPOSALS = """
def propose(request):
    path = request.workspace / "artifact" / "level.txt"
    path.write_text(f"x{request.iteration}")
    return "another text"
"""
SETTINGS = """
[tool.pytest_evo]
artifact = "art"
scripted = "proposals.py"
noise = "none"
chain_depth = 0
batch = 4
batches = "epoch"
"""


def main(iterations: int) -> None:
    with tempfile.TemporaryDirectory(prefix="bench-rollouts-") as folder:
        root = Path(folder)
        (root / "art").mkdir()
        (root / "art" / "level.txt").write_text("x")
        (root / "proposals.py").write_text(PROPOSALS)
        (root / "pyproject.toml").write_text(SETTINGS)
        failing = _evolve(root, iterations, failing=True)
        costs = [_evolve(root, iterations, failing=False) for _ in range(2)]
        fresh = statistics.median(_fresh(root) for _ in range(5))
        cost = max(costs)
        print(
            f"a rollout on persistent workers: {cost:.2f} ms (both runs: "
            f"{', '.join(f'{c:.2f}' for c in costs)}), bound 6 ms"
        )
        print(f"with every other case failing: {failing:.2f} ms")
        print(f"a rollout by a fresh pytest -n 2: {fresh:.0f} ms")
        print(f"ratio 1/{fresh / cost:.0f}, bound 1/25")


def _evolve(root: Path, iterations: int, *, failing: bool) -> float:
    (root / "test_trivial.py").write_text(CASES.format(failing=failing))
    command = [sys.executable, "-m", "pytest", "--evolve", "-n", "2", "-q"]
    command += [f"--budget-iterations={iterations}", "--evo-slots=2"]
    command += ["--evo-isolation=fork"]
    subprocess.run(command, cwd=root, check=True, stdout=subprocess.DEVNULL)
    run = sorted((root / ".evo" / "runs").iterdir())[-1]
    rows = [json.loads(row) for row in (run / "journal.jsonl").read_text().splitlines()]
    search = [
        datetime.fromisoformat(row["at"])
        for row in rows
        if row["kind"] == "rollout" and row["iteration"] > 0
    ]
    return 1e3 * (max(search) - min(search)).total_seconds() / len(search)


def _fresh(root: Path) -> float:
    cases = [f"test_trivial.py::test_trivial[{n}]" for n in (1, 3, 5, 7)]
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", *cases]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    began = time.perf_counter()
    subprocess.run(
        command, cwd=root, check=True, stdout=subprocess.DEVNULL, env=environment
    )
    return 1e3 * (time.perf_counter() - began) / len(cases)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 150)
