"""No workers: the engine on a thread, the serve loop on the main thread (``-n 0``)."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_evo.plugin.links import local_pair
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.pools.session import EngineSession
from pytest_evo.plugin.pools.session import EngineThread
from pytest_evo.plugin.worker import WorkerPlugin


class InProcessSession(EngineSession):
    """Controller and worker in one process; requests fork from it all the same."""

    def __init__(
        self,
        config: pytest.Config,
        settings_for_workers: Mapping[str, Any],
        run_engine: Callable[[Pool], int],
        on_soft_stop: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare; the arguments are those of ``XdistSession``."""
        pool = Pool(
            workers=1,
            concurrency=int(settings_for_workers.get("concurrency", 1)),
            notice=self._notice,
        )
        super().__init__(pool, on_soft_stop)
        self._config = config
        ours, theirs = local_pair()
        self._worker = WorkerPlugin(config, theirs, settings_for_workers)
        config.pluginmanager.register(self._worker, "evo-local-worker")
        pool.add_worker("main", ours, ours.close)
        self._engine = EngineThread(pool, run_engine, self.pool.close)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Any:
        """Serve until the engine has ended, then see how."""
        if self._config.option.collectonly:
            return (yield)
        self._signals.install()
        broken_off = True
        self._engine.start()
        try:
            yield
            broken_off = False
        finally:
            self._engine.join(broken_off=broken_off)
            self._signals.finishing = True
            if self.exit_status is None:
                self.exit_status = self._engine.exit_status
        session.testscollected = max(session.testscollected, 1)
        return True

    def _notice(self, text: str) -> None:
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None and self._config.option.verbose >= 0:
            reporter.ensure_newline()
            reporter.write_line(f"evo: {text}")
