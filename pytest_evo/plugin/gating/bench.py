"""A pool made ready for versions of one artifact."""

from __future__ import annotations

import os
from collections.abc import Sequence

from pytest_evo.models import CaseMark
from pytest_evo.plugin import planning
from pytest_evo.plugin.gating.planning import Suite
from pytest_evo.plugin.gating.task import GateTask
from pytest_evo.plugin.isolating import choose_isolation
from pytest_evo.plugin.isolating import MOST_TIMEOUT
from pytest_evo.plugin.isolation.choose import Choice
from pytest_evo.plugin.isolation.choose import WORKSPACE
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.redaction import Redaction
from pytest_evo.plugin.redaction import secrets_of
from pytest_evo.plugin.runfiles import own_folders
from pytest_evo.plugin.terminal import LiveDisplay
from pytest_evo.reports.console import Line
from pytest_evo.settings import Settings


class Bench:
    """The pool, with what it was told and how its rollouts are kept apart."""

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
        self.covered = own_folders(rootdir, settings)
        self.choice = choose_isolation(settings, task.schema, pool.hellos, ())
        pool.set_isolation(self.choice.mode, self.choice.mount)
        secrets = secrets_of(os.environ, task.artifact)
        pool.loads = Redaction(secrets).loads
        pool.notice = lambda text: display.note([Line(f"evo: {text}")])
        pool.seed = settings.seed
        pool.set_timeouts(_timeouts(marks, settings), settings.timeout or MOST_TIMEOUT)

    @property
    def read_early(self) -> bool:
        """Whether the artifact was read while tests were collected."""
        return any(hello.reach.files for hello in self.pool.hellos)

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
