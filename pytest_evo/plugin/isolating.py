"""Settles isolation and time limits from what the workers and the baseline show."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

from pytest_evo.events import IsolationChosen
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.plugin.isolation.choose import Choice
from pytest_evo.plugin.isolation.choose import choose
from pytest_evo.plugin.messages import Hello
from pytest_evo.plugin.outcomes import check_score_from
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.reached import reached_digests
from pytest_evo.plugin.reached import slow_fixtures
from pytest_evo.protocols import Journal
from pytest_evo.protocols import RolloutStore
from pytest_evo.settings import Settings

LEAST_TIMEOUT = 60.0
MOST_TIMEOUT = 300.0
TIMES_BASELINE = 5


class Calibration:
    """The isolation of a run: chosen before the baseline, settled after it."""

    def __init__(
        self,
        settings: Settings,
        schema: ArtifactSchema,
        pool: Pool,
        marks: Sequence[CaseMark],
        journal: Journal,
        rollouts: RolloutStore,
        rootdir: Path,
        settled: IsolationChosen | None,
    ) -> None:
        """Choose from what was read during collection, or take what was ``settled``.

        Raises:
            UsageProblem: the setting would judge candidates by other files.
        """
        self._settings = settings
        self._schema = schema
        self._pool = pool
        self._marks = marks
        self._journal = journal
        self._rollouts = rollouts
        self._rootdir = rootdir
        self._settled = settled
        self.slow_fixtures: dict[str, float] = {}
        self._hellos = pool.hellos
        if settled is not None:
            self.choice = Choice(settled.mode, settled.mount, settled.why)
        else:
            self.choice = self._choose(())
        self._apply()
        pool.set_timeouts(self._timeouts({}), settings.timeout or MOST_TIMEOUT)

    def settle(self, baseline: Sequence[Rollout]) -> dict[CaseId, str]:
        """Choose again, now with what the baseline reached, and set time limits.

        Returns what each case read of the project, as part of its fingerprint.

        Raises:
            UsageProblem: the baseline shows that a setting cannot be meant.
        """
        check_score_from(self._settings.score_from, baseline)
        seconds = {row.case: row.seconds for row in baseline}
        self._pool.set_timeouts(
            self._timeouts(seconds), self._settings.timeout or MOST_TIMEOUT
        )
        shareable = {name for hello in self._hellos for name in hello.warmable}
        self.slow_fixtures = slow_fixtures(baseline, self._rollouts, shareable)
        if self._settled is None:
            self._settle_isolation(baseline)
        return reached_digests(baseline, self._rollouts, self._rootdir)

    def _settle_isolation(self, baseline: Sequence[Rollout]) -> None:
        self.choice = self._choose([row.reach for row in baseline])
        self._apply()
        self._settled = IsolationChosen(
            self.choice.mode, self.choice.mount, self.choice.why
        )
        self._journal.append(self._settled)

    def _choose(self, reaches: Sequence[Reach]) -> Choice:
        return choose_isolation(self._settings, self._schema, self._hellos, reaches)

    def _apply(self) -> None:
        self._pool.set_isolation(self.choice.mode, self.choice.mount)

    def _timeouts(self, seconds: Mapping[CaseId, float]) -> dict[CaseId, float]:
        """Per case: its marker, the setting, or a multiple of its baseline."""
        limits = {}
        for mark in self._marks:
            if mark.timeout is not None:
                limits[mark.id] = mark.timeout
            elif self._settings.timeout is not None:
                limits[mark.id] = self._settings.timeout
            elif mark.id in seconds:
                limits[mark.id] = min(
                    MOST_TIMEOUT, max(LEAST_TIMEOUT, TIMES_BASELINE * seconds[mark.id])
                )
        return limits


def choose_isolation(
    settings: Settings,
    schema: ArtifactSchema,
    hellos: Sequence[Hello],
    reaches: Sequence[Reach],
) -> Choice:
    """Choose from what workers said of themselves and what rollouts reached.

    Raises:
        UsageProblem: the setting would judge candidates by other files.
    """
    return choose(
        settings.isolation,
        _mount_problem(settings, hellos),
        _collection_reach(hellos),
        reaches,
        sys.platform,
        schema.include,
        threads=tuple(sorted({name for hello in hellos for name in hello.threads})),
        descriptors=tuple(
            sorted({name for hello in hellos for name in hello.descriptors})
        ),
    )


def _mount_problem(settings: Settings, hellos: Sequence[Hello]) -> str | None:
    if settings.mount == "never":
        return "mount = 'never' is set"
    problems = [hello.mount for hello in hellos if hello.mount is not None]
    return problems[0] if problems else None


def _collection_reach(hellos: Sequence[Hello]) -> Reach:
    files = sorted({name for hello in hellos for name in hello.reach.files})
    return Reach(tuple(files), all(hello.reach.exact for hello in hellos))
