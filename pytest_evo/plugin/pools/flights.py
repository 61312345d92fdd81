"""One request between its dispatch and its last rollout."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import replace
from typing import Any
from typing import TypeAlias

from pytest_evo.errors import SuiteProblem
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import Tree
from pytest_evo.plugin import messages
from pytest_evo.plugin.rawrollout import RawRollout
from pytest_evo.protocols import Request

Run: TypeAlias = tuple[CaseId, int]


class Flight:
    """Keeps the promise of one rollout per run, whatever happens to the worker."""

    def __init__(
        self,
        request: Request,
        tree: Tree,
        groups: Mapping[CaseId, str],
        loads: Callable[[bytes], Any] = json.loads,
    ) -> None:
        self.request = request
        self.tree = tree
        self.groups = frozenset(
            groups[case] for case, _ in request.runs if case in groups
        )
        self.out: asyncio.Queue[Rollout | Exception | None] = asyncio.Queue()
        self._loads = loads
        self.worker: str | None = None
        self.heard = 0.0  # when the worker last said something of it
        self.limit = 0.0  # the longest that one of its cases may run
        self.closed = False
        self._open: dict[Run, bool] = dict.fromkeys(request.runs, False)
        self._held: list[Rollout] = []

    def start(self, run: Run) -> None:
        """The set-up of a run has begun: it counts."""
        if run in self._open:
            self._open[run] = True

    def finish(self, message: messages.Finished, worker: str) -> None:
        """A run has ended; hold its rollout until its process was checked."""
        run = (message.case, message.repeat)
        if self._open.pop(run, None) is None:
            return
        try:
            raw = RawRollout.from_plain(self._loads(message.payload))
        except (ValueError, RecursionError) as error:
            self._held.append(self._made_up(run, Outcome.CRASHED, True, str(error)))
            return
        if raw.problem is not None and self.request.purpose is Purpose.BASELINE:
            self.fail(SuiteProblem(f"{message.case}: {raw.problem}"))
            return
        request = self.request
        self._held.append(
            Rollout(
                candidate=request.candidate,
                tree=request.tree,
                case=message.case,
                repeat=message.repeat,
                outcome=raw.outcome,
                score=raw.score,
                seconds=raw.seconds,
                attempt=request.attempt,
                metrics=raw.metrics,
                usage=raw.usage,
                reach=message.reach,
                worker=worker,
                detail=replace(raw.detail, project_files=message.project_files),
                started=message.started,
            )
        )

    def release(
        self, violation: str | None = None, unchecked: str | None = None
    ) -> None:
        """Hand out what was held, as the check of its process found it."""
        held, self._held = self._held, []
        for rollout in held:
            if unchecked is not None and rollout.started:
                run = (rollout.case, rollout.repeat)
                rollout = self._made_up(run, Outcome.CRASHED, True, unchecked)
            self.out.put_nowait(replace(rollout, violation=violation))

    def crash(self, why: str) -> None:
        """The worker died: what is known to have begun is crashed, the rest lost.

        A test process can be ahead of what its worker has told, by a case that began
        in this moment or, where the worker was frozen, by all of them. So the rest
        counts: what ran without anybody knowing would exceed the budget. What had
        ended and was not checked yet is not believed.
        """
        self.release(unchecked=f"{why} before the last check of its test process")
        remaining, self._open = self._open, {}
        for run, started in remaining.items():
            outcome = Outcome.CRASHED if started else Outcome.LOST
            self.out.put_nowait(self._made_up(run, outcome, True, why))

    def lose(self, why: str) -> None:
        """Nobody will say more about the runs that are still open."""
        self.release()
        remaining, self._open = self._open, {}
        for run, started in remaining.items():
            self.out.put_nowait(self._made_up(run, Outcome.LOST, started, why))

    def condemn(self, why: str, *, guilty: bool = True) -> None:
        """Answer everything as crashed, by a violation if guilty; nothing is run."""
        remaining, self._open = self._open, {}
        for run in remaining:
            rollout = self._made_up(run, Outcome.CRASHED, True, why)
            violation = why if guilty else None
            self.out.put_nowait(replace(rollout, violation=violation))

    def fail(self, error: Exception) -> None:
        """End the stream with an error."""
        if not self.closed:
            self._open.clear()
            self._held.clear()
            self.out.put_nowait(error)
            self.closed = True

    def close(self) -> None:
        """End the stream."""
        if not self.closed:
            self.closed = True
            self.out.put_nowait(None)

    def _made_up(self, run: Run, outcome: Outcome, started: bool, why: str) -> Rollout:
        request = self.request
        return Rollout(
            candidate=request.candidate,
            tree=request.tree,
            case=run[0],
            repeat=run[1],
            outcome=outcome,
            score=None,
            attempt=request.attempt,
            reach=messages.UNKNOWN_REACH,
            worker=self.worker or "",
            detail=Detail((Phase("call", outcome.value, 0.0, why),)),
            started=started,
        )
