"""What became of runs that their test process could not report itself."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import field

from pytest_evo.models import CaseId
from pytest_evo.models import Outcome
from pytest_evo.plugin import messages
from pytest_evo.plugin.frames import FrameForged
from pytest_evo.plugin.launcher import Launcher
from pytest_evo.plugin.launcher import Subject
from pytest_evo.plugin.launcher import Todo


@dataclass
class Leg:
    """One test process at work on (the rest of) a request."""

    run: messages.Run
    process: Subject
    todo: deque[Todo]
    deadline: float
    current: Todo | None = None
    began: float = 0.0
    finished: int = 0
    ending: str = ""  # why it is being killed: timeout | stuck | cancel | forged
    aborted: bool = False
    parted: bool = False  # it has said that it ran everything
    gone: bool = False  # its process has ended, where the system says so
    violations: list[str] = field(default_factory=list)

    def find(self, case: CaseId, repeat: int) -> Todo:
        """The run that a frame is about."""
        for entry in self.todo:
            if entry[:2] == (case, repeat):
                return entry
        raise FrameForged(f"{case}, repeat {repeat}, was not to be run")


class Account:
    """Reports in the place of processes that died, hung or were ended."""

    def __init__(
        self,
        launcher: Launcher,
        tell: Callable[[messages.Message], None],
        patience: float,
    ) -> None:
        self._launcher = launcher
        self._tell = tell
        self._patience = patience

    def settle(
        self,
        leg: Leg,
        status: int | None,
        log: str,
        starting: Callable[[messages.Run, Iterable[Todo]], float],
    ) -> None:
        """Report the runs that the process did not; leave those that go on."""
        if leg.ending == "cancel":
            leg.todo.clear()
        if not leg.todo or (leg.parted and not leg.ending):
            return
        how = how_ended(status)
        if leg.current:
            case, repeat, limit = leg.current
            leg.todo.remove(leg.current)
            seconds = time.monotonic() - leg.began
            if leg.ending == "timeout":
                outcome, how = Outcome.TIMEOUT, f"still running after {limit:g} s"
            else:
                outcome = Outcome.CRASHED
            usage = leg.process.spent(case, repeat)
            payload = self._launcher.report(outcome, seconds, how, log, usage)
            self._finished(leg.run, case, repeat, payload)
        collects = leg.run.mode is not messages.Mode.FORK and not leg.finished
        if leg.ending == "stuck" and collects:
            self._time_out(leg, log, starting(leg.run, leg.todo))
        elif leg.ending != "timeout":
            if leg.ending == "stuck":
                how = f"nothing happened for {self._patience:g} s between cases"
            self.give_back(leg.run, leg.todo, f"its test process ended: {how}", log)

    def _time_out(self, leg: Leg, log: str, limit: float) -> None:
        """The candidate hangs while it is collected: none of its cases can run."""
        why = f"still collecting after {limit:g} s"
        payload = self._launcher.report(Outcome.TIMEOUT, limit, why, log)
        for case, repeat, _ in leg.todo:
            self._finished(leg.run, case, repeat, payload)
        leg.todo.clear()

    def give_back(
        self, run: messages.Run, todo: deque[Todo], why: str, log: str = ""
    ) -> None:
        """Tell of runs whose set-up never began; they may be sent again."""
        payload = self._launcher.report(Outcome.LOST, 0.0, why, log)
        for case, repeat, _ in todo:
            self._finished(run, case, repeat, payload, started=False)
        todo.clear()

    def _finished(
        self,
        run: messages.Run,
        case: CaseId,
        repeat: int,
        payload: bytes,
        *,
        started: bool = True,
    ) -> None:
        self._tell(
            messages.Finished(
                run.id,
                case,
                repeat,
                started=started,
                reach=messages.UNKNOWN_REACH,
                payload=payload,
            )
        )


def was_killed(status: int | None) -> bool:
    """Whether somebody may have killed it from outside, as the kernel does.

    It may have done so itself: when it is run again, that is a violation.
    """
    return (
        status is not None
        and os.WIFSIGNALED(status)
        and os.WTERMSIG(status) == signal.SIGKILL
    )


def how_ended(status: int | None) -> str:
    """How a process ended, in words."""
    if status is None:
        return "it vanished"
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return f"exit status {os.WEXITSTATUS(status)} without a report"
