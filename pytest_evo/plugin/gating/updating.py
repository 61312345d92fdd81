"""``--evo-baseline-update``: measures the artifact as it is and writes it down."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from statistics import fmean
from statistics import variance

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.checks import read_artifact
from pytest_evo.artifact.repository import Repository
from pytest_evo.errors import BaselineProblem
from pytest_evo.errors import WorkersLost
from pytest_evo.gate.baseline import Baseline
from pytest_evo.gate.baseline import baseline_text
from pytest_evo.gate.baseline import BaselineCase
from pytest_evo.gate.baseline import file_digests
from pytest_evo.gate.baseline import read_baseline
from pytest_evo.gate.baseline import short_body
from pytest_evo.gate.baseline import short_fingerprint
from pytest_evo.gate.update import most_common
from pytest_evo.gate.update import SAMPLED
from pytest_evo.gate.update import TIMES
from pytest_evo.gate.update import UpdatePlan
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import GateExit
from pytest_evo.gate.values import Observation
from pytest_evo.models import CaseMark
from pytest_evo.models import Metric
from pytest_evo.models import Outcome
from pytest_evo.models import Tree
from pytest_evo.plugin.evolving import ExitCode
from pytest_evo.plugin.gating.bench import Bench
from pytest_evo.plugin.gating.measuring import Measurement
from pytest_evo.plugin.gating.measuring import StaleRead
from pytest_evo.plugin.gating.planning import environment_digest
from pytest_evo.plugin.gating.session import versions
from pytest_evo.plugin.gating.task import GateTask
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.reached import ReachedFiles
from pytest_evo.plugin.terminal import LiveDisplay
from pytest_evo.publish import write_report
from pytest_evo.reports.console import Line
from pytest_evo.reports.console import ProgressState
from pytest_evo.reports.text import visible

_SHOWN = 10


class Updating:
    """Measures every case of one version and writes the baseline file."""

    def __init__(self, task: GateTask, display: LiveDisplay) -> None:
        self._task = task
        self._display = display
        self._plan: UpdatePlan | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._interrupted = False
        self.lines: list[Line] = []

    def interrupt(self) -> None:
        """Ask for nothing more; nothing will be written."""
        self._interrupted = True
        if self._plan is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it is over
                self._loop.call_soon_threadsafe(self._plan.stop, "stopped by a person")

    def run(self, pool: Pool) -> int:
        """Measure and write; returns the exit status.

        Raises:
            UsageProblem: a person has to change something.
        """
        task, settings = self._task, self._task.settings
        bench = Bench(task, pool, self._display)
        blobs = MemoryBlobs()
        tree = read_artifact(task.artifact, task.schema, blobs)
        pool.set_source({tree.hash: tree}.__getitem__, blobs.get)
        marks = bench.suite.marks
        plan = self._plan = UpdatePlan(
            [mark.id for mark in marks],
            _declared(marks, everything=settings.noise == "none"),
            times=settings.repeats,
            budget=settings.budget_rollouts,
            seed=settings.seed,
        )
        if settings.dry_run:
            self._tell_cost(bench, plan)
            return int(GateExit.OK)
        measurement, problem = self._measure(bench, plan, tree)
        if self._interrupted:
            self.lines = [Line("evo: stopped; no baseline was written", "yellow")]
            return int(ExitCode.INTERRUPTED)
        why = problem or _incomplete(plan, marks)
        if why:
            self.lines = [
                Line("evo: the run is not complete, so no baseline was written", "red"),
                *(Line(f"  {visible(text)}") for text in why),
            ]
            return int(GateExit.INCOMPLETE)
        self._write(bench, plan, measurement, tree)
        return int(GateExit.OK)

    def _measure(
        self, bench: Bench, plan: UpdatePlan, tree: Tree
    ) -> tuple[Measurement, list[str]]:
        began = time.monotonic()

        def show(count: int) -> None:
            elapsed = time.monotonic() - began
            state = ProgressState(
                phase="baseline",
                accepted=None,
                rollouts_used=count,
                rollouts_limit=plan.budget,
                elapsed=elapsed,
                seconds_per_rollout=elapsed / max(1, count),
            )
            self._display.update(state)

        measurement = Measurement(
            plan,
            bench.pool,
            {Arm.HEAD: tree.hash},
            in_place=True,  # what stands at the fixed path is what is measured
            notice=show,
            keep_files=True,
        )
        try:
            asyncio.run(self._follow(measurement, plan, len(bench.suite.marks)))
        except (WorkersLost, StaleRead) as lost:
            return measurement, [str(lost)]
        return measurement, []

    async def _follow(
        self, measurement: Measurement, plan: UpdatePlan, cases: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        if self._interrupted:
            plan.stop("stopped by a person")
        await measurement.run(cases)

    def _tell_cost(self, bench: Bench, plan: UpdatePlan) -> None:
        cases = len(bench.suite.marks)
        rows = [
            f"cases: {cases} ({bench.cases_why})",
            f"rollouts: {cases}, and up to {2 * SAMPLED} to see what varies; cases "
            "that do, use the network or start processes run "
            f"{self._task.settings.repeats or TIMES} times",
            "nothing was run; leave out --evo-dry-run to start",
        ]
        self._display.note([Line(f"evo: {row}") for row in rows])

    # -- the file ----------------------------------------------------------------------

    def _write(
        self, bench: Bench, plan: UpdatePlan, measurement: Measurement, tree: Tree
    ) -> None:
        task, path = self._task, self._task.baseline_path
        before = _read(path)
        project = ReachedFiles(task.config.rootpath)
        noisy = plan.noisy
        cases = {}
        for mark in bench.suite.marks:
            rows = plan.seen[mark.id]
            files = measurement.measured.files.get(mark.id)
            read = tuple(sorted(files.project)) if files else ()
            cases[mark.id] = _case(
                mark,
                rows,
                fingerprint=bench.suite.fingerprints[mark.id],
                noisy=mark.id in noisy,
                reach=files.reach if files else None,
                project=read,
                digest=project.digest(read),
            )
        told = {"environment": environment_digest(task.settings), **versions()}
        baseline = Baseline(
            artifact=task.schema.directory,
            tree=tree.hash,
            files=file_digests(tree),
            bytes=sum(entry.size for entry in tree.entries),
            cases=cases,
            made=date.today(),
            commit=_commit(task.config.rootpath),
            versions=told,
        )
        try:
            write_report(path, baseline_text(baseline).encode())
        except OSError as error:
            raise BaselineProblem(
                f"cannot write {path}: {error.strerror or error}. Make it writable."
            ) from error
        self.lines = _told(path, baseline, before, measurement)


def _declared(marks: Sequence[CaseMark], *, everything: bool) -> dict[str, bool]:
    if everything:
        return {mark.id: True for mark in marks}
    return {
        mark.id: mark.deterministic for mark in marks if mark.deterministic is not None
    }


def _incomplete(plan: UpdatePlan, marks: Sequence[CaseMark]) -> list[str]:
    told = [plan.stopped] if plan.stopped else []
    missing = plan.missing
    told += [
        f"{row.case}: {row.outcome.value}: {row.message}" for row in missing[:_SHOWN]
    ]
    if len(missing) > _SHOWN:
        told.append(f"and {len(missing) - _SHOWN} more")
    unseen = [mark.id for mark in marks if mark.id not in plan.seen]
    if unseen and not told:
        told.append(f"{len(unseen)} cases were not run, for example {unseen[0]}")
    return told


def _case(
    mark: CaseMark,
    rows: Sequence[Observation],
    *,
    fingerprint: str,
    noisy: bool,
    reach: tuple[str, ...] | None,
    project: tuple[str, ...],
    digest: str,
) -> BaselineCase:
    scores = [row.score or 0.0 for row in rows]
    prices = [row.usd for row in rows]
    known = [price for price in prices if price is not None]
    return BaselineCase(
        id=mark.id,
        fingerprint=short_fingerprint(fingerprint),
        body=short_body(mark.body),
        outcome=most_common(rows),
        runs=len(rows),
        passes=sum(row.outcome is Outcome.PASSED for row in rows),
        mean=fmean(scores),
        variance=variance(scores) if len(scores) > 1 else 0.0,
        noisy=noisy,
        seconds=fmean(row.seconds for row in rows),
        tokens=fmean(row.tokens for row in rows),
        usd=fmean(known) if len(known) == len(prices) else None,
        metrics=_metrics(rows),
        reach=reach,
        project=project,
        project_digest=digest,
    )


def _metrics(rows: Sequence[Observation]) -> tuple[Metric, ...]:
    """The means of what was given with ``evo_score(name, value)``."""
    found: dict[tuple[str, bool], list[float]] = {}
    for row in rows:
        for metric in row.metrics:
            found.setdefault((metric.name, metric.audit), []).append(metric.value)
    return tuple(
        Metric(name, fmean(values), audit)
        for (name, audit), values in sorted(found.items())
    )


def _commit(rootdir: Path) -> str:
    """The commit that is checked out, where there is one; git is not needed."""
    try:
        return Repository(rootdir).head() or ""
    except BaselineProblem:
        return ""


def _read(path: Path) -> Baseline | None:
    try:
        return read_baseline(path.read_text(encoding="utf-8"), path.name)
    except (OSError, UnicodeDecodeError, BaselineProblem):
        return None


def _told(
    path: Path, new: Baseline, old: Baseline | None, measurement: Measurement
) -> list[Line]:
    outcomes = [case.outcome for case in new.cases.values()]
    noisy = sum(case.noisy for case in new.cases.values())
    mean = fmean(case.mean for case in new.cases.values())
    count = len(measurement.measured.observations)
    lines = [
        Line(
            f"evo: wrote {path.name}: {len(outcomes)} cases, mean {mean:.3f}, "
            f"{noisy} of them noisy, {count} rollouts",
            "green",
        )
    ]
    if not measurement.measured.reached and not measurement.measured.unknown:
        lines.append(
            Line("evo: no case opened a file of the artifact; look at that", "yellow")
        )
    if old is not None:
        gone = sorted(old.cases.keys() - new.cases.keys())
        if gone:
            shown = ", ".join(gone[:_SHOWN])
            lines.append(Line(f"evo: {len(gone)} cases are gone: {visible(shown)}"))
    lines.append(Line(f"next: git add {path.name} and commit it", "bold"))
    return lines
