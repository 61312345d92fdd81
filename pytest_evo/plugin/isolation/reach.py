"""Observed reach: what a rollout really opened or imported, by audit hook."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_evo.models import Reach


@dataclass(frozen=True, slots=True)
class Seen:
    """What was read between ``begin`` and ``end``."""

    reach: Reach
    project_files: tuple[str, ...] = ()  # relative to the project, POSIX


class Recorder:
    """The window on the process's one audit hook; get it with ``recorder()``."""

    def listen(self) -> None:
        """Start noting reads before the paths are known (collection)."""
        raise NotImplementedError

    def begin(
        self, real: Path, candidate: Path, project: Path, *, mounted: bool = False
    ) -> None:
        """Start noting; ``candidate == real`` where it runs in place or mounted.

        What earlier windows of the same process and candidate saw stays part of the
        reach: fixtures and caches keep it alive.
        """
        raise NotImplementedError

    def end(self) -> Seen:
        """Stop noting and say what was seen since ``begin``."""
        raise NotImplementedError

    def end_collection(self, artifact: Path, project: Path) -> Seen:
        """Stop what ``listen`` started."""
        raise NotImplementedError


def recorder() -> Recorder:
    """The recorder of this process; the first call installs the hook."""
    raise NotImplementedError
