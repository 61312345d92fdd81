"""The worker's loop: requests in, test processes under watch, rollouts out.

Nothing here knows pytest. A :class:`Launcher` starts test processes; this module keeps
their clocks, reads their frames, ends them with all they started, and says what became
of each run.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from pytest_evo.errors import EvoError
from pytest_evo.models import Outcome
from pytest_evo.models import START
from pytest_evo.plugin import messages
from pytest_evo.plugin import processes
from pytest_evo.plugin.accounting import Account
from pytest_evo.plugin.accounting import how_ended
from pytest_evo.plugin.accounting import Leg
from pytest_evo.plugin.accounting import was_killed
from pytest_evo.plugin.frames import FrameForged
from pytest_evo.plugin.launcher import Launcher
from pytest_evo.plugin.launcher import Todo
from pytest_evo.plugin.links import Link

PATIENCE = 60.0  # seconds for a test process to start, to go on, or to end
_COLLECTING = 10.0  # seconds that a fresh process may at least take to collect
_ABORT = 0.5  # seconds for a hanging process to write where it hangs
_TOGETHER = 0.02  # seconds that news of a case may wait for more of it
_POLL = 0.05  # seconds between looks where the system has no process descriptors


class Server:
    """Answers requests until it is told to stop or the other side is gone."""

    def __init__(
        self,
        link: Link,
        launcher: Launcher,
        *,
        concurrency: int = 1,
        patience: float = PATIENCE,
    ) -> None:
        self._link = link
        self._launcher = launcher
        self._concurrency = concurrency
        self._patience = patience
        self._account = Account(launcher, self._tell, patience)
        self._untold: list[bytes] = []
        self._tell_by: float | None = None  # when the first of them has to go
        self._inbox: deque[bytes | None] = deque()
        self._wake_read, self._wake_write = os.pipe()
        self._wake_lock = threading.Lock()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._wake_read, selectors.EVENT_READ, self._receive)
        self._lacking: list[messages.Run] = []
        self._asked: set[str] = set()
        self._ready: deque[tuple[messages.Run, deque[Todo]]] = deque()
        self._legs: list[Leg] = []
        self._usual: set[str] = set()
        self._stopping = False
        self.abandoned = False

    # -- other threads -------------------------------------------------------------

    def deliver(self, data: bytes | None) -> None:
        """Take a message from any thread; None: the controller is gone."""
        self._inbox.append(data)
        with self._wake_lock:
            if self._wake_write >= 0:
                with contextlib.suppress(BlockingIOError):
                    os.write(self._wake_write, b"!")

    # -- the loop ------------------------------------------------------------------

    def serve(self) -> bool:
        """Work until told to stop; False if the controller went away instead.

        However it is left, nothing that was started still runs.
        """
        try:
            while self._legs or not self._stopping:
                for key, _ in self._selector.select(self._wait()):
                    key.data()
                self._watch()
                self._fill()
                if self._tell_by is not None and time.monotonic() >= self._tell_by:
                    self._send()
        finally:
            for leg in list(self._legs):
                self._end(leg, "cancel")
            self._send()
            self._selector.close()
            with self._wake_lock:  # first, so that nobody writes where nobody reads
                os.close(self._wake_write)
                self._wake_write = -1
            os.close(self._wake_read)
        return not self.abandoned

    def _wait(self) -> float | None:
        if not self._legs:
            return None
        if any(leg.process.exit_descriptor < 0 for leg in self._legs):
            return _POLL
        due = min(leg.deadline for leg in self._legs)
        if self._tell_by is not None:
            due = min(due, self._tell_by)
        return max(0.0, due - time.monotonic())

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        while self._inbox:
            data = self._inbox.popleft()
            if data is None:
                self._abandon()
            else:
                self._obey(messages.decode(data))

    def _obey(self, message: messages.Message) -> None:
        match message:
            case messages.Run():
                self._lacking.append(message)
                self._check_blobs()
            case messages.Blob():
                self._keep(message)
            case messages.Cancel():
                self._cancel(message.id)
            case messages.Configure():
                self._launcher.configure(message)
            case messages.Stop():
                self._stopping = True
                self._lacking.clear()
                self._ready.clear()
                if message.now:
                    for leg in list(self._legs):
                        self._kill(leg, "cancel")
            case _:
                self._tell(messages.Log(text=f"unexpected message {message.kind}"))

    def _keep(self, blob: messages.Blob) -> None:
        try:
            self._launcher.add(blob)
        except OSError as error:
            if not self._in_trouble():
                raise
            self._tell(messages.Log(text=f"a file could not be kept: {error}"))
            return
        self._asked.discard(blob.id)
        self._check_blobs()

    def _in_trouble(self) -> bool:
        """Whether nothing can be run here; the controller is told and ends the run."""
        trouble = self._launcher.trouble()
        if trouble is None:
            return False
        self._tell(messages.Trouble(text=trouble))
        self._lacking.clear()
        self._ready.clear()
        return True

    def _abandon(self) -> None:
        self.abandoned = self._stopping = True
        self._lacking.clear()
        self._ready.clear()
        for leg in list(self._legs):
            self._kill(leg, "cancel")

    def _cancel(self, request: str) -> None:
        for leg in self._legs:
            if leg.run.id == request:
                self._kill(leg, "cancel")
                return
        self._lacking = [run for run in self._lacking if run.id != request]
        self._ready = deque(pair for pair in self._ready if pair[0].id != request)
        self._tell(messages.Done(request))

    def _check_blobs(self) -> None:
        waiting, self._lacking = self._lacking, []
        for run in waiting:
            missing = self._launcher.missing(run)
            if not missing:
                self._ready.append((run, self._divide(run)))
                continue
            self._lacking.append(run)
            ask = [sha for sha in missing if sha not in self._asked]
            if ask:
                self._asked.update(ask)
                self._tell(messages.Need(run.id, tuple(ask)))

    def _divide(self, run: messages.Run) -> deque[Todo]:
        """What of a request can be run here; say of the rest that it is missing."""
        todo: deque[Todo] = deque()
        for (case, repeat), limit in zip(run.runs, run.timeouts, strict=True):
            if self._launcher.knows(run, case):
                todo.append((case, repeat, limit))
                continue
            payload = self._launcher.report(
                Outcome.MISSING, 0.0, "this worker did not collect the case", ""
            )
            self._tell(messages.Finished(run.id, case, repeat, payload=payload))
        return todo

    # -- test processes ------------------------------------------------------------

    def _fill(self) -> None:
        while self._ready and len(self._legs) < self._concurrency:
            run, todo = self._ready.popleft()
            if not todo:
                self._tell(messages.Done(run.id))
                continue
            try:
                process = self._launcher.launch(run, tuple(todo), self._forget)
            except (OSError, EvoError) as error:
                if self._in_trouble():
                    return
                self._account.give_back(
                    run, todo, f"no test process could be started: {error}"
                )
                self._tell(messages.Done(run.id))
                continue
            deadline = time.monotonic() + self._starting(run, todo)
            leg = Leg(run, process, todo, deadline)
            self._legs.append(leg)
            self._selector.register(
                process.reader, selectors.EVENT_READ, partial(self._read, leg)
            )
            if process.exit_descriptor >= 0:
                self._selector.register(
                    process.exit_descriptor,
                    selectors.EVENT_READ,
                    partial(setattr, leg, "gone", True),
                )

    def _starting(self, run: messages.Run, todo: Iterable[Todo]) -> float:
        """Seconds until the first case has to begin."""
        if run.mode is messages.Mode.FORK:
            return self._patience
        # it imports the candidate first, which may hang like any case
        longest = max(limit for _, _, limit in todo)
        return min(self._patience, max(_COLLECTING, longest))

    def _forget(self) -> None:
        """In a forked child: let go of everything that belongs to the worker."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in self._link.descriptors():
            os.dup2(nowhere, descriptor)  # the numbers stay taken, by nothing
        os.close(nowhere)
        for leg in self._legs:
            leg.process.reader.close()
            if leg.process.exit_descriptor >= 0:
                os.close(leg.process.exit_descriptor)
        self._selector.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _read(self, leg: Leg) -> None:
        if leg not in self._legs or leg.ending in ("cancel", "forged"):
            with contextlib.suppress(FrameForged):
                list(leg.process.reader.messages())
            return
        try:
            for message in leg.process.reader.messages():
                self._follow(leg, message)
        except FrameForged as error:
            leg.violations.append(f"a test wrote into the result line: {error}")
            self._kill(leg, "forged")
        if leg.process.reader.closed:
            with contextlib.suppress(KeyError):
                self._selector.unregister(leg.process.reader)

    def _follow(self, leg: Leg, message: messages.Message) -> None:
        """Take one frame of a child; it has to be about a run that is still to do."""
        match message:
            case messages.Started(case=case, repeat=repeat):
                if leg.current:
                    raise FrameForged(f"{case} began inside {leg.current[0]}")
                leg.current = leg.find(case, repeat)
                leg.began = time.monotonic()
                leg.deadline = leg.began + leg.current[2]
            case messages.Finished(case=case, repeat=repeat):
                entry = leg.find(case, repeat)
                if leg.current not in (None, entry):
                    raise FrameForged(f"{case} ended inside another case")
                leg.todo.remove(entry)
                leg.finished += 1
                leg.current = None
                leg.deadline = time.monotonic() + self._patience
            case messages.Farewell():
                self._part(leg, message)
                return
            case messages.Log():
                pass
            case _:
                raise FrameForged(f"a test process sent {message.kind!r}")
        self._tell(replace(message, id=leg.run.id))

    def _part(self, leg: Leg, farewell: messages.Farewell) -> None:
        """Hear what a process has found changed in itself after all its cases."""
        early = farewell.early and leg.finished > 0
        if leg.parted or (leg.todo and not early):
            raise FrameForged("a test process took leave before its cases had run")
        leg.parted = True
        if leg.run.candidate == START:  # what the suite itself does is no candidate's
            self._usual.update(farewell.tampered)
        else:
            leg.violations += [
                what for what in farewell.tampered if what not in self._usual
            ]

    def _watch(self) -> None:
        now = time.monotonic()
        for leg in list(self._legs):
            if leg.gone or (leg.process.exit_descriptor < 0 and leg.process.ended()):
                self._finish(leg)
            elif now >= leg.deadline:
                self._expire(leg)

    def _expire(self, leg: Leg) -> None:
        if leg.ending and leg.aborted:
            processes.kill_tree(leg.process.pid)
            leg.deadline = time.monotonic() + _ABORT
        else:
            # SIGABRT makes faulthandler write where the process hangs
            leg.ending = leg.ending or ("timeout" if leg.current else "stuck")
            leg.aborted = True
            leg.deadline = time.monotonic() + _ABORT
            with contextlib.suppress(OSError):
                os.kill(leg.process.pid, signal.SIGABRT)

    def _kill(self, leg: Leg, why: str) -> None:
        leg.ending = leg.ending or why
        leg.aborted = True
        leg.deadline = time.monotonic() + _ABORT
        processes.kill_tree(leg.process.pid)

    def _end(self, leg: Leg, why: str) -> None:
        """Kill a leg and wait for it; for the way out of the loop."""
        self._kill(leg, why)
        limit = time.monotonic() + self._patience
        while not leg.process.ended() and time.monotonic() < limit:
            time.sleep(0.001)
        self._finish(leg)

    def _finish(self, leg: Leg) -> None:
        """A process has ended: clean up after it and say what is left to say."""
        if not leg.ending or leg.ending == "timeout":
            self._read(leg)  # frames that it left behind
        process = leg.process
        processes.kill_group(process.pid)  # the id is ours until it is collected
        with contextlib.suppress(KeyError):
            self._selector.unregister(process.reader)
        if process.exit_descriptor >= 0:
            self._selector.unregister(process.exit_descriptor)
        self._legs.remove(leg)
        status = process.collect()
        self._launcher.sweep([other.process for other in self._legs], process)
        process.reader.close()
        log = process.log()
        unchecked = None
        if not leg.todo and not leg.parted and not leg.ending:
            text = f"ended before its last check: {how_ended(status)}"
            if was_killed(status) and leg.run.attempt == 0:
                unchecked = text
            else:
                leg.violations.append(text)
        self._account.settle(leg, status, log, self._starting)
        violation = process.clean()
        if violation:
            leg.violations.append(violation)
        for text in self._launcher.notices:
            self._tell(messages.Log(text=text))
        self._launcher.notices.clear()
        if self._in_trouble():
            return  # its rollouts are not handed out: they may have wanted room
        more = bool(leg.todo)
        violation = "; ".join(leg.violations) or None
        self._tell(messages.Done(leg.run.id, violation, more, unchecked))
        if more:
            self._ready.appendleft((leg.run, leg.todo))

    def _tell(self, message: messages.Message) -> None:
        """Tell the controller; begins and ends of cases wait for each other.

        Every message wakes the controller, which shares the processors with the test
        processes. It acts on these only when their process has ended, or this one: a
        case that takes its worker along that soon is not known to have begun.
        """
        self._untold.append(messages.encode(message))
        if not isinstance(message, messages.Started | messages.Finished):
            self._send()
        elif self._tell_by is None:
            self._tell_by = time.monotonic() + _TOGETHER

    def _send(self) -> None:
        untold, self._untold, self._tell_by = self._untold, [], None
        try:
            self._link.send(*untold)
        except OSError:
            self.deliver(None)
