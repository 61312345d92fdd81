"""Sends rollouts to the evaluator: what is known, budget, requests, retries."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from dataclasses import replace

from pytest_evo.engine.budget import Budget
from pytest_evo.engine.budget import BudgetReached
from pytest_evo.engine.budget import TRAINING
from pytest_evo.engine.flow import Flow
from pytest_evo.engine.memory import Memory
from pytest_evo.engine.parts import Observer
from pytest_evo.engine.recording import as_rollout
from pytest_evo.engine.recording import rollout_record
from pytest_evo.engine.scopelog import RunKey
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.scoring import score_rollout
from pytest_evo.engine.scoring import wrote_into_copy
from pytest_evo.engine.softstop import SoftStop
from pytest_evo.events import RequestStarted
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import Candidate
from pytest_evo.models import CaseId
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.protocols import Evaluator
from pytest_evo.protocols import Request
from pytest_evo.protocols import RolloutStore

RETRIED = frozenset({Outcome.ERROR, Outcome.CRASHED})
RAW = frozenset({Purpose.BASELINE, Purpose.PROBE})
"""Purposes whose case set is not frozen yet: skipping costs nothing there."""
LARGEST_REQUEST = 16
"""Cases in one request at most, so that one crash repeats little."""


@dataclass(frozen=True, slots=True)
class Work:
    """Rollouts of one candidate that a step needs together."""

    candidate: Candidate
    runs: tuple[tuple[CaseId, int], ...]
    purpose: Purpose
    iteration: int


class Dispatcher:
    """Executes work so that no rollout is paid twice and none exceeds the budget."""

    def __init__(
        self,
        evaluator: Evaluator,
        rollouts: RolloutStore,
        budget: Budget,
        observer: Observer,
        splits: Mapping[CaseId, Split],
        exclusive: Mapping[CaseId, str],
        slots: int,
        stop: SoftStop,
    ) -> None:
        self._evaluator = evaluator
        self._rollouts = rollouts
        self._budget = budget
        self._observer = observer
        self._splits = splits
        self._slots = slots
        self._exclusive = exclusive
        self._locks: dict[str, asyncio.Lock] = {}
        self._flow = Flow(evaluator)
        self.memory = Memory()
        self._running: dict[RunKey, asyncio.Future[None]] = {}
        self._requests = 0
        self._suite_writes = False
        self._stop = stop

    # -- memory --------------------------------------------------------------------

    def learn(self, event: RolloutRecorded) -> None:
        """Notice what the suite itself does, from a rollout of the baseline."""
        if event.purpose is Purpose.BASELINE and wrote_into_copy(event.violation):
            self._suite_writes = True

    def recover(self, log: ScopeLog, iteration: int) -> int:
        """Learn what a killed session did in a scope; charge what was lost.

        Returns:
            How many rollouts were sent and never came back.
        """
        for event in log.rollouts():
            if self.memory.is_settled(event):
                continue
            self.learn(event)
            self._budget.charge(event)
            displaced = self.memory.remember(event, iteration)
            if displaced is not None:
                log.settle(displaced)
        cut_off = log.cut_off()
        for lost_calls in cut_off:
            log.note(lost_calls, commit=True)
        for unanswered in (*log.unanswered(), *cut_off):
            self._budget.charge(unanswered)
            log.settle(unanswered)
        lost = log.lost()
        for request, case, repeat in lost:
            event = RolloutRecorded(
                candidate=request.candidate,
                tree=request.tree,
                case=case,
                split=self._splits.get(case),
                repeat=repeat,
                outcome=Outcome.LOST,
                score=None,
                seconds=0.0,
                purpose=request.purpose,
                iteration=iteration,
                attempt=request.attempt,
            )
            log.note(event)
            log.settle(event)
            self._budget.charge(event)
        log.settle_lost()
        return len(lost)

    # -- work ----------------------------------------------------------------------

    async def run(self, work: Work, log: ScopeLog) -> list[Rollout]:
        """Get all rollouts of ``work``, in its order, executing what is not known.

        Raises:
            BudgetReached: the budget cannot cover all of them; none was sent.
            Interrupted: a soft stop came first.
            WorkersLost: no worker is left.
        """
        await self._obtain(work, log)
        return await self._collect(work, log)

    async def run_all(
        self, works: Sequence[Work], log: ScopeLog
    ) -> list[list[Rollout]]:
        """Get several works side by side; they are settled in their order.

        Raises:
            BudgetReached: the budget cannot cover one of them; others may have run.
            Interrupted: a soft stop came first.
            WorkersLost: no worker is left.
        """
        ends = await asyncio.gather(
            *(self._obtain(work, log) for work in works), return_exceptions=True
        )
        for end in ends:
            if end is not None:
                raise end
        return [await self._collect(work, log) for work in works]

    async def _obtain(self, work: Work, log: ScopeLog) -> None:
        """Execute what nobody knows of ``work``, or wait for who does so already."""
        mine, others = self._claim(work)
        try:
            if mine:
                await self._execute(work, mine, log)
        finally:
            for run in mine:
                waiting = self._running.pop((work.candidate.tree, *run), None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(None)
        for waiting in others:
            await waiting

    def _is_known(self, work: Work, run: tuple[CaseId, int]) -> bool:
        return self.memory.get((work.candidate.tree, *run)) is not None

    def _claim(
        self, work: Work
    ) -> tuple[list[tuple[CaseId, int]], list[asyncio.Future[None]]]:
        mine: list[tuple[CaseId, int]] = []
        others: list[asyncio.Future[None]] = []
        for run in work.runs:
            key = (work.candidate.tree, *run)
            known = self.memory.get(key)
            if known is not None and not _retry(known):
                continue
            if key in self._running:
                others.append(self._running[key])
            else:
                self._running[key] = asyncio.get_running_loop().create_future()
                mine.append(run)
        return mine, others

    async def _collect(self, work: Work, log: ScopeLog) -> list[Rollout]:
        found = []
        for run in work.runs:
            known = self.memory.get((work.candidate.tree, *run))
            if known is None:
                # The iteration that was running it was stopped: run it here.
                return await self.run(work, log)
            log.settle(known)
            found.append(as_rollout(known, work.candidate))
        return found

    async def _execute(
        self, work: Work, runs: list[tuple[CaseId, int]], log: ScopeLog
    ) -> None:
        self._stop.check()
        self._budget.reserve(len(runs), work.purpose)
        failed = [run for run in runs if self._is_known(work, run)]
        fresh = [run for run in runs if run not in failed]
        self._release_retries(work, failed)
        requests = (
            self._request(work, chunk, 0, log) for chunk in self._chunks(work, fresh)
        )
        # What runs finishes, also where another request of the same work failed.
        results = await asyncio.gather(*requests, return_exceptions=True)
        sent = []
        for result in results:
            if isinstance(result, BaseException):
                raise result
            sent.append(result)
        failed += [run for part in sent for run in part.failed]
        for run in (run for part in sent for run in part.unstarted):
            again = await self._one(work, run, 0, log)
            failed += again.failed
        for run in failed:
            await self._one(work, run, 1, log)

    def _release_retries(self, work: Work, failed: Sequence[object]) -> None:
        # A retry asks for itself, later and one by one.
        self._budget.release(len(failed), work.purpose)

    async def _one(
        self, work: Work, run: tuple[CaseId, int], attempt: int, log: ScopeLog
    ) -> _Sent:
        """Run one case by itself after trouble, if the budget still covers it."""
        self._stop.check()
        try:
            self._budget.reserve(1, work.purpose)
        except BudgetReached:
            if not self._is_known(work, run):
                raise
            return _Sent([], {})
        sent = await self._request(work, [run], attempt, log)
        if sent.unstarted:
            # Alone and still never set up: the worker dies before it can begin.
            await self._record_crash(work, sent.unstarted[run], attempt, log)
        return sent

    async def _record_crash(
        self, work: Work, died: Rollout, attempt: int, log: ScopeLog
    ) -> None:
        self._budget.reserve(1, work.purpose)
        crash = replace(died, outcome=Outcome.CRASHED, started=True, attempt=attempt)
        self._record(work, crash, log)

    async def _request(
        self,
        work: Work,
        runs: Sequence[tuple[CaseId, int]],
        attempt: int,
        log: ScopeLog,
    ) -> _Sent:
        sent = _Sent([], {})
        open_runs = set(runs)
        try:
            async with AsyncExitStack() as stack:
                for name in sorted(self._groups(runs)):
                    await stack.enter_async_context(
                        self._locks.setdefault(name, asyncio.Lock())
                    )
                await stack.enter_async_context(self._flow.slot(work.iteration))
                self._stop.check()
                if work.purpose is Purpose.FINAL:  # it has its own reserve
                    self._budget.ask_final()
                else:
                    self._budget.ask()
                request = self._announce(work, runs, attempt, log)
                async for rollout in self._evaluator.submit(request):
                    run = (rollout.case, rollout.repeat)
                    open_runs.discard(run)
                    if not rollout.started:
                        self._budget.release(1, work.purpose)
                        sent.unstarted[run] = rollout
                        continue
                    rollout = replace(rollout, attempt=attempt)
                    if rollout.outcome is Outcome.LOST and len(runs) > 1:
                        self._record(work, rollout, log)
                        sent.unstarted[run] = rollout
                        continue
                    if rollout.outcome is Outcome.LOST:
                        rollout = replace(rollout, outcome=Outcome.CRASHED)
                    self._record(work, rollout, log)
                    honest = rollout.violation is None
                    if attempt == 0 and rollout.outcome in RETRIED and honest:
                        sent.failed.append(run)
        finally:
            self._budget.release(len(open_runs), work.purpose)
        return sent

    def _announce(
        self,
        work: Work,
        runs: Sequence[tuple[CaseId, int]],
        attempt: int,
        log: ScopeLog,
    ) -> Request:
        self._requests += 1
        request = Request(
            f"{work.iteration}.{self._requests}",
            work.candidate.id,
            work.candidate.tree,
            tuple(runs),
            work.purpose,
            attempt,
        )
        log.note(
            RequestStarted(
                request.id,
                request.candidate,
                request.tree,
                request.purpose,
                request.runs,
                attempt,
            ),
            commit=True,
        )
        return request

    def _record(self, work: Work, rollout: Rollout, log: ScopeLog) -> None:
        if work.purpose not in RAW:
            rollout = score_rollout(rollout, suite_writes=self._suite_writes)
        rollout = self._rollouts.keep(rollout)
        event = rollout_record(
            rollout, work.purpose, work.iteration, self._splits.get(rollout.case)
        )
        self.learn(event)
        log.note(event)
        self._budget.settle(work.purpose)
        self._budget.charge_usage(event)
        if event.outcome is Outcome.LOST:
            # Nobody asks for it: it has its place in the journal at once.
            log.settle(event)
        displaced = self.memory.remember(event, work.iteration)
        if displaced is not None:
            # A failed first attempt stays in the journal beside its retry.
            log.settle(displaced)
        self._observer.notice(event)

    # -- requests ------------------------------------------------------------------

    def _groups(self, runs: Iterable[tuple[CaseId, int]]) -> set[str]:
        return {self._exclusive[case] for case, _ in runs if case in self._exclusive}

    def _chunks(
        self, work: Work, runs: Sequence[tuple[CaseId, int]]
    ) -> list[list[tuple[CaseId, int]]]:
        """Spread runs over the workers, whole exclusive groups together.

        The split depends on numbers that are fixed for a run, never on timing.
        """
        capacity = self._evaluator.capacity()
        wide = work.purpose not in TRAINING
        lanes = 2 * capacity if wide else max(1, capacity // self._slots)
        size = max(1, min(LARGEST_REQUEST, -(-len(runs) // lanes)))
        together: dict[str, list[tuple[CaseId, int]]] = {}
        chunks: list[list[tuple[CaseId, int]]] = []
        current: list[tuple[CaseId, int]] = []
        for run in runs:
            name = self._exclusive.get(run[0])
            if name is not None:
                together.setdefault(name, []).append(run)
                continue
            current.append(run)
            if len(current) == size:
                chunks.append(current)
                current = []
        return [*chunks, *([current] if current else []), *together.values()]


@dataclass(slots=True)
class _Sent:
    """What came of a request beside its recorded rollouts."""

    failed: list[tuple[CaseId, int]]
    unstarted: dict[tuple[CaseId, int], Rollout]  # with what is known of the why


def _retry(event: RolloutRecorded) -> bool:
    honest = event.violation is None
    return event.attempt == 0 and event.outcome in RETRIED and honest
