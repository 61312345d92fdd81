"""What an asked-for session needs at its start; imported only then."""

from __future__ import annotations

from collections.abc import Generator
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from pytest_evo.errors import UsageProblem
from pytest_evo.plugin.declared import declared

# Options that pick tests by an earlier run or stop at a failure: (name, off, spelling).
_STOPPERS: tuple[tuple[str, object, str], ...] = (
    ("maxfail", 0, "-x/--maxfail"),
    ("lf", False, "--lf"),
    ("failedfirst", False, "--ff"),
    ("newfirst", False, "--nf"),
    ("stepwise", False, "--sw"),
    ("stepwise_skip", False, "--sw-skip"),
)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn a ``UsageProblem`` into pytest's own, which exits with 4."""
    try:
        yield
    except UsageProblem as problem:
        raise pytest.UsageError(str(problem)) from problem


class UsageErrors:
    """Translates problems wherever pytest would report them as internal errors."""

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self) -> Generator[None, Any, Any]:
        """Translate."""
        with usage_errors():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Generator[None, Any, Any]:
        """Translate."""
        with usage_errors():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self) -> Generator[None, Any, Any]:
        """Translate."""
        with usage_errors():
            return (yield)


def prepare_session(config: pytest.Config, notices: list[str]) -> None:
    """Set worker count and ignored options before anybody has read them."""
    config.pluginmanager.register(UsageErrors(), "evo-usage-errors")
    ignored = _ignore_stoppers(config)
    if ignored:
        notices.append(f"{', '.join(ignored)} ignored: every case has to be measured")
    if getattr(config.option, "cov_source", None):
        notices.append("--cov ignored: coverage is of the project, measured by pytest")
    _settle_shuffling(config, notices)
    runs = any(
        config.getoption(name, None)
        for name in ("evolve", "evo_gate", "evo_baseline_update")
    )
    if runs and not hasattr(config, "workerinput"):
        _choose_workers(config, notices)


def _ignore_stoppers(config: pytest.Config) -> list[str]:
    ignored = []
    for name, off, spelling in _STOPPERS:
        if getattr(config.option, name, None):
            setattr(config.option, name, off)
            ignored.append(spelling)
    coverage = config.pluginmanager.get_plugin("_cov")
    options = getattr(coverage, "options", None)
    if options is not None:
        if getattr(options, "cov_fail_under", None):
            ignored.append("--cov-fail-under")
        options.cov_fail_under = 0
    return ignored


def _settle_shuffling(config: pytest.Config, notices: list[str]) -> None:
    """Give plugins that shuffle one seed for the whole run, its resumes included.

    They would take another one in every process or session, and both order and random
    numbers of start and candidates would differ.
    """
    option = config.option
    seed = _seed(config)
    if getattr(option, "randomly_seed", None) == "default":
        option.randomly_seed = seed
        notices.append(f"-p randomly: every rollout has --randomly-seed={seed}")
    flag = "--random-order-seed"
    if hasattr(option, "random_order_seed") and not _is_given(config, flag):
        option.random_order_seed = str(seed)
        notices.append(f"-p random-order: every rollout has {flag}={seed}")


def _seed(config: pytest.Config) -> int:
    """The run's seed: of the command line, else of the settings, else 0."""
    given = getattr(config.option, "evo_seed", None)
    if given is not None:
        return int(given)
    told = declared(config).get("seed")
    return told if type(told) is int else 0  # what else it is, is complained of later


def _is_given(config: pytest.Config, flag: str) -> bool:
    words = (*config.invocation_params.args, *config.getini("addopts"))
    return any(str(word).partition("=")[0] == flag for word in words)


def _choose_workers(config: pytest.Config, notices: list[str]) -> None:
    option = config.option
    if not hasattr(option, "numprocesses"):
        notices.append("xdist is not loaded, so rollouts run as with -n 0")
        return
    if option.numprocesses is not None or getattr(option, "tx", None):
        return
    if config.getoption("usepdb", False):
        option.numprocesses = 0
        notices.append("--pdb needs this process, so rollouts run as with -n 0")
    else:
        option.numprocesses = "auto"


def register_worker(config: pytest.Config, name: str) -> None:
    """Register the part that answers requests inside an xdist worker."""
    from pytest_evo.plugin.worker import WorkerPlugin

    with usage_errors():
        config.pluginmanager.register(WorkerPlugin(config), name)


def register_controller(config: pytest.Config, name: str) -> None:
    """Register the part that runs the loop or the gate in the controller."""
    asked = config.getoption("evo_gate") or config.getoption("evo_baseline_update")
    with usage_errors():
        if asked and not config.getoption("evolve"):
            from pytest_evo.plugin.gating.controller import GateController

            config.pluginmanager.register(GateController(config), name)
            return
        from pytest_evo.plugin.controller import Controller

        config.pluginmanager.register(Controller(config), name)
