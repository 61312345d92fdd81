"""Requests to workers, rollouts back: one implementation for every transport.

Everything but ``add_worker``, ``close`` and ``abandon`` runs on the engine's thread.
Transports deliver from threads of their own into an inbox; until the engine has a loop,
``wait_ready`` empties it, afterwards the loop does.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from typing import Any
from typing import TypeAlias

from pytest_evo.errors import EvoError
from pytest_evo.errors import MessageRefused
from pytest_evo.errors import WorkerProblem
from pytest_evo.errors import WorkersLost
from pytest_evo.models import CaseId
from pytest_evo.models import Json
from pytest_evo.models import Rollout
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash
from pytest_evo.plugin import messages
from pytest_evo.plugin.links import Link
from pytest_evo.plugin.messages import Mode
from pytest_evo.plugin.pools.casualties import Casualties
from pytest_evo.plugin.pools.flights import Flight
from pytest_evo.plugin.pools.orders import Orders
from pytest_evo.plugin.pools.roster import Worker
from pytest_evo.protocols import Request

_WATCH = 0.5  # seconds between looks for silent workers
Notice: TypeAlias = Callable[[str], None]


class Pool:
    """The :class:`~pytest_evo.protocols.Evaluator` over workers."""

    def __init__(
        self,
        *,
        workers: int,
        concurrency: int = 1,
        grace: float | None = None,
        notice: Notice = lambda text: None,
    ) -> None:
        """Wait for ``workers`` workers, each with ``concurrency`` requests in flight.

        Args:
            workers: how many the transport starts, and replaces when they die.
            concurrency: requests in flight in one worker.
            grace: seconds that a worker may be silent beyond the time limit of its
                cases; None: what its isolation needs.
            notice: shows a person a line about workers.
        """
        self.expected = workers
        self.concurrency = concurrency
        self.seed = 0
        self.finished_rollouts = 0
        """How many rollouts have been run, for the last line."""
        self.loads: Callable[[bytes], Any] = json.loads
        """Reads what a test process said of a rollout."""
        self.notice = notice
        self._orders = Orders(grace)
        self._tree: Callable[[TreeHash], Tree] | None = None
        self._blob: Callable[[str], bytes] | None = None
        self._lock = threading.Condition()
        self._inbox: deque[tuple[Worker, bytes | None]] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = False
        self._workers: list[Worker] = []
        self._flights: dict[str, Flight] = {}
        self._pending: list[Flight] = []
        self._groups: Mapping[CaseId, str] = {}
        self._cases: frozenset[CaseId] | None = None
        self._hellos: tuple[messages.Hello, ...] = ()
        self._late: dict[str, Json] = {}
        self._casualties = Casualties(workers)
        self._lost: Exception | None = None
        self._closed = False

    # -- what the engine sets and asks -----------------------------------------------

    def set_source(
        self, tree: Callable[[TreeHash], Tree], blob: Callable[[str], bytes]
    ) -> None:
        """Where candidates come from: trees by hash, contents by sha256."""
        self._tree, self._blob = tree, blob

    def set_isolation(self, mode: str, mount: bool) -> None:
        """How requests from now on are isolated: fork, fresh or workspace."""
        self._orders.mode, self._orders.mount = Mode(mode), mount

    def set_timeouts(
        self, seconds: Mapping[CaseId, float], default: float = 300.0
    ) -> None:
        """How long a case may run, from now on."""
        self._orders.timeouts, self._orders.default_timeout = dict(seconds), default

    def configure(self, **settings: Json) -> None:
        """Change fields of ``WorkerSettings`` for requests from now on."""
        self._late.update(settings)
        for worker in self._workers:
            if worker.ready:
                self._send(worker, messages.Configure(settings=settings))

    def capacity(self) -> int:
        """How many requests can run at the same time, at least 1."""
        ready = sum(worker.ready for worker in self._workers)
        return max(1, (ready or self.expected) * self.concurrency)

    @property
    def hellos(self) -> tuple[messages.Hello, ...]:
        """What the first workers said of themselves, by name; set by ``wait_ready``."""
        return self._hellos

    def accept_cases(self, cases: frozenset[CaseId]) -> None:
        """Fix what every worker, later ones too, has to have collected."""
        self._cases = cases

    # -- any thread --------------------------------------------------------------------

    def add_worker(self, name: str, link: Link, kill: Callable[[], None]) -> None:
        """Take a worker in that will say hello; ``kill`` ends it by force."""
        worker = Worker(name, link, kill, time.monotonic())
        with self._lock:
            self._workers.append(worker)
        link.listen(lambda data: self._post(worker, data))

    def close(self, *, now: bool = False) -> None:
        """Tell all workers to leave, and those that come later too.

        ``now`` kills what runs; else it is waited for.
        """
        with self._lock:
            self._closed = True
            workers = list(self._workers)
        for worker in workers:
            self._send(worker, messages.Stop(now=now))

    def abandon(self, error: Exception) -> None:
        """Make every stream, and ``wait_ready``, raise; the workers are gone."""
        with self._lock:
            # a worker that says why it leaves says more than that it left
            vague = isinstance(self._lost, WorkersLost)
            if self._lost is None or (vague and isinstance(error, WorkerProblem)):
                self._lost = error
            self._wake()

    def _post(self, worker: Worker, data: bytes | None) -> None:
        with self._lock:
            self._inbox.append((worker, data))
            self._wake()

    def _wake(self) -> None:
        """Have the inbox emptied; with the lock held."""
        if self._loop is None:
            self._lock.notify_all()
        elif not self._draining:
            self._draining = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                self._loop.call_soon_threadsafe(self._drain)

    # -- before the loop ---------------------------------------------------------------

    def wait_ready(self) -> tuple[messages.Hello, ...]:
        """Block until all expected workers have said hello.

        Raises:
            WorkersLost: they keep dying, or the transport has ended.
            WorkerProblem: one said why it cannot work.
        """
        while True:
            with self._lock:
                if not self._inbox and self._lost is None:
                    if sum(worker.ready for worker in self._workers) >= self.expected:
                        self._hellos = self._introductions()
                        return self._hellos
                    self._lock.wait(1.0)
            self._drain()
            if self._lost is not None:
                raise self._lost

    def _introductions(self) -> tuple[messages.Hello, ...]:
        said = [worker.hello for worker in self._workers if worker.hello is not None]
        return tuple(sorted(said, key=lambda hello: (len(hello.id), hello.id)))

    # -- the engine's thread -----------------------------------------------------------

    async def submit(self, request: Request) -> AsyncIterator[Rollout]:
        """Run a request and stream exactly one rollout per run.

        Rollouts of one test process come together: only when it has ended it is known
        whether they kept the rules.

        Raises:
            WorkersLost: no worker can be had any more.
            WorkerProblem: a worker's disk is full.
            SuiteProblem: a person has to change a case before it can be scored.
        """
        self._bind()
        if self._lost is not None:
            raise self._lost
        if self._tree is None:
            raise EvoError("the pool was not told where candidates come from")
        flight = Flight(request, self._tree(request.tree), self._groups, self.loads)
        self._flights[request.id] = flight
        if self._casualties.condemn(flight):
            self._retire(flight)
        else:
            self._pending.append(flight)
        self._dispatch()
        try:
            while (item := await flight.out.get()) is not None:
                if isinstance(item, Exception):
                    raise item
                yield item
        finally:
            if not flight.closed:
                await self.cancel(request.id)

    async def cancel(self, request_id: str) -> None:
        """Kill a request; its unfinished runs come as ``lost``."""
        flight = self._flights.get(request_id)
        if flight is None or flight.closed:
            return
        flight.lose("the request was cancelled")
        self._retire(flight, keep_slot=flight.worker is not None)
        for worker in self._workers:
            if request_id in worker.flights:
                self._send(worker, messages.Cancel(request_id))

    def _bind(self) -> None:
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._loop is loop:
                return
            self._loop = loop
            self._draining = False
            if self._inbox:
                self._wake()
        loop.call_later(_WATCH, self._watch)

    def _drain(self) -> None:
        with self._lock:
            self._draining = False
            found, self._inbox = self._inbox, deque()
        for worker, data in found:
            if data is None:
                self._bury(worker)
            else:
                self._hear(worker, data)
        if self._lost is not None:
            for flight in list(self._flights.values()):
                flight.fail(self._lost)
                self._retire(flight)
            self._pending.clear()
        self._dispatch()

    def _hear(self, worker: Worker, data: bytes) -> None:
        try:
            message = messages.decode(data)
        except MessageRefused as error:
            self.notice(f"worker {worker.name}: {error}")
            worker.kill()
            return
        match message:
            case messages.Hello():
                self._welcome(worker, message)
            case messages.Log(text=text):
                self.notice(f"worker {worker.name}: {text}")
            case messages.Trouble(text=text):
                self.abandon(WorkerProblem(f"worker {worker.name}: {text}"))
            case messages.Need(hashes=hashes):
                self._give(worker, hashes)
            case messages.Started() | messages.Finished() | messages.Done():
                self._follow(worker, message)
            case _:
                self.notice(f"worker {worker.name} sent {message.kind!r}")

    def _welcome(self, worker: Worker, hello: messages.Hello) -> None:
        worker.hello = hello
        cases = frozenset(mark.id for mark in hello.marks)
        if self._closed or (self._cases is not None and cases != self._cases):
            worker.dismissed = True
            if not self._closed:
                self.notice(f"worker {worker.name} collected other cases; not used")
                self._count_death()
            self._send(worker, messages.Stop(now=True))
            return
        if self._late:
            self._send(worker, messages.Configure(settings=self._late))
        self._groups = {
            mark.id: mark.exclusive for mark in hello.marks if mark.exclusive
        }

    def _follow(
        self,
        worker: Worker,
        message: messages.Started | messages.Finished | messages.Done,
    ) -> None:
        flight = worker.flights.get(message.id)
        if flight is None:
            return
        flight.heard = time.monotonic()
        match message:
            case messages.Started():
                flight.start((message.case, message.repeat))
            case messages.Finished():
                flight.finish(message, worker.name)
                if message.started:
                    self._casualties.forgive()
                    self.finished_rollouts += 1
            case messages.Done(violation=violation, more=more, unchecked=why):
                flight.release(violation, why)
                if not more:
                    flight.lose("the worker did not report it")
                    self._retire(flight)

    # -- workers come and go -----------------------------------------------------------

    def _bury(self, worker: Worker) -> None:
        """A worker's line has ended."""
        if worker not in self._workers:
            return
        self._workers.remove(worker)
        worker.link.close()
        for flight in list(worker.flights.values()):
            flight.crash(f"worker {worker.name} died")
            self._casualties.blame(worker, flight)
            self._retire(flight)
        if self._closed or worker.dismissed:
            return
        self.notice(f"worker {worker.name} died")
        worker.clear_away()
        self._count_death()

    def _count_death(self) -> None:
        lost = self._casualties.count()
        if lost is not None:
            self.abandon(lost)

    def _watch(self) -> None:
        """Kill workers that should have said something."""
        if self._loop is None or self._loop.is_closed():
            return
        now = time.monotonic()
        for worker in self._workers:
            for flight in worker.flights.values():
                if now > flight.heard + flight.limit + self._orders.patience:
                    self.notice(f"worker {worker.name} is silent; it is killed")
                    worker.kill()
                    flight.heard = now
        self._loop.call_later(_WATCH, self._watch)

    # -- dispatch ----------------------------------------------------------------------

    def _dispatch(self) -> None:
        """Send what can be sent, oldest first, each to the least loaded worker."""
        for flight in list(self._pending):
            free = [
                worker
                for worker in self._workers
                if worker.ready and len(worker.flights) < self.concurrency
            ]
            if not free:
                return
            if flight.groups & self._busy_groups():
                continue
            worker = min(free, key=lambda worker: len(worker.flights))
            self._pending.remove(flight)
            flight.worker = worker.name
            flight.heard = time.monotonic()
            worker.flights[flight.request.id] = flight
            lacking = worker.lacking(flight.tree)
            self._give(worker, lacking, self._orders.of(flight, self.seed))

    def _busy_groups(self) -> set[str]:
        return {
            group
            for worker in self._workers
            for flight in worker.flights.values()
            for group in flight.groups
        }

    def _retire(self, flight: Flight, *, keep_slot: bool = False) -> None:
        """Close a flight's stream; its worker is free unless something still runs."""
        flight.close()
        self._flights.pop(flight.request.id, None)
        if flight in self._pending:
            self._pending.remove(flight)
        if not keep_slot:
            for worker in self._workers:
                worker.flights.pop(flight.request.id, None)

    def _give(
        self, worker: Worker, hashes: Iterable[str], *orders: messages.Run
    ) -> None:
        """Send contents, then orders; a content that is lost ends the run."""
        assert self._blob is not None
        try:
            contents = [messages.Blob(sha, self._blob(sha)) for sha in hashes]
        except EvoError as error:
            self.abandon(error)
        else:
            self._send(worker, *contents, *orders)

    def _send(self, worker: Worker, *orders: messages.ToWorker) -> None:
        try:
            worker.link.send(*map(messages.encode, orders))
        except OSError:
            self._post(worker, None)
