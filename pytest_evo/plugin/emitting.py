"""What the item runner says, as frames: in every test process, forked or fresh."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_evo.models import CaseId
from pytest_evo.models import Reach
from pytest_evo.plugin.frames import FrameWriter
from pytest_evo.plugin.isolation.reach import recorder
from pytest_evo.plugin.isolation.reach import Seen
from pytest_evo.plugin.messages import Finished
from pytest_evo.plugin.messages import Started
from pytest_evo.plugin.rawrollout import RawRollout

_NOTHING = Seen(Reach())


class FrameEmitter:
    """An ``itemrun.Emit`` that adds what each rollout reached.

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
            )
        )
