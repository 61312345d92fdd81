"""One gate on the engine's thread: from collected cases to a verdict."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from datetime import UTC

import pytest

import pytest_evo
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import WorkersLost
from pytest_evo.gate.planner import Planner
from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.record import Place
from pytest_evo.gate.suite import KnownCase
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import GatePolicy
from pytest_evo.models import CaseMark
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash
from pytest_evo.plugin import planning
from pytest_evo.plugin.gating.bases import Base
from pytest_evo.plugin.gating.measuring import Measured
from pytest_evo.plugin.gating.measuring import Measurement
from pytest_evo.plugin.gating.measuring import StaleRead
from pytest_evo.plugin.gating.planning import GatePlan
from pytest_evo.plugin.gating.planning import known_cases
from pytest_evo.plugin.gating.planning import make_gate_plan
from pytest_evo.plugin.gating.planning import make_policy
from pytest_evo.plugin.gating.planning import Suite
from pytest_evo.plugin.gating.task import GateTask
from pytest_evo.plugin.isolating import choose_isolation
from pytest_evo.plugin.isolating import MOST_TIMEOUT
from pytest_evo.plugin.isolation.choose import Choice
from pytest_evo.plugin.isolation.choose import WORKSPACE
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.redaction import Redaction
from pytest_evo.plugin.redaction import secrets_of
from pytest_evo.plugin.terminal import LiveDisplay
from pytest_evo.reports.console import Line
from pytest_evo.reports.console import ProgressState
from pytest_evo.settings import Settings


class Bench:
    """A pool made ready for versions of one artifact."""

    def __init__(self, task: GateTask, pool: Pool, display: LiveDisplay) -> None:
        hello = pool.hellos[0]
        settings = task.settings
        self.task = task
        self.pool = pool
        self.display = display
        marks, how = planning.choose_cases(hello.marks, hello.how, settings)
        self.cases_why = how
        raw = {mark.id: mark.fingerprint for mark in hello.marks}
        rootdir = task.config.rootpath
        chosen = {mark.id: raw[mark.id] for mark in marks}
        self.suite = Suite(marks, chosen, rootdir)
        self.choice = choose_isolation(settings, task.schema, pool.hellos, ())
        pool.set_isolation(self.choice.mode, self.choice.mount)
        secrets = secrets_of(os.environ, task.artifact)
        pool.loads = Redaction(secrets).loads
        pool.notice = lambda text: display.note([Line(f"evo: {text}")])
        pool.seed = settings.seed
        pool.set_timeouts(_timeouts(marks, settings), settings.timeout or MOST_TIMEOUT)

    @property
    def in_place(self) -> bool:
        """Whether a version stands at the artifact's own path."""
        return self.choice.mount or self.choice.mode == WORKSPACE

    def stand_in_place(self, why: str) -> None:
        """Run copies of the project from now on."""
        self.choice = Choice(WORKSPACE, False, why)
        self.pool.set_isolation(self.choice.mode, False)


def _timeouts(marks: Sequence[CaseMark], settings: Settings) -> dict[str, float]:
    limits = {}
    for mark in marks:
        limit = mark.timeout or settings.timeout
        if limit is not None:
            limits[mark.id] = limit
    return limits


class Gating:
    """Compares head and base; keeps the record of it."""

    def __init__(self, task: GateTask, base: Base, display: LiveDisplay) -> None:
        self._task = task
        self._base = base
        self._display = display
        self._planner: Planner | None = None
        self._interrupted = False
        self._thrown_away = 0
        self._began = time.monotonic()
        self.measured = Measured()
        self.record: GateRecord | None = None

    @property
    def interrupted(self) -> bool:
        """Whether a person stopped it."""
        return self._interrupted

    def interrupt(self) -> None:
        """Ask for nothing more; what runs may finish."""
        self._interrupted = True
        if self._planner is not None:
            self._planner.stop("stopped by a person")

    def run(self, pool: Pool) -> GateRecord:
        """Measure and record.

        Raises:
            UsageProblem: a person has to change something.
        """
        task, base = self._task, self._base
        bench = Bench(task, pool, self._display)
        head = snapshot(
            task.artifact,
            base.blobs,
            include=task.schema.include,
            max_bytes=task.schema.max_bytes,
            max_files=task.schema.max_files,
        )
        trees = {Arm.HEAD: head}
        if base.tree is not None:
            trees[Arm.BASE] = base.tree
        known = {tree.hash: tree for tree in trees.values()}
        pool.set_source(known.__getitem__, base.blobs.get)
        plan = make_gate_plan(
            bench.suite, task.settings, base, head, self._known_suite(bench)
        )
        policy = make_policy(task.settings, head.hash)
        notes = [*base.notes, *plan.notes]
        problems: list[str] = []
        stopped = ""
        if self._needs_nothing(plan, base):
            notes.append(_why_nothing(plan, bench.suite))
        else:
            self._announce(bench, plan, policy)
            hashes = {arm: tree.hash for arm, tree in trees.items()}
            stopped = self._measure(bench, plan, policy, hashes, notes, problems)
        self.record = self._recorded(
            bench, plan, policy, head, notes, problems, stopped
        )
        return self.record

    def _known_suite(self, bench: Bench) -> Sequence[KnownCase] | None:
        known = self._base.known
        return None if known is None else known_cases(known)

    def _needs_nothing(self, plan: GatePlan, base: Base) -> bool:
        """Whether nothing that any case reaches has changed."""
        if self._task.settings.gate_all or base.tree is None:
            return False
        return not plan.changed or all(not case.reached for case in plan.cases)

    # -- measuring ---------------------------------------------------------------------

    def _measure(
        self,
        bench: Bench,
        plan: GatePlan,
        policy: GatePolicy,
        trees: dict[Arm, TreeHash],
        notes: list[str],
        problems: list[str],
    ) -> str:
        """Run the plan; begin again in copies of the project where that is needed."""
        try:
            self._run_plan(bench, plan, policy, trees)
        except StaleRead as stale:
            self._thrown_away = len(self.measured.observations)
            why = f"{stale} is read from the artifact's fixed path; no mount here"
            bench.stand_in_place(why)
            notes.append(
                f"{why}: begun again in copies of the project, "
                f"{self._thrown_away} rollouts were thrown away"
            )
            try:
                self._run_plan(bench, plan, policy, trees)
            except WorkersLost as lost:
                problems.append(str(lost))
        except WorkersLost as lost:
            problems.append(str(lost))
        return "stopped by a person" if self._interrupted else self._stopped

    _stopped = ""

    def _run_plan(
        self,
        bench: Bench,
        plan: GatePlan,
        policy: GatePolicy,
        trees: dict[Arm, TreeHash],
    ) -> None:
        if policy.rollouts is not None and self._thrown_away:
            left = max(0, policy.rollouts - self._thrown_away)
            policy = replace(policy, rollouts=left)
        planner = Planner(plan.cases, policy, plan.change, base_arm=Arm.BASE in trees)
        self._planner = planner
        if self._interrupted:
            planner.stop("stopped by a person")
        measurement = Measurement(
            planner,
            bench.pool,
            trees,
            in_place=bench.in_place,
            unreached=plan.unreached,
            changed={path for path, _ in plan.changed},
            notice=lambda count: self._show(count, planner.budget),
        )
        self.measured = measurement.measured
        asyncio.run(self._with_time_limit(measurement, planner, len(plan.cases)))

    async def _with_time_limit(
        self, measurement: Measurement, planner: Planner, cases: int
    ) -> None:
        limit = self._task.settings.budget_time
        timer = None
        if limit is not None:
            loop = asyncio.get_running_loop()
            left = max(0.0, limit - (time.monotonic() - self._began))
            self._limit = f"the time limit of {limit:g} s was reached"
            timer = loop.call_later(left, self._stop, planner)
        try:
            await measurement.run(cases)
        finally:
            if timer is not None:
                timer.cancel()

    def _stop(self, planner: Planner) -> None:
        self._stopped = self._limit
        planner.stop(self._limit)

    # -- what a person sees -------------------------------------------------------

    def _announce(self, bench: Bench, plan: GatePlan, policy: GatePolicy) -> None:
        base, task = self._base, self._task
        run = sum(case.reached for case in plan.cases)
        left = len(plan.cases) - run
        against = f"{base.name} ({base.commit[:12]})" if base.commit else base.name
        files = ", ".join(path for path, _ in plan.changed[:5])
        more = f" and {len(plan.changed) - 5} more" if len(plan.changed) > 5 else ""
        rows = [
            f"gate: {task.schema.directory} against {against}",
            f"changed: {files}{more}" if files else "changed: no file of the artifact",
            f"cases: {len(plan.cases)} ({bench.cases_why})"
            + (f", {left} of them cannot be reached" if left else ""),
            f"isolation: {bench.choice.mode}"
            f"{' with mount' if bench.choice.mount else ''}: {bench.choice.why}",
            f"policy: {'strict' if policy.strict else 'default'}, margin "
            f"{policy.margin:g}",
        ]
        self._display.note([Line(f"evo: {row}") for row in rows])

    def _show(self, count: int, budget: int) -> None:
        self._display.update(
            ProgressState(
                phase="gate",
                rollouts_used=count,
                rollouts_limit=budget,
                elapsed=time.monotonic() - self._began,
                seconds_per_rollout=(time.monotonic() - self._began) / max(1, count),
            )
        )

    # -- the record --------------------------------------------------------------------

    def _recorded(
        self,
        bench: Bench,
        plan: GatePlan,
        policy: GatePolicy,
        head: Tree,
        notes: Sequence[str],
        problems: Sequence[str],
        stopped: str,
    ) -> GateRecord:
        base = self._base
        return GateRecord(
            artifact=self._task.schema.directory,
            base=base.name,
            base_commit=base.commit,
            base_tree=base.tree.hash if base.tree else _known_tree(base),
            head_tree=head.hash,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            isolation=bench.choice.mode,
            cases=plan.cases,
            policy=policy,
            change=plan.change,
            observations=tuple(self.measured.observations),
            stopped=stopped,
            notes=tuple(notes),
            problems=tuple(problems),
            nothing_run=not self.measured.observations and not problems,
            places={mark.id: Place(mark.file, mark.line) for mark in bench.suite.marks},
            versions=versions(),
            seconds=time.monotonic() - self._began,
        )


def versions() -> dict[str, str]:
    """What the figures were made with."""
    return {
        "pytest": pytest.__version__,
        "pytest-evo": pytest_evo.__version__,
        "python": platform.python_version(),
    }


def _known_tree(base: Base) -> TreeHash:
    return base.known.tree if base.known is not None else ""


def _why_nothing(plan: GatePlan, suite: Suite) -> str:
    if not plan.changed:
        return "the artifact is the same on both sides: nothing was run"
    files = ", ".join(path for path, _ in plan.changed[:5])
    return (
        f"none of the {len(suite.marks)} cases opens a file that changed ({files}): "
        "nothing was run; --evo-gate-all runs everything"
    )
