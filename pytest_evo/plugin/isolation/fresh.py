"""Mode ``fresh``: a new interpreter state per request, without a cold start.

A worker starts one *zygote*: a new interpreter that imports the installed packages
which the worker has loaded, and nothing of the project. For each request it forks a
child that configures pytest from scratch and collects the files it needs.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from typing import IO

import pytest
from _pytest.assertion.rewrite import AssertionRewritingHook

from pytest_evo.errors import EvoError
from pytest_evo.models import CaseId
from pytest_evo.plugin.isolation.installed import attribute
from pytest_evo.plugin.isolation.installed import installed_prefixes
from pytest_evo.plugin.isolation.installed import is_installed
from pytest_evo.plugin.isolation.shield import Shield

_ENDING_SECONDS = 5.0
_STATUS_SECONDS = 1.0  # how long it may take to tell how a child ended
_LAUNCHED_AS_MODULE = "__main__.py"


@dataclass(frozen=True, slots=True)
class FreshTask:
    """What one child of the zygote does; plain data, it travels pickled."""

    runs: tuple[tuple[CaseId, int], ...]
    candidate: str  # directory with the candidate's files
    artifact: str  # the artifact's real path
    project: str  # rootdir of the project
    mount: bool = False
    files: tuple[str, ...] = ()  # see mount.enter
    shield: Shield | None = None
    workspace: str | None = None  # rootdir of a project copy to run in instead
    environment: Mapping[str, str] | None = None  # None: as the zygote has it
    seed: int = 0
    basetemp: str | None = None
    log: str | None = None  # where output goes that no capture catches


@dataclass(frozen=True, slots=True)
class ChildExit:
    """A child of the zygote ended; ``status`` is a wait status."""

    pid: int
    status: int


@dataclass(frozen=True, slots=True)
class ZygoteSpec:
    """What a zygote needs to know of the session; ``describe_session`` makes it."""

    modules: tuple[str, ...]  # installed ones, in the order of their first import
    rewritten: tuple[str, ...]  # those whose assertions pytest has rewritten
    args: tuple[str, ...]
    argv: tuple[str, ...]
    leading_path: tuple[str, ...]  # what the way pytest was started puts on sys.path
    invocation_dir: str
    rootdir: str
    inifile: str | None
    workerinput: Mapping[str, Any] | None = None


def describe_session(config: pytest.Config) -> ZygoteSpec:
    """Read modules, arguments and paths off a worker's configuration."""
    prefixes = installed_prefixes()
    modules: list[str] = []
    rewritten: list[str] = []
    for name, module in list(sys.modules.items()):
        if is_installed(name, module, prefixes):
            modules.append(name)
            if isinstance(attribute(module, "__loader__"), AssertionRewritingHook):
                rewritten.append(name)
    given: Mapping[str, Any] | None = getattr(config, "workerinput", None)
    started = (given or {}).get("mainargv") or sys.argv
    invocation = config.invocation_params
    as_module = Path(started[0]).name == _LAUNCHED_AS_MODULE
    return ZygoteSpec(
        modules=tuple(modules),
        rewritten=tuple(rewritten),
        args=(*map(str, invocation.args), *_without_coverage(config)),
        argv=tuple(sys.argv),
        leading_path=(str(invocation.dir),) if as_module else (),
        invocation_dir=str(invocation.dir),
        rootdir=str(config.rootpath),
        inifile=str(config.inipath) if config.inipath else None,
        workerinput=None if given is None else _plain(given),
    )


def _without_coverage(config: pytest.Config) -> Iterable[str]:
    """A fresh session must not erase or add to what the user's own one measures."""
    if config.pluginmanager.hasplugin("pytest_cov"):
        yield "--no-cov"


def _plain(given: Mapping[str, Any]) -> dict[str, Any]:
    """What can be pickled, less the plugin's own part: a child serves nobody."""
    kept: dict[str, Any] = {}
    for name, value in given.items():
        if name != "evo" and not name.startswith("evo_"):
            with contextlib.suppress(pickle.PicklingError, TypeError, AttributeError):
                pickle.dumps(value)
                kept[name] = value
    return kept


class Zygote:
    """The parent process of fresh children: one per worker."""

    def __init__(
        self, process: subprocess.Popen[bytes], line: Line, output: IO[bytes]
    ) -> None:
        """Take over a started process; use ``start``."""
        self._process = process
        self._line = line
        self._output = output
        self._news: list[ChildExit] = []
        self.threads: tuple[str, ...] = ()

    @classmethod
    def start(
        cls,
        spec: ZygoteSpec,
        *,
        timeout: float = 120.0,
        environment: Mapping[str, str] | None = None,
    ) -> Zygote:
        """Start it and wait until it has imported the installed packages.

        Raises:
            EvoError: it ended or did not get ready; the message has its output.
        """
        mine, theirs = socket.socketpair()
        output = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as the zygote)
        flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
        script = Path(__file__).with_name("zygote.py")
        try:
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, *flags, str(script), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=spec.invocation_dir,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            mine.close()
            output.close()
            raise EvoError(
                f"the parent process of fresh rollouts did not start: {error}"
            ) from error
        zygote = cls(process, Line(mine), output)
        try:
            zygote._line.send(spec)
            zygote.threads = tuple(zygote._answer("ready", timeout))
        except (EvoError, OSError) as error:
            said = zygote._said()
            zygote.close()
            raise EvoError(
                f"the parent process of fresh rollouts did not start: {error}\n{said}"
                "Type --evo-isolation=fork if no test module reads the artifact while "
                "it is imported."
            ) from error
        return zygote

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def fork(self, task: FreshTask, frames: int) -> int:
        """Fork a child for a task; return its pid (also its process group's id).

        The child streams frames to the descriptor ``frames`` (passed on; the caller
        closes its own copy) and leads a session of its own: kill it by ``os.killpg``.

        Raises:
            EvoError: the zygote is gone.
        """
        try:
            self._line.send(task, frames)
            (pid,) = self._answer("forked", _ENDING_SECONDS * 6)
        except OSError as error:
            raise EvoError(f"the parent of fresh rollouts is gone: {error}") from error
        return int(pid)

    def fileno(self) -> int:
        """A descriptor that gets readable when ``exits`` has news."""
        return self._line.fileno()

    def exits(self) -> list[ChildExit]:
        """Children that ended since the last call; does not block."""
        with contextlib.suppress(OSError):  # a dead zygote has no news any more
            while select.select([self._line], [], [], 0)[0]:
                self._take(self._line.receive()[0])
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        """End the zygote and kill every child that still runs."""
        self._line.close()
        try:
            self._process.wait(_ENDING_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._output.close()

    def _answer(self, kind: str, timeout: float) -> tuple[Any, ...]:
        deadline = time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._line], [], [], left)[0]:
                raise EvoError(f"no answer within {timeout:g} s")
            message = self._line.receive()[0]
            if message[0] == kind:
                return tuple(message[1:])
            self._take(message)

    def _take(self, message: tuple[Any, ...]) -> None:
        kind, *rest = message
        if kind == "exit":
            self._news.append(ChildExit(*rest))
        else:
            raise EvoError(f"{kind}: {rest[0]}")

    def _said(self) -> str:
        self._output.seek(0)
        text = self._output.read()[-4000:].decode(errors="replace")
        return f"{text.rstrip()}\n" if text.strip() else ""


class ZygoteExit:
    """Of a child of the zygote, which alone can learn its status."""

    def __init__(self, zygote: Zygote, pid: int, exits: dict[int, int]) -> None:
        self._zygote = zygote
        self._pid = pid
        self._exits = exits
        self.status: int | None = None

    def poll(self, *, wait: bool) -> bool:
        """Whether it has ended, as far as the zygote has said."""
        deadline = time.monotonic() + (_STATUS_SECONDS if wait else 0.0)
        while True:
            try:
                for news in self._zygote.exits():
                    self._exits[news.pid] = news.status
            except EvoError:  # it is gone, or in trouble
                return True
            if self._pid in self._exits:
                self.status = self._exits.pop(self._pid)
            left = deadline - time.monotonic()
            if self.status is not None or left <= 0:
                return self.status is not None
            try:
                select.select([self._zygote], [], [], left)
            except (OSError, ValueError):  # the zygote is gone
                return True


class Line:
    """Pickled messages, with a descriptor where one is to be passed on.

    Both ends are the same program of the same user: nothing of a test writes here.
    """

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, message: object, descriptor: int | None = None) -> None:
        """Send one message."""
        body = pickle.dumps(message)
        head = len(body).to_bytes(8, "big")
        if descriptor is None:
            self._end.sendall(head)
        else:
            socket.send_fds(self._end, [head], [descriptor])
        self._end.sendall(body)

    def receive(self) -> tuple[Any, int | None]:
        """One message and the descriptor that came with it; blocks.

        Raises:
            ConnectionError: the other end is gone.
        """
        head, descriptors, _, _ = socket.recv_fds(self._end, 8, 1)
        head += self._exactly(8 - len(head))
        body = self._exactly(int.from_bytes(head, "big"))
        return pickle.loads(body), descriptors[0] if descriptors else None

    def fileno(self) -> int:
        """For selectors."""
        return self._end.fileno()

    def close(self) -> None:
        """Close this end."""
        self._end.close()

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._end.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("the other end of the line is closed")
            data += part
        return bytes(data)
