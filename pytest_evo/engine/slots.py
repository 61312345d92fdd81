"""K iterations in flight that commit in number order, whatever the timing is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Iterable
from typing import TypeAlias

from pytest_evo.engine.budget import Budget
from pytest_evo.engine.budget import BudgetReached
from pytest_evo.engine.dispatch import Dispatcher
from pytest_evo.engine.iteration import Iteration
from pytest_evo.engine.iteration import Result
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Plan
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.setup import Setup
from pytest_evo.engine.softstop import SoftStop
from pytest_evo.engine.state import BUDGET
from pytest_evo.engine.state import Snapshot
from pytest_evo.hostile import one_line

REFUSED_IN_A_ROW = 10
_SHOWN = 400  # characters of a refusal in the reason of a stop
Running: TypeAlias = dict[int, asyncio.Task[tuple[Result, ScopeLog]]]


class Snapshots:
    """The states that iterations in flight, or resumed ones, were started on."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._kept: dict[int, Snapshot] = {}

    def keep(self, snapshot: Snapshot) -> None:
        """Keep the state after a commit for as long as it can be needed."""
        self._kept.setdefault(snapshot.commit, snapshot)
        self._kept.pop(snapshot.commit - 3 * self._slots, None)

    def of(self, number: int) -> Snapshot:
        """The state that iteration ``number`` starts on: after the commit K before."""
        return self._kept[max(0, number - self._slots)]


class Slots:
    """Starts and commits iterations; every decision here is the same on a resume."""

    def __init__(
        self,
        parts: Parts,
        plan: Plan,
        setup: Setup,
        budget: Budget,
        dispatcher: Dispatcher,
        stop: SoftStop,
        snapshots: Snapshots,
        open_scope: Callable[[str, int], ScopeLog],
        commit: Callable[[int, Result, ScopeLog], None],
    ) -> None:
        self._parts = parts
        self._plan = plan
        self._setup = setup
        self._budget = budget
        self._dispatcher = dispatcher
        self._stop = stop
        self._snapshots = snapshots
        self._open = open_scope
        self._commit = commit
        self._committed: dict[int, asyncio.Event] = {}
        self._reason: str | None = None

    async def run(self, number: int) -> str:
        """Run iterations from ``number`` on; return why no further one was started.

        Iteration i starts the moment i - K is committed, on the state of that moment,
        so what it sees does not depend on timing.
        """
        slots = self._plan.slots
        running: Running = {}
        try:
            for ahead in range(number, number + slots):
                self._start(ahead, running)
            while number in running:
                result, log = await running.pop(number)
                self._commit(number, result, log)
                self._committed[number].set()
                self._committed.pop(number - 2 * slots, None)
                self._start(number + slots, running)
                number += 1
        finally:
            await self._wind_down(running.values())
        return self._reason or "done"

    def _start(self, number: int, running: Running) -> None:
        snapshot = self._snapshots.of(number)
        self._committed[number] = asyncio.Event()
        self._reason = self._reason or self._reason_to_stop(number, snapshot)
        if self._reason is None:
            running[number] = asyncio.create_task(self._one(number, snapshot))

    async def _one(self, number: int, snapshot: Snapshot) -> tuple[Result, ScopeLog]:
        before = self._committed.get(number - 1)
        if before is not None and self._is_tight(number):
            await self._stop.unless(before.wait())
        log = self._open(str(number), number)
        iteration = Iteration(
            number,
            self._parts,
            self._plan,
            self._setup,
            snapshot,
            self._budget,
            self._dispatcher,
            log,
            self._setup.depth_for(self._left(snapshot)),
            self._stop,
        )
        return await iteration.run(), log

    def _is_tight(self, number: int) -> bool:
        """Whether all that may be in flight could be more than the budget covers."""
        left = self._left(self._snapshots.of(number))
        if left is None:
            return False
        first = max(1, number - self._plan.slots + 1)
        worst = 0
        for other in range(first, number + 1):
            depth = self._setup.depth_for(self._left(self._snapshots.of(other)))
            worst += self._setup.worst_case(depth)
        return worst > left

    def _left(self, snapshot: Snapshot) -> int | None:
        limit = self._budget.limits.rollouts
        if limit is None:
            return None
        return limit - snapshot.spent - self._budget.set_aside

    def _reason_to_stop(self, number: int, snapshot: Snapshot) -> str | None:
        """Why iteration ``number`` is not started, judged on committed facts."""
        limit = self._budget.limits.iterations
        if limit is not None and number > limit:
            return f"{BUDGET}iterations"
        if snapshot.stopping is not None:
            return snapshot.stopping
        left = self._left(snapshot)
        if left is not None and left < self._setup.least():
            return f"{BUDGET}rollouts"
        try:
            self._budget.ask()
        except BudgetReached as reached:
            return f"{BUDGET}{reached.axis}"
        if snapshot.refused_in_a_row >= REFUSED_IN_A_ROW:
            return (
                f"{REFUSED_IN_A_ROW} iterations in a row were refused, the last one "
                f"because: {one_line(snapshot.last_refusal, _SHOWN)}"
            )
        enough = max(5, 2 * -(-len(self._setup.train) // self._setup.batch))
        if snapshot.skipped_in_a_row >= enough:
            return "converged: parents are perfect on every batch"
        return None

    async def _wind_down(
        self, tasks: Iterable[asyncio.Task[tuple[Result, ScopeLog]]]
    ) -> None:
        """After an error let what runs finish, start nothing; the error is raised."""
        left = list(tasks)
        if left:
            self._stop.request()
            await asyncio.gather(*left, return_exceptions=True)
