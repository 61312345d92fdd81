"""The engine by itself: what an iteration and a rollout cost beside evaluating.

    python tests/benchmarks/bench_engine.py [iterations]

A real journal on disk, real workspaces of a 1 MB artifact, an evaluator that answers at
once. Every proposal is rejected, as most are. Figures are milliseconds of wall time;
what the evaluator's own answers take is measured apart and taken off.
"""

from __future__ import annotations

import asyncio
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

from pytest_evo.artifact.trees import snapshot
from pytest_evo.artifact.workshop import DirectoryWorkshop
from pytest_evo.engine.budget import Limits
from pytest_evo.engine.draws import SeededDraws
from pytest_evo.engine.loop import Loop
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Plan
from pytest_evo.events import Event
from pytest_evo.events import IterationClosed
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import CaseMark
from pytest_evo.models import Outcome
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.plugin.scratch import scratch_directory
from pytest_evo.protocols import Diagnosed
from pytest_evo.protocols import ProposalRequest
from pytest_evo.protocols import Request
from pytest_evo.settings import Settings
from pytest_evo.store.blobs import DirectoryBlobs
from pytest_evo.store.clock import RunClock
from pytest_evo.store.journal import FileJournal
from pytest_evo.store.trees import TreeFiles
from pytest_evo.strategies.presets import make_strategy
from pytest_evo.testing.doubles import MemoryRollouts

FILES, FILE_BYTES, CASES = 20, 50_000, 60


class Instant:
    """Half of the cases fail, whatever the candidate is."""

    async def submit(self, request: Request) -> AsyncIterator[Rollout]:
        for case, repeat in request.runs:
            good = int(case.split("[")[1][:-1]) % 2 == 0
            yield Rollout(
                request.candidate,
                request.tree,
                case,
                repeat,
                Outcome.PASSED if good else Outcome.FAILED,
                float(good),
                0.001,
                reach=Reach(("file00.txt",)),
                worker="gw0",
            )

    async def cancel(self, request_id: str) -> None: ...

    def capacity(self) -> int:
        return 2


class Touch:
    """Changes one file of the artifact."""

    def propose(self, request: ProposalRequest) -> str:
        path = request.workspace / "artifact" / "file00.txt"
        text = f"{request.iteration} {request.step}\n"
        path.write_bytes(text.encode() + path.read_bytes()[len(text) :])
        return "one line"


class Silent:
    async def diagnose(self, nodes: object) -> Diagnosed:
        return Diagnosed()


class Stopwatch:
    def __init__(self) -> None:
        self.at: list[float] = []
        self.memory: list[int] = []

    def notice(self, event: Event) -> None:
        if isinstance(event, IterationClosed):
            self.at.append(time.perf_counter())
            if event.iteration % 500 == 0:
                self.memory.append(_resident())


def _resident() -> int:
    with Path("/proc/self/statm").open() as file:
        return int(file.read().split()[1]) * resource.getpagesize() // 1024


def main(iterations: int) -> None:
    root = Path(tempfile.mkdtemp(prefix="bench-engine-"))
    try:
        _measure(root, iterations)
    finally:
        shutil.rmtree(root)


def _measure(root: Path, iterations: int) -> None:
    source = root / "artifact"
    source.mkdir()
    for index in range(FILES):
        (source / f"file{index:02}.txt").write_bytes(b"x" * (FILE_BYTES - 1) + b"\n")
    (root / "run").mkdir()
    blobs, trees = DirectoryBlobs(root / "blobs"), TreeFiles(root / "trees")
    start = trees.put(snapshot(source, blobs))
    schema = ArtifactSchema("artifact")
    work = scratch_directory("bench-engine-", FILES * FILE_BYTES)
    clock, watch = RunClock(), Stopwatch()
    parts = Parts(
        evaluator=Instant(),
        workshop=DirectoryWorkshop(work, blobs, trees, schema),
        proposer=Touch(),
        diagnoser=Silent(),
        strategy=make_strategy(Settings(), 3),
        journal=FileJournal(root / "run", clock),
        rollouts=MemoryRollouts(),
        clock=clock,
        draws=SeededDraws(0),
        observer=watch,
        marks=[CaseMark(f"t.py::t[{i}]", "t.py", 1, "") for i in range(CASES)],
    )
    plan = Plan(schema, "", start, depth=0)
    loop = Loop(parts, plan, Limits(iterations=iterations))
    began = time.perf_counter()
    asyncio.run(loop.run(lambda prospect: None))
    total = time.perf_counter() - began
    shutil.rmtree(work)
    _report(watch, total, loop.budget.total, iterations)


def _report(watch: Stopwatch, total: float, rollouts: int, iterations: int) -> None:
    gaps = [b - a for a, b in zip(watch.at, watch.at[1:], strict=False)]
    early = sorted(gaps[50:150])[50] * 1e3
    late = sorted(gaps[-100:])[50] * 1e3
    print(f"{iterations} iterations, {rollouts} rollouts, {total:.1f} s")
    print(f"an iteration: {1e3 * total / iterations:.2f} ms (mean), bound 5 ms")
    print(
        f"iteration ~100: {early:.2f} ms, last 100: {late:.2f} ms (medians), "
        f"ratio {late / early:.2f}, bound 2"
    )
    if watch.memory:
        print(f"resident memory every 500 iterations, KiB: {watch.memory}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
