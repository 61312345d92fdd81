"""The part of the plugin that lives in a worker and answers requests.

It takes the place of xdist's own loop: after collection it says hello over its private
line and then serves requests until it is told to leave.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Generator
from collections.abc import Iterator
from collections.abc import Mapping
from contextlib import contextmanager
from dataclasses import fields
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pytest_evo.errors import SuiteProblem
from pytest_evo.errors import UsageProblem
from pytest_evo.models import CaseId
from pytest_evo.plugin import messages
from pytest_evo.plugin import signals
from pytest_evo.plugin.cases import Collected
from pytest_evo.plugin.cases import collected_marks
from pytest_evo.plugin.cassettes import cassette_problem
from pytest_evo.plugin.isolation import mount
from pytest_evo.plugin.isolation.kept import signals_are_kept
from pytest_evo.plugin.isolation.reach import recorder
from pytest_evo.plugin.launching import CaseLauncher
from pytest_evo.plugin.links import ChannelLink
from pytest_evo.plugin.links import Link
from pytest_evo.plugin.messages import WorkerSettings
from pytest_evo.plugin.modelwatch import watch_models
from pytest_evo.plugin.scratch import bytes_below
from pytest_evo.plugin.scratch import scratch_directory
from pytest_evo.plugin.scratch import temporary_directory
from pytest_evo.plugin.serving import Server
from pytest_evo.plugin.warming import warmable
from pytest_evo.plugin.warming import WarmFixtures

_ENDS_SESSION = (
    pytest.UsageError,  # as for a path or test id that is not there
    pytest.exit.Exception,
    pytest.Session.Failed,
    pytest.Session.Interrupted,
    KeyboardInterrupt,  # signals do not reach a worker: code has raised it
)


class WorkerPlugin:
    """Collects like any worker, then serves.

    Registered in ``pytest_configure``: from then on reads of the artifact are noted and
    signals that stop a run are the controller's business.
    """

    def __init__(
        self,
        config: pytest.Config,
        link: Link | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """Listen; without ``link`` and ``settings`` they come with xdist's input."""
        given: Mapping[str, Any] = getattr(config, "workerinput", {})
        self._local = link is not None
        self._config = config
        self._name = str(given.get("workerid", "main"))
        self._settings = worker_settings(settings or given["evo"])
        self._errors: list[str] = []
        self._early: list[bytes | None] = []
        self._lock = threading.Lock()
        self._server: Server | None = None
        self._leaving = False
        if not self._local:
            signals.ignore_stops()
        recorder().listen()
        watch_models(config)
        self._link: Link = link or ChannelLink(given["evo_channel"])
        self._link.listen(self._receive)

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember what could not be collected."""
        if report.failed:
            self._errors.append(f"{report.nodeid}\n{report.longreprtext}"[:10_000])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self) -> Generator[None, Any, Any]:
        """Say why this worker leaves."""
        with self._told():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Say why this worker leaves."""
        with self._told():
            return (yield)

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Have the controller hear of what nobody but pytest's own session would."""
        try:
            yield
        except _ENDS_SESSION as end:
            if not self._local:
                said = "\n".join(map(str, end.args)) or str(end)
                text = "\n".join([said, *self._errors]).strip()
                self._link.send(messages.encode(messages.Trouble(text=text)))
            raise

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Serve instead of running the collected items once."""
        if self._config.option.collectonly:
            return None
        directory = temporary_directory(messages.DIRECTORY_PREFIX)
        self._warm = WarmFixtures(session)
        hello, items = self._introduce(session)
        artifact = self._config.rootpath / self._settings.artifact
        memory = scratch_directory(messages.DIRECTORY_PREFIX, bytes_below(artifact))
        launcher = CaseLauncher(
            session,
            items,
            self._settings,
            directory,
            memory,
            shared=self._local,
            in_child=self._warm.keep,
        )
        hello = replace(
            hello,
            token=launcher.token,
            directory=str(directory),
            memory=str(memory),
        )
        server = Server(self._link, launcher, concurrency=self._settings.concurrency)
        try:
            self._link.send(messages.encode(hello))
            self._attach(server)
            found_controller = server.serve()
        finally:
            self._leaving = True
            launcher.close()
        if not found_controller and not self._local:
            os._exit(1)  # nobody is left to report to
        return True

    # -- the line ------------------------------------------------------------------

    def _receive(self, data: bytes | None) -> None:
        """Run in the transport's thread."""
        with self._lock:
            if self._server is not None:
                self._server.deliver(data)
            elif data is None and not self._local and not self._leaving:
                os._exit(1)  # the controller died while this worker collected
            else:
                self._early.append(data)

    def _attach(self, server: Server) -> None:
        with self._lock:
            self._server = server
            for data in self._early:
                server.deliver(data)
            self._early.clear()
        if not self._local:
            self._obey_xdist(server)

    def _obey_xdist(self, server: Server) -> None:
        """Leave when xdist ends the session for a reason of its own."""
        for plugin in self._config.pluginmanager.get_plugins():
            if type(plugin).__name__ == "WorkerInteractor":
                interactor: Any = plugin
                interactor.channel.setcallback(
                    lambda command: _pass_on_shutdown(command, server)
                )

    # -- hello ---------------------------------------------------------------------

    def _introduce(
        self, session: pytest.Session
    ) -> tuple[messages.Hello, Mapping[CaseId, pytest.Item]]:
        artifact = self._config.rootpath / self._settings.artifact
        seen = recorder().end_collection(artifact, self._config.rootpath)
        told = ""
        try:
            found = collected_marks(session)
            self._check(found, artifact)
        except UsageProblem as problem:
            told = str(problem)
            found = Collected((), "", {})
        hello = messages.Hello(
            id=self._name,
            pid=os.getpid(),
            host=socket.gethostname(),
            marks=found.marks,
            how=found.how,
            collected=tuple(item.nodeid for item in session.items),
            errors=tuple(self._errors),
            problem=told,
            reach=seen.reach,
            mount=mount.probe(artifact, self._settings.files),
            fork=None if hasattr(os, "fork") else "this system cannot fork",
            threads=foreign_threads(),
            descriptors=tuple(mount.open_descriptors(artifact)),
            warmable=warmable(session.items),
            signals_kept=signals_are_kept(),
        )
        return hello, found.items

    def _check(self, found: Collected, artifact: Path) -> None:
        """Stop what could not judge a candidate; set up what candidates share."""
        if self._settings.check_cassettes:
            problem = cassette_problem(found.items.values(), self._config.rootpath)
            if problem is not None:
                raise SuiteProblem(problem)
        self._warm.set_up(self._settings.warm_fixtures, artifact, self._config.rootpath)


def worker_settings(given: Mapping[str, Any]) -> WorkerSettings:
    """The settings of the serving part among all that workers are told."""
    known = {item.name for item in fields(WorkerSettings)}
    return messages.read(
        WorkerSettings, {name: given[name] for name in known.intersection(given)}
    )


def foreign_threads() -> tuple[str, ...]:
    """Names of threads that the project has started; they do not survive a fork.

    The transport's receiving thread and the engine's are not counted: children do
    without them.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    own = {threading.main_thread().ident, threading.get_ident()}
    own.update(ident for ident, name in names.items() if name.startswith("evo-"))
    return tuple(
        sorted(
            names.get(ident, "unnamed")
            for ident, frame in sys._current_frames().items()
            if ident not in own and not _is_transport(frame)
        )
    )


def _is_transport(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "_thread_receiver":
            return True
        frame = frame.f_back
    return False


def _pass_on_shutdown(command: object, server: Server) -> None:
    if isinstance(command, tuple) and command[:1] == ("shutdown",):
        server.deliver(messages.encode(messages.Stop(now=True)))
