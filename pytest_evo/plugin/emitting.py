"""What the item runner says, as frames: in every test process, forked or fresh."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_evo.models import CaseId
from pytest_evo.models import Reach
from pytest_evo.plugin.canary import failing_test
from pytest_evo.plugin.canary import verdict
from pytest_evo.plugin.canary import Watch
from pytest_evo.plugin.frames import FrameWriter
from pytest_evo.plugin.isolation.reach import recorder
from pytest_evo.plugin.isolation.reach import Seen
from pytest_evo.plugin.itemrun import ItemRunner
from pytest_evo.plugin.messages import Farewell
from pytest_evo.plugin.messages import Finished
from pytest_evo.plugin.messages import Started
from pytest_evo.plugin.rawrollout import RawRollout

_NOTHING = Seen(Reach())


def last_word(
    watch: Watch, runner: ItemRunner, items: Sequence[pytest.Item]
) -> Farewell:
    """What is said when all cases of a test process have run."""
    tampered = watch.tampered()
    if items:
        tampered += verdict(runner.outcome_of(failing_test(items[-1])))
    return Farewell(tampered=tampered, early=runner.left_early)


class FrameEmitter:
    """An ``itemrun.Emit`` that adds what each rollout reached.

    The end of a rollout goes out with the start of the next one, which comes at once;
    whoever runs the items flushes the writer after the last.

    ``artifact`` is the artifact's real path, ``candidate`` where the candidate is seen
    (the same where it is mounted or in place), ``project`` the rootdir.
    """

    def __init__(
        self,
        writer: FrameWriter,
        artifact: Path,
        candidate: Path,
        project: Path,
        *,
        mounted: bool = False,
    ) -> None:
        self._writer = writer
        self._paths = (artifact, candidate, project)
        self._mounted = mounted
        self._running = False

    def __call__(
        self, kind: str, case: CaseId, repeat: int, raw: RawRollout | None
    ) -> None:
        """Send one event of a run."""
        if raw is None:
            self._writer.send(Started("", case, repeat))
            recorder().begin(*self._paths, mounted=self._mounted)
            self._running = True
            return
        seen = recorder().end() if self._running else _NOTHING
        self._running = False
        self._writer.send(
            Finished(
                "",
                case,
                repeat,
                reach=seen.reach,
                project_files=seen.project_files,
                payload=json.dumps(raw.to_plain()).encode(),
            ),
            hold=True,
        )
