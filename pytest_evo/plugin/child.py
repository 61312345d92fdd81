"""Makes a process that has collected fit to run rollouts, unseen by the session."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pluggy
import pytest

from pytest_evo.plugin.isolation.paths import real_name
from pytest_evo.plugin.remembered import forget_examples

# Hooks by which reporters follow tests. In a child only our own recorder hears them.
_REPORTING = ("pytest_runtest_logreport",)
# Plugins that report to somebody who must not hear of rollouts, by name.
_REPORTERS = ("terminalreporter", "junitxml", "lfplugin", "stepwiseplugin")
# xdist registers its reporter under no name, from a module that execnet runs
_REPORTER_CLASSES = frozenset({"WorkerInteractor"})
# Packages that run a failed test again: repeats are the engine's to decide.
_RERUNNERS = frozenset({"pytest_rerunfailures", "flaky", "pytest_retry"})
_CAPTURE = "fd"


def prepare_child(
    config: pytest.Config, basetemp: Path, deafened: Deafened | None = None
) -> None:
    """Detach this process from the session it was forked or started from.

    Output is captured from here on whatever ``-s`` or ``--capture`` say, because it is
    evidence. What no capture catches goes where descriptors 1 and 2 point now, a crash
    dump too; standard input is empty.

    Args:
        config: the session's configuration; it is changed for good.
        basetemp: a short path of this child's own for ``tmp_path`` and pytest's cache;
            made when something asks for it, removed by the caller.
        deafened: of this configuration, where it was found out before a fork.
    """
    _restart_capturing(config)
    _silence(config, deafened)
    _give_basetemp(config, basetemp)
    forget_examples(basetemp)
    config.option.maxfail = 0
    config.option.usepdb = False


def _restart_capturing(config: pytest.Config) -> None:
    """Capture into files of this process's own: inherited ones share their offset."""
    _move_fault_handler(config)
    empty = os.open(os.devnull, os.O_RDWR)
    os.dup2(empty, 0)
    os.close(empty)
    manager: Any = config.pluginmanager.get_plugin("capturemanager")
    if manager is None:  # -p no:capture
        return
    if manager._global_capturing is not None:
        manager.read_global_capture()  # what the worker printed is no rollout's
        manager.stop_global_capturing()
    manager._method = config.option.capture = _CAPTURE
    manager.start_global_capturing()


def _move_fault_handler(config: pytest.Config) -> None:
    if config.pluginmanager.get_plugin("faulthandler") is None:
        return
    import faulthandler

    from _pytest.faulthandler import fault_handler_stderr_fd_key

    try:
        descriptor = os.dup(2)
    except OSError:  # closed by the project
        return
    faulthandler.enable(file=descriptor)
    config.stash[fault_handler_stderr_fd_key] = descriptor


class Deafened:
    """The hook implementations that a child calls, where some must not be called."""

    def __init__(self, remaining: Iterable[tuple[Any, list[Any]]]) -> None:
        """Take hooks with the implementations that stay."""
        # the lists that they have now are kept too: freeing them would write to what
        # they hold, and with it copy memory that is shared with the worker
        self._remaining = [
            (hook, hook._hookimpls, len(hook._hookimpls), kept)
            for hook, kept in remaining
        ]

    @classmethod
    def of(cls, config: pytest.Config) -> Deafened:
        """Look them up among the plugins that are registered now."""
        manager = config.pluginmanager
        deaf = {id(manager.get_plugin(name)) for name in _REPORTERS} - {id(None)}
        deaf.update(
            id(plugin)
            for plugin in manager.get_plugins()
            if type(plugin).__name__ in _REPORTER_CLASSES
            or _package(plugin) in _RERUNNERS
        )

        def hears(hook: str, plugin: object) -> bool:
            wanted = hook not in _REPORTING or getattr(plugin, "hears_rollouts", False)
            return wanted and id(plugin) not in deaf

        found = []
        for name, hook in vars(config.hook).items():
            if isinstance(hook, pluggy.HookCaller):
                all_ = hook.get_hookimpls()
                kept = [one for one in all_ if hears(name, one.plugin)]
                if len(kept) < len(all_):
                    found.append((hook, kept))
        return cls(found)

    def apply(self) -> bool:
        """Take the others off their hooks; the plugins' fixtures and names stay.

        False, and nothing is done, where plugins have come or gone since.
        """
        for hook, all_, count, _ in self._remaining:
            if hook._hookimpls is not all_ or len(all_) != count:
                return False
        for hook, _, _, kept in self._remaining:
            hook._hookimpls = kept
        return True


def _silence(config: pytest.Config, deafened: Deafened | None) -> None:
    if deafened is None or not deafened.apply():
        Deafened.of(config).apply()
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        # it stays findable, for --setup-show, live logging and the colours of diffs
        reporter._tw._file = nowhere()


def _package(plugin: object) -> str:
    module = getattr(plugin, "__module__", None) or getattr(plugin, "__name__", "")
    return str(module).partition(".")[0]


@cache
def nowhere() -> Any:
    """A file for what nobody reads; children share it with the worker."""
    descriptor = os.open(os.devnull, os.O_WRONLY)
    # not for it to close: nobody is to be warned that it never was
    return os.fdopen(descriptor, "w", encoding="utf-8", errors="replace", closefd=False)


def _give_basetemp(config: pytest.Config, basetemp: Path) -> None:
    basetemp = Path(real_name(os.fspath(basetemp)))
    factory: Any = getattr(config, "_tmp_path_factory", None)
    if factory is not None:

        def made() -> Path:
            basetemp.mkdir(mode=0o700, parents=True, exist_ok=True)
            return basetemp

        factory._given_basetemp = factory._basetemp = basetemp
        factory.getbasetemp = made  # most tests never ask
        if hasattr(factory, "_next_number"):
            factory._next_number = {}
    cache: Any = getattr(config, "cache", None)
    if cache is not None:
        cache._cachedir = basetemp / ".pytest_cache"


def reseed(seed: int, case: str, repeat: int) -> None:
    """Start the random numbers of ``random`` and, if loaded, numpy for one rollout."""
    import hashlib
    import random

    key = f"{seed}:{repeat}:{case}".encode("utf-8", "surrogatepass")
    number = int.from_bytes(hashlib.sha256(key).digest()[:8], "big")
    random.seed(number)
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed(number % 2**32)
