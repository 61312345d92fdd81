"""Workers that are xdist's: local processes, ssh, sockets.

xdist starts, replaces and stops them; each gets a private channel, and the work
is none of xdist's business.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_evo.errors import WorkerProblem
from pytest_evo.errors import WorkersLost
from pytest_evo.plugin.links import ChannelLink
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.pools.session import EngineSession
from pytest_evo.plugin.pools.session import EngineThread
from pytest_evo.plugin.scheduler import Scheduler

_STARTS = 4  # how often the start of one worker is tried
_RESTARTS = "1000000"  # the pool counts those without progress


class _SessionOver(Exception):
    """The run has ended; a worker that xdist would replace is not needed."""


class XdistSession(EngineSession):
    """The controller's side of an xdist session whose workers serve rollouts.

    Register it as a plugin in ``pytest_configure``, before xdist's own (which comes
    last by itself).
    """

    def __init__(
        self,
        config: pytest.Config,
        settings_for_workers: Mapping[str, Any],
        run_engine: Callable[[Pool], int],
        on_soft_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            config: of the controller.
            settings_for_workers: plain data for ``workerinput["evo"]``; the keys of
                ``messages.WorkerSettings`` and what else the plugin's parts read.
            run_engine: gets the pool when all workers have collected the same cases,
                on a thread of its own; returns the exit status.
            on_soft_stop: see :class:`EngineSession`.
        """
        self._settings = dict(settings_for_workers)
        count = len(config.getoption("tx", None) or [])
        pool = Pool(
            workers=_count_workers(config) or count or 1,
            concurrency=int(self._settings.get("concurrency", 1)),
            notice=self._notice,
        )
        super().__init__(pool, on_soft_stop)
        self._config = config
        self._scheduler = Scheduler(pool.expected)
        self._engine = EngineThread(pool, run_engine, self._engine_ended)
        if config.option.maxworkerrestart is None:
            config.option.maxworkerrestart = _RESTARTS

    # -- xdist ---------------------------------------------------------------------

    @pytest.hookimpl
    def pytest_xdist_setupnodes(self, config: pytest.Config) -> None:
        """Start a worker again that died before it could say a word.

        Nothing hears of such a death but the start itself, and xdist lets it end the
        session. It has no hook around a start.
        """
        manager = config.pluginmanager.getplugin("dsession").nodemanager
        manager.setup_node = _persistent(manager.setup_node, manager.group)

    @pytest.hookimpl
    def pytest_configure_node(self, node: Any) -> None:
        """Give a worker, a replacement too, its line and its settings."""
        if self._scheduler.finished:
            raise _SessionOver
        channel = node.gateway.newchannel()
        node.workerinput["evo_channel"] = channel
        node.workerinput["evo"] = self._settings
        link = ChannelLink(channel, queued=True)
        self.pool.add_worker(node.gateway.id, link, lambda: _kill(node))

    @pytest.hookimpl(tryfirst=True)
    def pytest_xdist_make_scheduler(self) -> Scheduler:
        """Take the place of xdist's schedulers."""
        return self._scheduler

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Any:
        """Run xdist's loop, then see how the engine ended."""
        if self._config.option.collectonly:
            return (yield)
        self._signals.install()
        self._engine.start()
        broken_off = True
        try:
            with contextlib.suppress(_SessionOver):
                yield
            broken_off = False
        finally:
            self.pool.close(now=broken_off)
            self._engine.join(broken_off=broken_off)
            self._signals.finishing = True
            if isinstance(self._engine.error, WorkerProblem):
                # xdist says no more than that its workers are gone
                raise pytest.UsageError(str(self._engine.error))
            if self.exit_status is None:
                self.exit_status = self._engine.exit_status
        return True

    # -- the engine ----------------------------------------------------------------

    def _engine_ended(self) -> None:
        """Let the workers leave; xdist notices the end by their farewells."""
        self._scheduler.finished = True
        self.pool.close(now=isinstance(self._engine.error, WorkersLost))

    def _notice(self, text: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self._config.option.verbose >= 0:
            reporter.ensure_newline()
            reporter.write_line(f"evo: {text}")


def _persistent(start: Callable[..., Any], group: Any) -> Callable[..., Any]:
    """Try a start that the death of the new process can break off more than once."""

    def start_at_last(spec: Any, *arguments: Any) -> Any:
        for _ in range(_STARTS - 1):
            with contextlib.suppress(EOFError, OSError):
                return start(spec, *arguments)
            if spec.id in group:  # who died had its name already
                spec.id = None
                group.allocate_id(spec)
        return start(spec, *arguments)

    return start_at_last


def _count_workers(config: pytest.Config) -> int:
    """How many workers xdist will start: ``--tx 3*popen`` are three."""
    total = 0
    for spec in config.getoption("tx", None) or []:
        times, star, _ = str(spec).partition("*")
        total += int(times) if star and times.isdigit() else 1
    return total


def _kill(node: Any) -> None:
    """End a worker that does not answer."""
    spec = node.gateway.spec
    if spec.popen and not spec.via:
        with contextlib.suppress(OSError, AttributeError):
            os.kill(node.gateway._rinfo().pid, signal.SIGKILL)
            return
    node.gateway.exit()
