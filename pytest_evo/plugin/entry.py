"""What pytest loads in every run: options, marker, hooks, fixtures; nothing heavy.

Only pytest and the standard library are imported here. The rest is imported when an
option asks for it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from pytest_evo.plugin import hookspecs
from pytest_evo.plugin.fixtures import evo_artifact
from pytest_evo.plugin.fixtures import evo_score
from pytest_evo.plugin.fixtures import evo_trace
from pytest_evo.plugin.fixtures import evo_usage
from pytest_evo.plugin.options import add_options
from pytest_evo.plugin.options import asks_for_more
from pytest_evo.plugin.options import idle_options
from pytest_evo.plugin.options import is_active
from pytest_evo.plugin.options import looks_misspelt
from pytest_evo.plugin.options import option_overrides

__all__ = [
    "CONTROLLER",
    "WORKER",
    "evo_artifact",
    "evo_score",
    "evo_trace",
    "evo_usage",
    "notices",
    "option_overrides",
]

CONTROLLER = "evo-controller"
WORKER = "evo-worker"
_NOTICES = pytest.StashKey[list[str]]()
_MARKER = (
    "evo(split, group, weight, repeats, timeout, must_pass, deterministic): "
    "this test is an eval of the artifact; what it says holds under --evolve."
)


def notices(config: pytest.Config) -> list[str]:
    """Lines that the header shows; append what a person should know."""
    return config.stash.setdefault(_NOTICES, [])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    add_options(parser)


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the ``pytest_evo_`` hooks."""
    pluginmanager.add_hookspecs(hookspecs)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_load_initial_conftests(
    early_config: pytest.Config, parser: pytest.Parser, args: list[str]
) -> Generator[None, Any, Any]:
    """Note what the first conftest files read of the artifact, in workers too.

    pytest-cov is told to measure nothing before it overwrites what plain runs measured.
    With every option known, hints are made for those that do not exist.
    """
    if asks_for_more(early_config.known_args_namespace):
        from pytest_evo.plugin.isolation.reach import recorder

        recorder().listen()
        early_config.known_args_namespace.no_cov = True
    result = yield
    if looks_misspelt(args):
        from pytest_evo.plugin.misspelt import add_hints

        add_hints(parser, args)
    return result


@pytest.hookimpl(wrapper=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Set what has to be set before xdist reads ``-n`` and plugins are configured."""
    if is_active(config):
        from pytest_evo.plugin.session import prepare_session

        prepare_session(config, notices(config))
    return (yield)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, and the part that does the work if it was asked for."""
    config.addinivalue_line("markers", _MARKER)
    worker_input = getattr(config, "workerinput", None)
    if worker_input is not None:
        if "evo" in worker_input:
            from pytest_evo.plugin.session import register_worker

            register_worker(config, WORKER)
    elif is_active(config):
        from pytest_evo.plugin.session import register_controller

        register_controller(config, CONTROLLER)
    else:
        idle = idle_options(config)
        if idle:
            notices(config).append(
                f"without --evolve or --evo-gate nothing is done with {', '.join(idle)}"
            )


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say what pytest-evo changed about this session."""
    return [f"evo: {line}" for line in notices(config)]
