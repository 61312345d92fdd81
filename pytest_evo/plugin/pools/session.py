"""An engine on a thread of its own beside a pytest session, and how both end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_evo.errors import UsageProblem
from pytest_evo.errors import WorkersLost
from pytest_evo.plugin import signals
from pytest_evo.plugin.pools.base import Pool
from pytest_evo.plugin.scheduler import check_collections

_LEAVE_SECONDS = 30.0  # how long a broken-off engine may take to write its journal


class EngineThread:
    """Runs ``run_engine(pool)`` when the workers are ready; keeps what comes of it."""

    def __init__(
        self,
        pool: Pool,
        run_engine: Callable[[Pool], int],
        on_end: Callable[[], None],
    ) -> None:
        """``on_end`` is called on the engine's thread, whatever happened."""
        self._pool = pool
        self._run_engine = run_engine
        self._on_end = on_end
        self._thread: threading.Thread | None = None
        self.exit_status: int | None = None
        self.error: BaseException | None = None

    def start(self) -> None:
        """Start once; later calls do nothing."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="evo-engine", daemon=True
            )
            self._thread.start()

    def _run(self) -> None:
        try:
            self._pool.accept_cases(check_collections(self._pool.wait_ready()))
            self.exit_status = self._run_engine(self._pool)
        except BaseException as error:  # noqa: BLE001 - raised again on the main thread
            self.error = error
        finally:
            self._on_end()

    def join(self, *, broken_off: bool) -> None:
        """Wait for the engine and raise its error; workers are gone by now.

        Raises:
            pytest.UsageError: a person has to change something.
        """
        if self._thread is None:
            return
        self._pool.abandon(WorkersLost("the session ended before the run did"))
        self._thread.join(_LEAVE_SECONDS if broken_off else None)
        error = self.error
        if error is None or broken_off:
            return
        if isinstance(error, UsageProblem):
            raise pytest.UsageError(str(error)) from error
        if isinstance(error, WorkersLost):  # before the run could begin
            raise pytest.UsageError(
                f"the tests could not be collected: {error}. Make `pytest -n 0 "
                "--collect-only` pass first"
            ) from error
        raise error


class EngineSession:
    """What both kinds of session share: signals, exit status, the last line.

    Attributes:
        pool: the evaluator.
        on_soft_stop: called on the main thread at the first Ctrl-C, SIGTERM or SIGHUP.
        exit_status: set it to end the session with another status than what
            ``run_engine`` returned.
    """

    def __init__(self, pool: Pool, on_soft_stop: Callable[[], None]) -> None:
        self.pool = pool
        self.exit_status: int | None = None
        self._signals = signals.StopSignals(on_soft_stop, self._stop_hard)

    def _stop_hard(self) -> None:
        self.pool.close(now=True)
        self.pool.abandon(WorkersLost("stopped by a second interrupt"))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit status: pytest's own says nothing about the run."""
        if self.exit_status is not None:
            session.exitstatus = self.exit_status

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """All is said and taken down."""
        self._signals.retire()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> Any:
        """Count rollouts where pytest would say that no tests ran."""
        result = yield
        # last, so that no other plugin takes the counters for reports
        count = self.pool.finished_rollouts
        if count:
            add_rollouts(terminalreporter, count)
        return result


def add_rollouts(terminalreporter: Any, number: int) -> None:
    """Have pytest's last line say ``1 rollout``, ``12 rollouts``."""
    word = "rollout" if number == 1 else "rollouts"
    terminalreporter._add_stats(word, [SimpleNamespace()] * number)
