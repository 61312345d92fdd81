"""Mode ``fresh``: a new interpreter state per request, without a cold start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.models import CaseId
from pytest_evo.models import Json


@dataclass(frozen=True, slots=True)
class FreshTask:
    """What one child of the zygote does; plain data, it travels pickled."""

    runs: tuple[tuple[CaseId, int], ...]
    candidate: str  # directory with the candidate's files
    artifact: str  # the artifact's real path
    project: str  # rootdir of the project
    mount: bool = False
    files: tuple[str, ...] = ()  # see mount.enter
    workspace: str | None = None  # rootdir of a project copy to run in instead
    environment: Mapping[str, str] | None = None  # None: as the zygote has it
    seed: int = 0
    basetemp: str | None = None


@dataclass(frozen=True, slots=True)
class ChildExit:
    """A child of the zygote ended; ``status`` is a wait status."""

    pid: int
    status: int


@dataclass(frozen=True, slots=True)
class ZygoteSpec:
    """What a zygote needs to know of the session; ``describe_session`` makes it."""

    modules: tuple[str, ...]
    rewritten: tuple[str, ...]
    args: tuple[str, ...]
    options: Mapping[str, object]
    sys_path: tuple[str, ...]
    invocation_dir: str
    rootdir: str
    inifile: str | None
    workerinput: Mapping[str, Json] | None = None


def describe_session(config: object) -> ZygoteSpec:
    """Read modules, options and paths off a worker's ``pytest.Config``."""
    raise NotImplementedError


class Zygote:
    """The parent process of fresh children: one per worker."""

    @classmethod
    def start(cls, spec: ZygoteSpec, *, timeout: float = 120.0) -> Zygote:
        """Start it and wait until it has imported the installed packages.

        Raises:
            EvoError: it ended or did not get ready; the message has its output.
        """
        raise NotImplementedError

    def fork(self, task: FreshTask, frames: int) -> int:
        """Fork a child for a task; return its pid (also its process group's id).

        The child streams frames to the descriptor ``frames`` (passed on; the caller
        closes its own copy) and leads a session of its own: kill it by ``os.killpg``.
        """
        raise NotImplementedError

    def fileno(self) -> int:
        """A descriptor that gets readable when ``exits`` has news."""
        raise NotImplementedError

    def exits(self) -> list[ChildExit]:
        """Children that ended since the last call; does not block."""
        raise NotImplementedError

    def close(self) -> None:
        """End the zygote and kill every child that still runs."""
        raise NotImplementedError


def run_task(task: FreshTask, spec: ZygoteSpec, frames: int) -> None:
    """In the child: configure pytest from scratch, collect and run (no return)."""
    raise NotImplementedError


__all__ = [
    "ChildExit",
    "FreshTask",
    "Path",
    "Zygote",
    "ZygoteSpec",
    "describe_session",
    "run_task",
]
