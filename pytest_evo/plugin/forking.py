"""Test processes forked from the worker, which has collected and imported everything.

What a forked child does before the first line of a test: it leads a session of its own,
closes what belongs to the worker, sends everything that no capture catches to a log
of its own, takes over the result line, and sees the candidate (at the artifact's own
path where a mount can be had).
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import linecache
import os
import select
import sys
import traceback
import warnings
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import Protocol

import pytest

from pytest_evo.artifact.removal import remove
from pytest_evo.models import CaseId
from pytest_evo.models import Usage
from pytest_evo.plugin import messages
from pytest_evo.plugin import processes
from pytest_evo.plugin import signals
from pytest_evo.plugin.canary import failing_test
from pytest_evo.plugin.canary import Judges
from pytest_evo.plugin.canary import Watch
from pytest_evo.plugin.child import Deafened
from pytest_evo.plugin.child import nowhere
from pytest_evo.plugin.child import prepare_child
from pytest_evo.plugin.declared import declared
from pytest_evo.plugin.emitting import FrameEmitter
from pytest_evo.plugin.emitting import last_word
from pytest_evo.plugin.environment import enter_environment
from pytest_evo.plugin.environment import rollout_environment
from pytest_evo.plugin.frames import FrameReader
from pytest_evo.plugin.frames import FrameWriter
from pytest_evo.plugin.isolation import mount
from pytest_evo.plugin.isolation.candidates import quiet_bytecode
from pytest_evo.plugin.isolation.paths import below
from pytest_evo.plugin.isolation.paths import real
from pytest_evo.plugin.isolation.reach import recorder
from pytest_evo.plugin.isolation.shield import keep_signals
from pytest_evo.plugin.isolation.shield import Shield
from pytest_evo.plugin.itemrun import ItemRunner
from pytest_evo.plugin.launcher import Todo
from pytest_evo.plugin.processes import LINUX
from pytest_evo.plugin.spentnote import spent_so_far
from pytest_evo.plugin.spentnote import SpentNote

# Calls that every rollout pays for: names, not Path objects.
# ruff: noqa: PTH106, PTH108, PTH115, PTH116, PTH208

TOKEN_VARIABLE = "PYTEST_EVO_PROCESS"
_LOG_BYTES = 20_000


@dataclass(frozen=True, slots=True)
class Place:
    """Where a test process works."""

    candidate: Path  # the throw-away copy
    artifact: Path  # the artifact's real path
    project: Path  # the rootdir
    scratch: Path  # its temporary directory; removed with it
    log: Path
    files: tuple[str, ...] = ()  # what ``include`` selects; see isolation.mount
    shield: Shield | None = None  # what is kept from it where it is mounted


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the environment of all rollouts of a run has in common."""

    token: str
    run: str = ""
    hidden: tuple[str, ...] = ()
    allow: tuple[str, ...] | None = None

    def variables(self, artifact: Path) -> dict[str, str]:
        """The environment of a test process, from this process's own."""
        wanted = rollout_environment(
            os.environ,
            artifact=artifact,
            hidden=self.hidden,
            allow=self.allow,
            run=self.run,
        )
        wanted[TOKEN_VARIABLE] = self.token
        return wanted


class Exit(Protocol):
    """How one learns that a process has ended."""

    status: int | None

    def poll(self, *, wait: bool) -> bool:
        """Whether it has ended; ``wait``: it has, get ``status`` if at all possible."""


class ForkExit:
    """Of a child of this process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._gone = False
        self.status: int | None = None

    def poll(self, *, wait: bool) -> bool:
        """Whether it has ended; collects it then."""
        if not self._gone:
            try:
                pid, status = os.waitpid(self._pid, 0 if wait else os.WNOHANG)
            except ChildProcessError:  # a handler of the project was faster
                self._gone = True
            else:
                if pid:
                    self._gone, self.status = True, status
        return self._gone


class Child:
    """A test process, from its start until nothing of it is left."""

    def __init__(
        self,
        pid: int,
        reader: FrameReader,
        place: Place,
        exit_: Exit,
        release: Callable[[], str | None],
    ) -> None:
        """Watch a process; ``release`` gives its candidate back and judges it."""
        self.pid = pid
        self.reader = reader
        self.exit_descriptor = _descriptor_of(pid)
        self._place = place
        self._exit = exit_
        self._release = release

    def ended(self) -> bool:
        """Whether it has ended."""
        if self.exit_descriptor < 0:
            return self._exit.poll(wait=False)
        poll = select.poll()
        poll.register(self.exit_descriptor, select.POLLIN)
        return bool(poll.poll(0))

    def collect(self) -> int | None:
        """Its wait status."""
        if self.exit_descriptor >= 0:
            os.close(self.exit_descriptor)
            self.exit_descriptor = -1
        self._exit.poll(wait=True)
        return self._exit.status

    def log(self) -> str:
        """The end of what it wrote outside the capture of its tests."""
        try:
            if not os.stat(self._place.log).st_size:
                return ""
            with self._place.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LOG_BYTES))
                return file.read(_LOG_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def spent(self, case: CaseId, repeat: int) -> Usage:
        """What it noted that a rollout had spent."""
        return spent_so_far(self._place.scratch, case, repeat)

    def clean(self) -> str | None:
        """Remove its files; say what it did to the candidate's."""
        violation = self._release()
        with contextlib.suppress(OSError):
            os.unlink(self._place.log)
        try:
            os.rmdir(self._place.scratch)
        except FileNotFoundError:
            pass
        except OSError:  # tests have left files there
            with contextlib.suppress(OSError):
                remove(self._place.scratch)
        return violation


def _descriptor_of(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # another system, an old kernel, already gone
        return -1


def settle(items: Collection[pytest.Item]) -> None:
    """Call once before forking: children then share what would cost each of them anew.

    That is the memory of what is collected, and what Python looks up at the first
    traceback: which module each file belongs to, and the lines of the tests.
    """
    for path in {item.path for item in items}:
        linecache.getlines(str(path))
    inspect.getmodule(settle.__code__)  # fills a table of all modules
    for item in items:
        if type(item) is pytest.Function:
            # the first copy writes to its class, of which Python then knows no method
            copy.copy(failing_test(copy.copy(item)))
            break
    gc.collect()
    gc.freeze()


def fork(child: Callable[[], None]) -> int:
    """Fork; the child runs ``child`` and leaves. Only for the main thread."""
    with warnings.catch_warnings():
        # the receiving thread of the transport is of no use to the child and not needed
        warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
        pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        child()
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(code)


class ForkedChild:
    """What a forked child does; everything is looked up before the fork."""

    def __init__(
        self, session: pytest.Session, items: Mapping[CaseId, pytest.Item]
    ) -> None:
        self._config = session.config
        self._items = items
        self._runner = ItemRunner(session.config, session)
        self._judges = Judges()
        self._parent = os.getpid()
        self._deafened = Deafened.of(session.config)
        self._surroundings: Surroundings | None = None
        nowhere()
        declared(session.config)  # read now, not in every child

    def start(
        self,
        run: messages.Run,
        todo: Sequence[Todo],
        place: Place,
        surroundings: Surroundings,
        descriptor: int,
        let_go: Callable[[], None],
    ) -> int:
        """Fork a child for these runs; return its process id."""

        def child() -> None:
            processes.lead_session(self._parent)
            signals.restore()
            let_go()
            self._redirect(place.log, place.shield)
            writer = FrameWriter(descriptor)
            prepare_child(self._config, place.scratch, self._deafened)
            seen_at = place.candidate
            if run.mount:
                mount.enter(place.candidate, place.artifact, place.files, place.shield)
                processes.die_with_parent(self._parent)  # new credentials forget it
                seen_at = place.artifact
            else:
                keep_signals()
            enter_environment(surroundings.variables(seen_at))
            quiet_bytecode()
            self._run(run, todo, place, seen_at, writer)

        self._flush()
        if surroundings != self._surroundings:
            surroundings.variables(place.artifact)  # the patterns are tried here once
            self._surroundings = surroundings
        real(os.fspath(place.scratch.parent))
        if run.mount:
            mount.prepare(place.candidate, place.artifact)
        return fork(child)

    def _flush(self) -> None:
        """What waits in buffers would be written by every child once more."""
        reporter: Any = self._config.pluginmanager.getplugin("terminalreporter")
        terminal = reporter._tw._file if reporter is not None else None
        for stream in (terminal, sys.stdout, sys.__stdout__, sys.__stderr__):
            if stream is not None:
                with contextlib.suppress(OSError, ValueError):  # closed by the project
                    stream.flush()

    def _run(
        self,
        run: messages.Run,
        todo: Sequence[Todo],
        place: Place,
        seen_at: Path,
        writer: FrameWriter,
    ) -> None:
        items = [self._items[case] for case, _, _ in todo if case in self._items]
        watch = Watch(self._judges, self._config, items)
        try:
            self._runner.run(
                [(case, repeat) for case, repeat, _ in todo],
                self._items,
                seed=run.seed,
                artifact=seen_at,
                emit=FrameEmitter(
                    writer, place.artifact, seen_at, place.project, mounted=run.mount
                ),
                leave=recorder().wrote,
                spent=SpentNote(place.scratch),
            )
        finally:
            writer.flush()
        writer.send(last_word(watch, self._runner, items))

    def _redirect(self, log: Path, shield: Shield | None) -> None:
        """Give output that no test's capture catches a file of its own.

        The worker's capture files are shared by all its children, with their offset.
        Other descriptors of the terminal, and of files that rollouts must not see, are
        let go of.
        """
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        capture: Any = self._config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            capture.stop_global_capturing()
        terminal = {_identity(1), _identity(2)} - _nothing()
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        _let_go_of(terminal, shield.hidden if shield is not None else ())


def _let_go_of(terminal: Collection[object], hidden: Sequence[str]) -> None:
    """Point descriptors of the terminal and of files in hidden folders nowhere."""
    empty = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    for number in _open_descriptors():
        with contextlib.suppress(OSError):
            name = os.readlink(f"/proc/self/fd/{number}") if LINUX else ""
            inside = any(below(name, folder) is not None for folder in hidden)
            if inside or _identity(number) in terminal:
                os.dup2(empty, number, inheritable=False)
    os.close(empty)


def _open_descriptors() -> list[int]:
    """All descriptors above standard error."""
    try:
        names = os.listdir("/proc/self/fd" if LINUX else "/dev/fd")
    except OSError:
        return []
    return [number for number in map(int, names) if number > 2]


def _identity(descriptor: int) -> object:
    try:
        return _inode(os.fstat(descriptor))
    except OSError:  # closed
        return None


def _nothing() -> set[object]:
    """What a closed descriptor and one of the null device are."""
    return {None, _inode(os.stat(os.devnull))}


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
