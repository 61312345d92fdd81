"""What ``--evolve`` does in the controller: checks, a session of workers, the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_evo.artifact.checks import check_files
from pytest_evo.artifact.schema import locate
from pytest_evo.artifact.schema import refuse_own_files_inside
from pytest_evo.artifact.schema import schema_of
from pytest_evo.errors import SettingsProblem
from pytest_evo.llm.exchanges import Cleaner
from pytest_evo.models import ArtifactSchema
from pytest_evo.plugin import diagnosing
from pytest_evo.plugin import hooks
from pytest_evo.plugin import runfiles
from pytest_evo.plugin.environment import conceal
from pytest_evo.plugin.evolving import Evolution
from pytest_evo.plugin.evolving import ExitCode
from pytest_evo.plugin.evolving import strategy_of
from pytest_evo.plugin.isolation.reach import recorder
from pytest_evo.plugin.junitxml import report_winner
from pytest_evo.plugin.messages import DIRECTORY_PREFIX
from pytest_evo.plugin.modelling import hidden_variables
from pytest_evo.plugin.modelling import RunModels
from pytest_evo.plugin.modelling import SECRETS
from pytest_evo.plugin.options import option_overrides
from pytest_evo.plugin.places import check_reports_place
from pytest_evo.plugin.places import check_run_place
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.pools.inprocess import InProcessSession
from pytest_evo.plugin.pools.session import EngineSession
from pytest_evo.plugin.pools.xdist import XdistSession
from pytest_evo.plugin.redaction import Redaction
from pytest_evo.plugin.redaction import secrets_of
from pytest_evo.plugin.runfiles import own_folders
from pytest_evo.plugin.scratch import remove_abandoned
from pytest_evo.plugin.scratch import SCRATCH_PREFIX
from pytest_evo.plugin.taping import open_tape
from pytest_evo.plugin.taping import resume_tape
from pytest_evo.plugin.taping import RunTape
from pytest_evo.plugin.task import Task
from pytest_evo.plugin.terminal import make_display
from pytest_evo.proposers.archive import Archive
from pytest_evo.proposers.archive import Notices
from pytest_evo.proposers.load import choose_proposer
from pytest_evo.proposers.load import load_proposer
from pytest_evo.protocols import ChatModel
from pytest_evo.reports.console import Line
from pytest_evo.reports.ending import result_lines
from pytest_evo.settings import load_settings
from pytest_evo.settings import Settings
from pytest_evo.store.run_directory import RunDirectory
from pytest_evo.strategies.presets import with_preset

_MARKUP = {"dim": "light"}  # what pytest's terminal writer calls it


class Controller:
    """Registered where ``--evolve`` was given and this is not a worker.

    Raises:
        UsageProblem: from construction on, whatever a person has to change.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        with recorder().paused():  # with -n 0 this process collects too
            self._task = make_task(config)
        self._evolution: Evolution | None = None
        self._stopped_early = False
        resume = self._task.resume
        self._in_process = not uses_xdist(config)
        self._session = open_session(
            config,
            worker_input(
                config,
                self._task.settings,
                self._task.schema,
                run=resume.id if resume else "",
                hidden=self._hidden(self._task.settings),
            ),
            self._run,
            self._soft_stop,
        )

    def _hidden(self, settings: Settings) -> tuple[str, ...]:
        named = settings.agent_options.api_key_env
        agents = (*SECRETS, named or "") if settings.agent else ()
        models = hidden_variables(settings, os.environ)
        return tuple(dict.fromkeys(filter(None, (*agents, *models))))

    def _run(self, pool: Pool) -> int:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        quiet = self._config.option.verbose < 0
        display = make_display(reporter, quiet=quiet)
        evolution = Evolution(self._task, display, self._in_process)
        self._evolution = evolution
        if self._stopped_early:
            evolution.hints.append("stopped before anything was run")
            return int(ExitCode.INTERRUPTED)
        return evolution.run(pool)

    def _soft_stop(self) -> None:
        self._stopped_early = True  # workers may still be collecting
        if self._evolution is not None:
            self._evolution.interrupt()
        sys.stderr.write(
            "\nevo: stopping when what runs has finished; Ctrl-C again to stop now\n"
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Give ``--junitxml`` the winner's cases before it is written."""
        evolution = self._evolution
        if evolution is not None and evolution.report is not None:
            report_winner(self._config, evolution.report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Show the result, why it ended, and what to type next."""
        evolution = self._evolution
        if evolution is None:
            return
        lines = [Line(f"evo: {problem}", "red") for problem in evolution.problems]
        lines += [Line(f"evo: {hint}", "bold") for hint in evolution.hints]
        if evolution.report is not None:
            lines += result_lines(
                evolution.report, evolution.run_id, look=evolution.look
            )
        if not lines:
            return
        terminalreporter.section("pytest-evo")
        for line in lines:
            style = _MARKUP.get(line.style, line.style)
            terminalreporter.write_line(line.text, **({style: True} if style else {}))


def worker_input(
    config: pytest.Config,
    settings: Settings,
    schema: ArtifactSchema,
    *,
    run: str = "",
    hidden: Sequence[str] = (),
) -> dict[str, Any]:
    """What every worker is told before it collects."""
    return {
        "artifact": schema.directory,
        "files": list(schema.include),
        "concurrency": settings.concurrency,
        "run": run,
        "hidden": list(hidden),
        "allow": None if settings.env_allow is None else list(settings.env_allow),
        "warm_fixtures": list(settings.warm_fixtures),
        "check_cassettes": not settings.skip_cassette_check,
        "protect": list(settings.protect),
        "writable": list(settings.writable),
        "covered": own_folders(config.rootpath, settings),
    }


def open_session(
    config: pytest.Config,
    workers: Mapping[str, Any],
    run: Callable[[Pool], int],
    soft_stop: Callable[[], None],
) -> EngineSession:
    """Register the session whose workers serve ``run``; it has not begun yet."""
    remove_abandoned(DIRECTORY_PREFIX, SCRATCH_PREFIX)
    conceal(workers["hidden"])
    session: EngineSession
    if uses_xdist(config):
        recorder().dismiss()
        session = XdistSession(config, workers, run, soft_stop)
    else:
        session = InProcessSession(config, workers, run, soft_stop)
    config.pluginmanager.register(session, "evo-session")
    return session


def uses_xdist(config: pytest.Config) -> bool:
    """Whether this session has xdist workers."""
    if not config.pluginmanager.hasplugin("dsession"):
        return bool(getattr(config.option, "tx", None)) and (
            getattr(config.option, "dist", "no") != "no"
        )
    return True


def make_task(config: pytest.Config) -> Task:
    """Check the command line and the settings, before anything is collected.

    Raises:
        SettingsProblem: a setting or an option has to change, or two contradict.
        ArtifactProblem: the artifact is not there, or cannot be one.
        UsageProblem: anything else that a person has to change.
    """
    overrides = option_overrides(config)
    settings, resume = _settle(config, overrides)
    refuse_no_artifact(settings)
    schema = schema_of(settings)
    artifact = locate(config.rootpath, schema, typed="artifact" in overrides)
    refuse_own_files_inside(config.rootpath, artifact, settings)
    check_reports_place(config.rootpath / settings.reports)
    if resume is None:
        check_run_place(config.rootpath / settings.run_dir)
        check_files(artifact, schema)
    task = _assemble(config, settings, schema, artifact, resume)
    strategy_of(config, settings)
    diagnosing.prepare(task)
    return task


def _settle(
    config: pytest.Config, overrides: dict[str, object]
) -> tuple[Settings, RunDirectory | None]:
    """All settings, those of a strategy or of the run that goes on filled in."""
    settings = load_settings(config.rootpath, overrides)
    if "gate" in overrides or settings.baseline_update:
        raise SettingsProblem(
            "--evolve and the gate are two sessions: one improves the artifact, the "
            "other judges a change of it. Leave out --evolve, or --evo-gate and "
            "--evo-baseline-update."
        )
    if settings.resume is not None:
        resume = runfiles.find_run(config.rootpath, settings)
        return runfiles.resumed_settings(resume, settings, overrides), resume
    if hooks.make_strategy(config, settings.strategy) is None:
        settings = with_preset(settings)
    return settings, None


def _assemble(
    config: pytest.Config,
    settings: Settings,
    schema: ArtifactSchema,
    artifact: Path,
    resume: RunDirectory | None,
) -> Task:
    """The task with its proposer, and what that one is given."""
    name = choose_proposer(settings)
    redact = Redaction(secrets_of(os.environ, artifact)).text
    archive = Archive(redact)
    notices = Notices()
    cleaner = Cleaner(redact, str(config.rootpath))
    tape = _tape(config, settings, artifact, cleaner, resume, notices)
    models = RunModels(os.environ, redact, settings.seed, tape)
    proposer = hooks.make_proposer(config, name) or load_proposer(
        name,
        settings,
        schema,
        config.rootpath,
        model=_model(models, settings) if name == "llm" else None,
        archive=archive,
        notice=notices,
    )
    return Task(
        config,
        settings,
        schema,
        artifact,
        proposer,
        name,
        resume,
        archive,
        notices,
        models,
    )


def _tape(
    config: pytest.Config,
    settings: Settings,
    artifact: Path,
    cleaner: Cleaner,
    resume: RunDirectory | None,
    notices: Notices,
) -> RunTape | None:
    root, proposer = config.rootpath, choose_proposer(settings)
    if resume is None:
        return open_tape(settings, root, artifact, proposer, cleaner)
    typed = "record" in option_overrides(config)
    return resume_tape(settings, root, proposer, cleaner, resume.id, typed, notices)


def _model(models: RunModels, settings: Settings) -> ChatModel | None:
    if settings.model is None:
        return None
    return models.model(settings.model, settings.model_options)


def refuse_no_artifact(settings: Settings) -> None:
    """Say how an artifact is declared.

    Raises:
        SettingsProblem: none is.
    """
    if settings.artifact is None and not settings.targets:
        raise SettingsProblem(
            "no artifact is declared. Type --evo-artifact=DIR, or write it into "
            'pyproject.toml:\n\n    [tool.pytest_evo]\n    artifact = "DIR"\n\n'
            "pytest-evo init does that for you."
        )
