"""What ``--evo-gate`` does in the controller: checks, a session, the verdict."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from typing import NoReturn

import pytest

from pytest_evo.gate.record import GateRecord
from pytest_evo.gate_reports.console import verdict_lines
from pytest_evo.gate_reports.publish import publish_gate
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.plugin.controller import open_session
from pytest_evo.plugin.controller import worker_input
from pytest_evo.plugin.evolving import ExitCode
from pytest_evo.plugin.gating.bases import Base
from pytest_evo.plugin.gating.session import Gating
from pytest_evo.plugin.gating.task import make_gate_task
from pytest_evo.plugin.gating.uncollected import judge_collection
from pytest_evo.plugin.gating.updating import Updating
from pytest_evo.plugin.isolation.reach import recorder
from pytest_evo.plugin.junitxml import report_cases
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.pools.inprocess import InProcessSession
from pytest_evo.plugin.session import usage_errors
from pytest_evo.plugin.terminal import LiveDisplay
from pytest_evo.plugin.terminal import make_display
from pytest_evo.reports.console import Line

_SCRATCH = "pytest-evo-gate-"
_MARKUP = {"dim": "light"}  # what pytest's terminal writer calls it


class GateController:
    """Registered where the gate was asked for and this is not a worker.

    Raises:
        UsageProblem: from construction on, whatever a person has to change.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        with recorder().paused():  # with -n 0 this process collects too
            self._task = make_gate_task(config)
        self._work: Gating | Updating | None = None
        self._latest: Mapping[CaseId, Detail] = {}
        self._stopped_early = False
        self._lines: list[Line] = []
        self._commands: tuple[str, ...] = ()
        self._session = open_session(
            config,
            worker_input(config, self._task.settings, self._task.schema),
            self._run,
            self._soft_stop,
        )

    def _run(self, pool: Pool) -> int:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        display = make_display(reporter, quiet=self._config.option.verbose < 0)
        base = self._task.base
        try:
            if base is None:
                return self._update(pool, display)
            return self._judge(pool, display, base)
        finally:
            display.close()

    def _update(self, pool: Pool, display: LiveDisplay) -> int:
        updating = Updating(self._task, display)
        self._begin(updating)
        status = updating.run(pool)
        self._lines = updating.lines
        return status

    def _judge(self, pool: Pool, display: LiveDisplay, base: Base) -> int:
        gating = Gating(self._task, base, display)
        self._begin(gating)
        record = gating.run(pool)
        if record is None:
            return int(ExitCode.OK)
        self._latest = gating.measured.latest
        status = self._tell(record, gating.measured.failed)
        return int(ExitCode.INTERRUPTED) if gating.interrupted else status

    def _tell(self, record: GateRecord, details: Mapping[CaseId, Detail]) -> int:
        """Publish what came of it; returns the exit status that goes with it."""
        decision = record.decision()
        self._lines = verdict_lines(decision, record)  # told also if no file can be
        reports = self._config.rootpath / self._task.settings.reports
        done = publish_gate(decision, record, reports, details=details)
        self._commands = done.commands
        return int(decision.exit_code)

    def _begin(self, work: Gating | Updating) -> None:
        self._work = work
        if self._stopped_early:
            work.interrupt()

    def _soft_stop(self) -> None:
        self._stopped_early = True
        if self._work is not None:
            self._work.interrupt()
        sys.stderr.write(
            "\nevo: stopping when what runs has finished; Ctrl-C again to stop now\n"
        )

    # -- where the tests cannot be collected -------------------------------------------

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """See to it that no code of the artifact ends the session, and how."""
        if not isinstance(self._session, InProcessSession):
            return (yield)
        try:
            with no_way_out():
                return (yield)
        except (SystemExit, pytest.exit.Exception) as end:
            if not self._is_the_heads_fault():
                raise pytest.UsageError(
                    f"collecting the tests ended the session ({end!r}); make `pytest "
                    "--collect-only` pass first"
                ) from end
            text = "the tests cannot be collected with the head's artifact"
            raise pytest.exit.Exception(text, self._session.exit_status) from end

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """See whose fault it is if nothing could be run."""
        try:
            return (yield)
        except Exception:
            if self._work is not None or not self._is_the_heads_fault():
                raise
        return True

    def _is_the_heads_fault(self) -> bool:
        """Judge by collecting alone; False where that tells nothing."""
        base = self._task.base
        if base is None or self._stopped_early or self._task.settings.dry_run:
            return False
        with usage_errors(), tempfile.TemporaryDirectory(prefix=_SCRATCH) as scratch:
            judged = judge_collection(self._task, base, Path(scratch))
            if judged is None:
                return False
            self._session.exit_status = self._tell(judged.record, judged.details)
        return True

    # -- the end -----------------------------------------------------------------------

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        """Give ``--junitxml`` the head's cases before it is written."""
        report_cases(self._config, self._latest)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show the verdict, the cases and what to do next."""
        if not self._lines:
            return
        terminalreporter.section("pytest-evo")
        for line in self._lines:
            style = _MARKUP.get(line.style, line.style)
            terminalreporter.write_line(line.text, **({style: True} if style else {}))
        for command in self._commands:
            terminalreporter.write_line(command)


@contextmanager
def no_way_out() -> Iterator[None]:
    """Have ``os._exit`` raise here, as it would end the session with any status."""
    own, leave = os.getpid(), os._exit

    def end(status: int) -> NoReturn:
        if os.getpid() != own:  # a child that was forked meanwhile
            leave(status)
        raise SystemExit(status)

    os._exit = end
    try:
        yield
    finally:
        os._exit = leave
