"""One gate on the engine's thread: from collected cases to a verdict."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from datetime import UTC
from pathlib import Path

import pytest

import pytest_evo
from pytest_evo.artifact.checks import read_artifact
from pytest_evo.errors import WorkersLost
from pytest_evo.gate.planner import Planner
from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.record import Place
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import GatePolicy
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash
from pytest_evo.plugin.gating.bases import Base
from pytest_evo.plugin.gating.bench import Bench
from pytest_evo.plugin.gating.beside import Beside
from pytest_evo.plugin.gating.beside import look_beside
from pytest_evo.plugin.gating.beside import put_base_beside
from pytest_evo.plugin.gating.measuring import Measured
from pytest_evo.plugin.gating.measuring import Measurement
from pytest_evo.plugin.gating.measuring import StaleRead
from pytest_evo.plugin.gating.planning import GatePlan
from pytest_evo.plugin.gating.planning import make_gate_plan
from pytest_evo.plugin.gating.planning import make_policy
from pytest_evo.plugin.gating.planning import Suite
from pytest_evo.plugin.gating.task import GateTask
from pytest_evo.plugin.outages import outage_notes
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.terminal import LiveDisplay
from pytest_evo.reports.console import Line
from pytest_evo.reports.console import ProgressState
from pytest_evo.reports.text import visible
from pytest_evo.wording import count

_STOPPED = "stopped by a person"


class Gating:
    """Compares head and base; keeps the record of it."""

    def __init__(self, task: GateTask, base: Base, display: LiveDisplay) -> None:
        self._task = task
        self._base = base
        self._display = display
        self._planner: Planner | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._interrupted = False
        self._stopped = ""
        self._thrown_away = 0
        self._began = time.monotonic()
        self.measured = Measured()
        self.record: GateRecord | None = None

    @property
    def interrupted(self) -> bool:
        """Whether a person stopped it."""
        return self._interrupted

    def interrupt(self) -> None:
        """Ask for nothing more, from any thread; what runs may finish."""
        self._interrupted = True
        if self._planner is not None and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it is over
                self._loop.call_soon_threadsafe(self._planner.stop, _STOPPED)

    def run(self, pool: Pool) -> GateRecord | None:
        """Measure and record; None where it was only to be said what would happen.

        Raises:
            UsageProblem: a person has to change something.
        """
        with tempfile.TemporaryDirectory(prefix="pytest-evo-gate-") as scratch:
            return self._run(Bench(self._task, pool, self._display), Path(scratch))

    def _run(self, bench: Bench, scratch: Path) -> GateRecord | None:
        task, base = self._task, self._base
        head = read_artifact(task.artifact, task.schema, base.blobs)
        trees = {Arm.HEAD: head}
        if base.tree is not None:
            trees[Arm.BASE] = base.tree
        known = {tree.hash: tree for tree in trees.values()}
        bench.pool.set_source(known.__getitem__, base.blobs.get)
        bench.pool.configure(covered=[*bench.covered, str(scratch.resolve())])
        notes = list(base.notes)
        beside = look_beside(
            task,
            base,
            bench.suite,
            scratch,
            notes,
            read_early=bench.read_early and trees.get(Arm.BASE) != head,
        )
        plan = make_gate_plan(bench.suite, task.settings, base, head, beside.suite)
        plan = plan.beside(beside.changes)
        policy = make_policy(task.settings, head.hash)
        notes += plan.notes
        if task.settings.dry_run:
            self._announce(bench, plan, policy)
            self._tell_cost(plan, policy, [*notes])
            return None
        problems: list[str] = []
        stopped = ""
        if self._needs_nothing(plan, base, beside):
            notes.append(_why_nothing(plan, bench.suite, beside))
            plan = plan.with_nothing_reached()
        else:
            if task.settings.gate_arm == "tree":
                put_base_beside(bench, beside, scratch)
            elif beside.changes.code:
                notes.append(_code_note(beside.changes.code))
            self._announce(bench, plan, policy)
            hashes = {arm: tree.hash for arm, tree in trees.items()}
            stopped = self._measure(bench, plan, policy, hashes, notes, problems)
            problems += self._nobody_reads_it(stopped, plan)
        self.record = self._recorded(
            bench, plan, policy, head, notes, problems, stopped
        )
        return self.record

    def _needs_nothing(self, plan: GatePlan, base: Base, beside: Beside) -> bool:
        """Whether nothing that any case reaches has changed."""
        settings = self._task.settings
        if settings.gate_all or base.tree is None:
            return False
        if settings.gate_arm == "tree" and beside.changes.code:
            return False
        return not plan.changed or all(not case.reached for case in plan.cases)

    def _nobody_reads_it(self, stopped: str, plan: GatePlan) -> list[str]:
        """A comparison of something that no case reads would always pass."""
        seen = self.measured
        gone = any(case.passed for case in plan.change.removed)
        if gone and not self._task.settings.accept_removed:
            return []  # it does not pass, and who is gone may have read it
        if stopped or not seen.observations or seen.reached or seen.unknown:
            return []
        if all(row.outcome.is_infrastructure for row in seen.observations):
            return []
        return [
            f"no case opened a file of the artifact {self._task.schema.directory!r}, "
            "so what was measured says nothing of it. Read it in tests through the "
            "fixture evo_artifact, or declare the directory that is read."
        ]

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
        return self._stopped

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
        try:
            asyncio.run(self._with_time_limit(measurement, planner, len(plan.cases)))
        finally:
            self._stopped = planner.decision().stopped

    async def _with_time_limit(
        self, measurement: Measurement, planner: Planner, cases: int
    ) -> None:
        limit = self._task.settings.budget_time
        timer = None
        loop = self._loop = asyncio.get_running_loop()
        if self._interrupted:
            planner.stop(_STOPPED)
        if limit is not None:
            left = max(0.0, limit - (time.monotonic() - self._began))
            reason = f"the time limit of {limit:g} s was reached"
            timer = loop.call_later(left, planner.stop, reason)
        try:
            await measurement.run(cases)
        finally:
            if timer is not None:
                timer.cancel()

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
            f"{policy.margin:g}"
            + (f", tolerance {policy.tolerance:g}" if policy.tolerance else ""),
            *outage_notes(task.settings.infrastructure),
        ]
        self._display.note([Line(f"evo: {visible(row)}") for row in rows])

    def _tell_cost(
        self, plan: GatePlan, policy: GatePolicy, notes: Sequence[str]
    ) -> None:
        both = self._base.tree is not None
        planner = Planner(plan.cases, policy, plan.change, base_arm=both)
        first = len(planner.next(2 * len(plan.cases) + 1))
        rows = [
            *notes,
            f"first pass: {first} rollouts; at most {planner.budget} in all",
            "nothing was run; leave out --evo-dry-run to start",
        ]
        self._display.note([Line(f"evo: {visible(row)}") for row in rows])

    def _show(self, count: int, budget: int) -> None:
        self._display.update(
            ProgressState(
                phase="gate",
                accepted=None,
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
            prefix=base.repository.prefix if base.repository else "",
            base_commit=base.commit,
            base_tree=base.tree.hash if base.tree else _known_tree(base),
            head_tree=head.hash,
            arm=self._task.settings.gate_arm,
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


def _code_note(files: Sequence[str]) -> str:
    shown = ", ".join(files[:5])
    more = f" and {len(files) - 5} more" if len(files) > 5 else ""
    return (
        f"other files of the project changed too ({shown}{more}), and both sides ran "
        "with those of this change; --evo-gate-arm=tree gives the base its own"
    )


def _why_nothing(plan: GatePlan, suite: Suite, beside: Beside) -> str:
    if plan.changed:
        files = ", ".join(path for path, _ in plan.changed[:5])
        return (
            f"of {count(len(suite.marks), 'case')} none opens a file that changed "
            f"({files}): nothing was run; --evo-gate-all runs everything"
        )
    others = len(beside.changes.tests) + len(beside.changes.code)
    more = ""
    if others:
        more = (
            f" ({others} other files of the project changed; to compare those too: "
            "--evo-gate-arm=tree)"
        )
    return f"the artifact is the same on both sides: nothing was run{more}"
