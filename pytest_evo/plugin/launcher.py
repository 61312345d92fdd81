"""What the serving loop asks of whoever starts test processes."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from typing import Protocol
from typing import TypeAlias

from pytest_evo.models import CaseId
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Outcome
from pytest_evo.models import Usage
from pytest_evo.plugin import messages
from pytest_evo.plugin.frames import FrameReader

Todo: TypeAlias = tuple[CaseId, int, float]
"""A case, a repeat, the seconds it may take."""


class Subject(Protocol):
    """One child that runs cases of a request, as its launcher made it."""

    pid: int  # also the id of its process group
    reader: FrameReader
    exit_descriptor: int  # readable when it has ended; -1 where there is none

    def ended(self) -> bool:
        """Whether it has ended; does not collect its status."""

    def collect(self) -> int | None:
        """Collect the wait status of a process that has ended; None: unknown."""

    def log(self) -> str:
        """What it wrote outside the capture of any test, the end of it."""

    def spent(self, case: CaseId, repeat: int) -> Usage:
        """What it noted that a rollout had spent, for when it did not report it."""

    def clean(self) -> str | None:
        """Remove what was made for it; return what it did to the candidate's files."""


class Launcher(Protocol):
    """Starts test processes for requests."""

    notices: list[str]
    """What a person should know; whoever serves takes it from here."""

    def trouble(self) -> str | None:
        """Why nothing can be started here any more; None if it can."""

    def missing(self, run: messages.Run) -> Sequence[str]:
        """Blobs that the worker does not have."""

    def add(self, blob: messages.Blob) -> None:
        """Keep a blob."""

    def configure(self, message: messages.Configure) -> None:
        """Take over settings that became known late."""

    def knows(self, run: messages.Run, case: CaseId) -> bool:
        """Whether a test process of this request can have the case."""

    def launch(
        self, run: messages.Run, todo: Sequence[Todo], in_child: Callable[[], None]
    ) -> Subject:
        """Start a process; ``in_child`` is called first thing in a forked one.

        Raises:
            OSError: the system has no process, memory or space for it.
            EvoError: the isolation cannot be had.
        """

    def sweep(self, live: Sequence[Subject], dead: Subject) -> None:
        """Kill what a dead test process left behind."""

    def report(
        self,
        outcome: Outcome,
        seconds: float,
        message: str,
        log: str,
        usage: Usage = NO_USAGE,
    ) -> bytes:
        """The payload of a rollout that its process could not report."""
