"""In a child of the zygote: configure pytest from scratch, collect, run."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import traceback
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest
from _pytest.config import _prepareconfig

from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.plugin.canary import Judges
from pytest_evo.plugin.canary import Watch
from pytest_evo.plugin.child import prepare_child
from pytest_evo.plugin.emitting import FrameEmitter
from pytest_evo.plugin.emitting import last_word
from pytest_evo.plugin.environment import enter_environment
from pytest_evo.plugin.frames import FrameWriter
from pytest_evo.plugin.isolation import mount
from pytest_evo.plugin.isolation.candidates import quiet_bytecode
from pytest_evo.plugin.isolation.fresh import FreshTask
from pytest_evo.plugin.isolation.fresh import ZygoteSpec
from pytest_evo.plugin.isolation.reach import recorder
from pytest_evo.plugin.isolation.reach import Seen
from pytest_evo.plugin.isolation.relocation import Relocation
from pytest_evo.plugin.isolation.shield import keep_signals
from pytest_evo.plugin.itemrun import ItemRunner
from pytest_evo.plugin.messages import Farewell
from pytest_evo.plugin.messages import Finished
from pytest_evo.plugin.modelwatch import watch_models
from pytest_evo.plugin.options import is_active
from pytest_evo.plugin.processes import die_with_parent
from pytest_evo.plugin.processes import lead_session
from pytest_evo.plugin.rawrollout import RawRollout
from pytest_evo.plugin.session import prepare_session
from pytest_evo.plugin.spentnote import SpentNote

_OURS_TO_FAIL = (errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EDQUOT)
_SESSION_OPTIONS: Mapping[str, object] = {
    "evolve": False,
    "evo_gate": None,
    "evo_resume": None,
    "evo_dry_run": False,
    "evo_baseline_update": False,
    # as xdist does for its workers
    "dist": "no",
    "distload": False,
    "looponfail": False,
    "maxprocesses": None,
    "numprocesses": None,
    "tx": [],
    "usepdb": False,
    "collectonly": False,
    "maxfail": 0,
    "pyargs": False,
}


def run_task(task: FreshTask, spec: ZygoteSpec, frames: int, parent: int) -> NoReturn:
    """Do a task and leave the process; what goes wrong is told in the task's log."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        lead_session(parent)
        _redirect(task.log)
        _Run(task, spec, FrameWriter(frames), parent).go()
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


def _redirect(log: str | None) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    descriptor = os.open(log or os.devnull, flags, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


class _Run:
    def __init__(
        self, task: FreshTask, spec: ZygoteSpec, writer: FrameWriter, parent: int
    ) -> None:
        self._task = task
        self._spec = spec
        self._parent = parent
        self._seen_at = Path(task.artifact if task.mount else task.candidate)
        self._where = (
            Path(task.artifact),
            self._seen_at,
            Path(task.workspace or task.project),
        )
        self._writer = writer
        self._report = FrameEmitter(writer, *self._where, mounted=task.mount)
        self._spent = SpentNote(Path(task.basetemp)) if task.basetemp else None
        self._relocation = Relocation(Path(task.project), task.workspace)

    def go(self) -> None:
        """Collect what the task needs and run it."""
        self._enter()
        recorder().begin(*self._where, mounted=self._task.mount)
        collected = _Collection(self._task, self._spec, self._relocation)
        try:
            collected.collect()
        except (Exception, SystemExit, pytest.exit.Exception) as error:
            # Any code of the candidate may have run: whatever it raised, it is the
            # reason why its cases cannot be collected. Our own troubles are not.
            if _is_ours(error):
                raise
            collected.broken = _text_of(error)
        self._tell_missing(collected, recorder().end())
        runs = [run for run in self._task.runs if run[0] in collected.items]
        if not runs or collected.session is None or collected.config is None:
            self._writer.send(Farewell())
            return
        if self._task.basetemp:
            prepare_child(collected.config, Path(self._task.basetemp))
        if self._task.log:
            _empty(Path(self._task.log))
        runner = ItemRunner(collected.config, collected.session)
        items = [collected.items[case] for case, _ in runs]
        watch = Watch(collected.judges or Judges(), collected.config, items)
        try:
            runner.run(
                runs,
                collected.items,
                seed=self._task.seed,
                artifact=self._seen_at,
                emit=self._report,
                leave=recorder().wrote,
                spent=self._spent,
            )
        finally:
            self._writer.flush()
        self._writer.send(last_word(watch, runner, items))

    def _enter(self) -> None:
        task = self._task
        if task.environment is not None:
            enter_environment(self._relocation.environment(task.environment))
        quiet_bytecode()
        if task.mount:
            mount.enter(
                Path(task.candidate), Path(task.artifact), task.files, task.shield
            )
            die_with_parent(self._parent)  # new credentials forget it
        else:
            keep_signals()
        self._relocation.enter()

    def _tell_missing(self, collected: _Collection, seen: Seen) -> None:
        for case, repeat in self._task.runs:
            if case not in collected.items:
                why = collected.why_missing(case)
                phase = Phase("collect", Outcome.MISSING.value, 0.0, why, why)
                raw = RawRollout(Outcome.MISSING, None, detail=Detail((phase,)))
                self._writer.send(
                    Finished(
                        "",
                        case,
                        repeat,
                        reach=replace(seen.reach, exact=False),
                        project_files=seen.project_files,
                        payload=json.dumps(raw.to_plain()).encode(),
                    )
                )


class _Collection:
    """pytest's configuration and the items of the wanted cases."""

    def __init__(
        self, task: FreshTask, spec: ZygoteSpec, relocation: Relocation
    ) -> None:
        self._task = task
        self._spec = spec
        self._relocation = relocation
        self._failed: dict[str, str] = {}
        self.broken: str | None = None
        self.judges: Judges | None = None
        self.config: pytest.Config | None = None
        self.session: pytest.Session | None = None
        self.items: dict[CaseId, pytest.Item] = {}

    def collect(self) -> None:
        """Configure and collect; raises what the project's own code raises."""
        args = self._relocation.arguments(self._spec)
        config = self.config = _prepareconfig(args, None)
        for name, value in _SESSION_OPTIONS.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        if self._task.basetemp:
            config.option.basetemp = self._task.basetemp
        if self._spec.workerinput is not None:
            config.workerinput = dict(self._spec.workerinput)  # type: ignore[attr-defined]
            config.workeroutput = {}  # type: ignore[attr-defined]
        assert not is_active(config)
        watch_models(config)  # before test modules take names from the libraries
        prepare_session(config, [])
        session = self.session = pytest.Session.from_config(config)
        config._do_configure()
        config.pluginmanager.register(self, "evo-collection")
        config.hook.pytest_sessionstart(session=session)
        config.args = list(self._files(config.rootpath))
        self.judges = Judges()  # before test modules import the candidate
        if config.args:
            config.hook.pytest_collection(session=session)
        wanted = {case for case, _ in self._task.runs}
        for item in session.items if config.args else ():
            if item.nodeid in wanted:
                self.items.setdefault(item.nodeid, item)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be collected, and why."""
        if report.failed:
            self._failed[report.nodeid] = report.longreprtext[:10_000]

    def why_missing(self, case: CaseId) -> str:
        """Why a case has no item."""
        if self.broken is not None:
            return self.broken
        for node, text in self._failed.items():
            if not node or case == node or case.startswith((f"{node}::", f"{node}/")):
                return text
        return f"with this candidate the project has no case {case}"

    def _files(self, rootdir: Path) -> Iterable[str]:
        names = dict.fromkeys(case.split("::")[0] for case, _ in self._task.runs)
        for name in names:
            path = rootdir / name
            if path.exists():
                yield str(path)
            else:
                self._failed[name] = f"{name} does not exist with this candidate"


def _is_ours(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    return isinstance(error, OSError) and error.errno in _OURS_TO_FAIL


def _text_of(error: BaseException) -> str:
    """The error as pytest shows it at the start of a session."""
    cause = getattr(error, "cause", None)  # of a conftest that cannot be imported
    shown = cause if isinstance(cause, BaseException) else error
    return "".join(traceback.format_exception(shown))[-10_000:]


def _empty(log: Path) -> None:
    """The session's header is no news; what a crash writes is."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # closed by the project
                stream.flush()
    os.truncate(log, 0)
