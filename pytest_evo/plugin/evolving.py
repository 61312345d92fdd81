"""One ``--evolve`` on the engine's thread: from collected cases to reports."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Sequence
from enum import IntEnum
from functools import partial
from pathlib import Path

import pytest

from pytest_evo.artifact.workshop import DirectoryWorkshop
from pytest_evo.diagnosis.files import write_evidence
from pytest_evo.diagnosis.none import NoDiagnosis
from pytest_evo.engine.budget import Budget
from pytest_evo.engine.draws import SeededDraws
from pytest_evo.engine.loop import Loop
from pytest_evo.engine.loop import Prospect
from pytest_evo.engine.loop import RunEnd
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Strategy
from pytest_evo.engine.softstop import Interrupted
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.errors import SettingsProblem
from pytest_evo.errors import UsageProblem
from pytest_evo.errors import WorkersLost
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import CaseMark
from pytest_evo.models import START
from pytest_evo.plugin import diagnosing
from pytest_evo.plugin import hooks
from pytest_evo.plugin import planning
from pytest_evo.plugin import runfiles
from pytest_evo.plugin.announcing import Header
from pytest_evo.plugin.diagnosing import Reading
from pytest_evo.plugin.dryrun import dry_run_rows
from pytest_evo.plugin.faults import Faults
from pytest_evo.plugin.isolating import Calibration
from pytest_evo.plugin.knowing import Knowing
from pytest_evo.plugin.observing import RunObserver
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.redaction import Redaction
from pytest_evo.plugin.redaction import secrets_of
from pytest_evo.plugin.room import is_full
from pytest_evo.plugin.runfiles import RunFiles
from pytest_evo.plugin.scratch import give_back
from pytest_evo.plugin.scratch import scratch_directory
from pytest_evo.plugin.scratch import SCRATCH_PREFIX
from pytest_evo.plugin.task import Task
from pytest_evo.plugin.terminal import LiveDisplay
from pytest_evo.publish import apply_candidate
from pytest_evo.publish import look_command
from pytest_evo.publish import publish
from pytest_evo.reports.console import Line
from pytest_evo.reports.ending import is_gain
from pytest_evo.reports.model import RunReport
from pytest_evo.settings import Settings
from pytest_evo.store.disk import failed
from pytest_evo.store.view import load_run
from pytest_evo.strategies.presets import make_strategy

LEAST_POPULATION = 3


class ExitCode(IntEnum):
    """Exit codes of a session under ``--evolve`` beside pytest's own."""

    OK = 0
    NO_GAIN = 1
    INTERRUPTED = 2
    INCOMPLETE = 17


class Evolution:
    """Runs a task on a pool and keeps what a person should see at its end."""

    def __init__(self, task: Task, display: LiveDisplay, in_process: bool) -> None:
        self._task = task
        self._config = task.config
        self._display = display
        self._in_process = in_process
        self._loop: Loop | None = None
        self._stop_early = False
        self._redaction = Redaction({})
        self._reading = Reading(NoDiagnosis())
        self.report: RunReport | None = None
        self.look = ""
        self.run_id = ""
        self.problems: list[str] = []
        self.hints: list[str] = []

    def interrupt(self) -> None:
        """Ask for a soft stop."""
        self._stop_early = True
        if self._loop is not None:
            self._loop.interrupt()

    def run(self, pool: Pool) -> int:
        """Run on the engine's thread; return the exit status.

        Raises:
            UsageProblem: a person has to change something.
        """
        hello = pool.hellos[0]
        settings = self._task.settings
        marks, how = planning.choose_cases(hello.marks, hello.how, settings)
        settings = settings.model_copy(
            update={
                "slots": planning.choose_slots(
                    settings, pool.expected, self._in_process
                )
            }
        )
        seed, slots = settings.seed, settings.slots or 1
        self._task.models.check_tape(seed, slots)
        if settings.dry_run:
            self._task.models.check()
            rows = dry_run_rows(self._task, settings, marks, how)
            self._display.note([Line(f"evo: {row}") for row in rows])
            self._display.close()
            return int(ExitCode.OK)
        self._task.models.probe(budget_usd=settings.budget_usd)
        files = self._open(settings, marks)
        self.run_id = files.directory.id
        self._task.archive.folder = files.directory.path / "proposer"
        self._task.notices.forward(
            lambda text: self._display.note([Line(f"evo: {text}", "red")])
        )
        pool.configure(run=self.run_id)
        self._redaction = Redaction(secrets_of(os.environ, self._task.artifact))
        pool.loads = self._redaction.loads
        pool.notice = lambda text: self._display.note([Line(f"evo: {text}")])
        never_began = False
        try:
            self._task.models.begin_tape(self.run_id, seed, slots)
            status = self._run(pool, settings, marks, how, files)
            self._remark(status)
            return status
        except UsageProblem:
            never_began = not files.resumed and not pool.finished_rollouts
            raise
        finally:
            self._task.models.close()
            files.close()
            if never_began:
                shutil.rmtree(files.directory.path, ignore_errors=True)
                self._task.models.discard_tape()

    def _remark(self, status: int) -> None:
        """Say what became of the cassette.

        Raises:
            ModelProblem: something was asked that is not on it.
        """
        ended = status in (ExitCode.OK, ExitCode.NO_GAIN)
        remark = self._task.models.remark(ended=ended)
        if remark:
            self.hints.append(remark)

    def _open(self, settings: Settings, marks: Sequence[CaseMark]) -> RunFiles:
        task = self._task
        if task.resume is None:
            return runfiles.create_run(
                self._config.rootpath, settings, task.schema, task.artifact
            )
        files = runfiles.resume_run(task.resume)
        runfiles.check_fingerprints(files, marks, self._config.rootpath)
        return files

    def _run(
        self,
        pool: Pool,
        settings: Settings,
        marks: Sequence[CaseMark],
        how: str,
        files: RunFiles,
    ) -> int:
        splits, split_how = planning.explicit_splits(marks, settings)
        plan = planning.make_plan(settings, self._task.schema, files.start, splits)
        limits, default = planning.make_limits(settings, marks, plan)
        pool.seed = settings.seed
        pool.set_source(files.trees.get, files.blobs.get)
        calibration = self._calibration(pool, settings, marks, files)
        observer = RunObserver(self._config, self._display, files.candidates)
        size = sum(entry.size for entry in files.trees.get(files.start).entries)
        workspaces = scratch_directory(SCRATCH_PREFIX, size)
        own = runfiles.own_folders(self._config.rootpath, settings)
        pool.configure(covered=[*own, str(workspaces.resolve())])
        try:
            parts = self._make_parts(
                pool, settings, marks, files, workspaces, calibration, observer
            )
            self._loop = Loop(parts, plan, limits)
            observer.follow(self._loop)
            header = Header(
                task=self._task,
                settings=settings,
                files=files,
                budget=planning.limit_texts(limits, default),
                cases_why=how,
                split_why=split_how,
                calibration=calibration,
                show=self._display.note,
            ).announce
            return self._loop_to_end(self._loop, settings, files, header)
        finally:
            self._reading.close()
            give_back(workspaces)

    def _calibration(
        self,
        pool: Pool,
        settings: Settings,
        marks: Sequence[CaseMark],
        files: RunFiles,
    ) -> Calibration:
        return Calibration(
            settings,
            self._task.schema,
            pool,
            marks,
            files.journal,
            files.rollouts,
            self._config.rootpath,
            files.isolation(),
        )

    def _loop_to_end(
        self,
        loop: Loop,
        settings: Settings,
        files: RunFiles,
        announce: Callable[[Prospect], None],
    ) -> int:
        if self._stop_early:
            loop.interrupt()
        if files.resumed:
            self._go_on(loop, files, settings)
        end: RunEnd | None = None
        status = ExitCode.OK
        try:
            end = self._run_loop(loop, announce)
        except Interrupted:
            status = ExitCode.INTERRUPTED
        except (WorkersLost, ModelFailed) as lost:
            self.problems.append(str(lost))
            status = ExitCode.INCOMPLETE
            if self._stop_early:
                status = ExitCode.INTERRUPTED
        finally:
            self._display.close()
            if loop.state.population:
                self._publish_last(settings, files)
            elif status is not ExitCode.OK:
                self.hints.append(
                    "the baseline is not complete; go on with: pytest --evolve "
                    f"--evo-resume={self.run_id}"
                )
        if end is not None:
            self._after(settings, files, end)
            status = self._demanded(settings, end)
        return int(status)

    def _go_on(self, loop: Loop, files: RunFiles, settings: Settings) -> None:
        """Note that a run goes on.

        Raises:
            RunDirectoryProblem: it has ended for good, and was given more budget.
        """
        if not loop.finished_before():
            runfiles.mark_resumed(files, settings)
            told = runfiles.resume_warnings(
                files, self._task.schema, self._task.artifact
            )
            self._display.note([Line(f"warning: {text}", "yellow") for text in told])
        elif runfiles.raised_budgets(files, settings):
            raise RunDirectoryProblem(
                f"run {files.directory.id} has ended and its winner is measured; more "
                "budget would choose another one after the look at the final split. "
                "Leave the budget out to see its result again, or start a new run: "
                "pytest --evolve"
            )

    def _run_loop(self, loop: Loop, announce: Callable[[Prospect], None]) -> RunEnd:
        """Run to the end; a full disk is told as such."""
        try:
            end = asyncio.run(loop.run(announce))
        except OSError as error:
            if not is_full(error):
                raise
            raise failed(
                error, Path(error.filename or tempfile.gettempdir())
            ) from error
        if end.repeated:
            self._display.note(
                [Line(f"run {self.run_id} has ended already; nothing to do")]
            )
        return end

    def _demanded(self, settings: Settings, end: RunEnd) -> ExitCode:
        """The exit code of a run that has ended; its reason in words."""
        if not settings.require_gain or _has_gain(end):
            return ExitCode.OK
        if end.winner.candidate.id != START:
            self.hints.append(
                "exit code 1, for --evo-require-gain: the gain may be noise"
            )
        return ExitCode.NO_GAIN

    def _publish_last(self, settings: Settings, files: RunFiles) -> None:
        """Write the reports; what has ended the run is told before what they lack."""
        ended_by = sys.exception()
        try:
            self._publish(settings, files)
        except UsageProblem as problem:
            if ended_by is None:
                raise
            self.problems.append(str(problem))

    # -- parts -------------------------------------------------------------------------

    def _make_parts(
        self,
        pool: Pool,
        settings: Settings,
        marks: Sequence[CaseMark],
        files: RunFiles,
        workspaces: Path,
        calibration: Calibration,
        observer: RunObserver,
    ) -> Parts:
        knowing = Knowing(settings, marks, self._cases, files.blobs.get)
        self._reading = diagnosing.open_reading(
            self._task, files, self._redaction.text, self._budget, knowing
        )
        workshop = self._workshop(workspaces, files, knowing)
        return Parts(
            evaluator=hooks.make_evaluator(self._config) or pool,
            workshop=workshop,
            proposer=self._task.proposer,
            diagnoser=self._reading.diagnoser,
            strategy=strategy_of(self._config, settings),
            journal=files.journal,
            rollouts=files.rollouts,
            clock=files.clock,
            draws=SeededDraws(settings.seed),
            observer=observer,
            marks=marks,
            calibrate=calibration.settle,
            fault=Faults(self._task.archive, self._task.notices).keep,
            gather=diagnosing.gatherer(
                self._task, files, self._redaction.text, knowing
            ),
        )

    def _workshop(
        self, root: Path, files: RunFiles, knowing: Knowing
    ) -> DirectoryWorkshop:
        return DirectoryWorkshop(
            root,
            files.blobs,
            files.trees,
            self._task.schema,
            # search reads its request, not files
            write_evidence=(
                None if self._task.proposer_name == "search" else write_evidence
            ),
            user_check=lambda path: hooks.check_artifact(self._config, path),
            remarks=None if self._task.proposer_name == "search" else knowing.copied,
        )

    def _cases(self) -> Sequence[Case]:
        return () if self._loop is None else self._loop.state.cases

    def _budget(self) -> Budget | None:
        return None if self._loop is None else self._loop.budget

    # -- the end -----------------------------------------------------------------------

    def _publish(self, settings: Settings, files: RunFiles) -> None:
        publish(
            files.directory.path,
            self._config.rootpath / settings.reports,
            told=partial(self._take_report, files),
        )

    def _take_report(self, files: RunFiles, run: RunReport) -> None:
        self.report = run
        if run.winner == START:
            return
        known = {record.tree for record in run.candidates}
        changed = runfiles.changed(files, self._task.schema, self._task.artifact, known)
        if changed:
            self.hints.append(
                f"{changed}: pytest-evo apply refuses until that is undone, and "
                "overwrites it with --force"
            )
            self.look = f"pytest-evo diff {self.run_id}"

    def _after(self, settings: Settings, files: RunFiles, end: RunEnd) -> None:
        winner: Candidate | None = end.winner.candidate
        if winner is not None and winner.id == START:
            winner = None
        if settings.apply and winner is not None:
            view = load_run(files.directory.path)
            apply_candidate(view, self._config.rootpath, winner.id)
            self.look = look_command(self._config.rootpath, self.run_id, winner.id)
        hooks.run_finished(self._config, files.directory.path, winner, end.stop.reason)


def _has_gain(end: RunEnd) -> bool:
    """Whether something better was found, and it is no noise where that was tested."""
    if end.winner.candidate.id == START or end.final is None:
        return False
    return is_gain(end.final.claim)


def strategy_of(config: pytest.Config, settings: Settings) -> Strategy:
    """The strategy that the settings name, from a hook or of ours.

    Raises:
        SettingsProblem: it cannot be made.
    """
    made = hooks.make_strategy(config, settings.strategy)
    if made is None:
        return make_strategy(settings, population_size(settings))
    if isinstance(made, Strategy):
        return made
    raise SettingsProblem(
        f"pytest_evo_make_strategy returned {type(made).__name__} for "
        f"{settings.strategy!r}; return a pytest_evo.engine.parts.Strategy"
    )


def population_size(settings: Settings) -> int:
    """How many candidates survive."""
    return settings.top_n or max(LEAST_POPULATION, 2 * (settings.slots or 1))
