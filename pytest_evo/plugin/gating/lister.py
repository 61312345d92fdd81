"""A plugin for a session of the base's own suite: which cases there are, how they end.

It is loaded with ``-p`` in a process of its own and writes JSON to the file that
``PYTEST_EVO_LISTING`` names: per case its body, and its outcome where it was run; and
what could not be collected.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from pytest_evo.errors import SuiteProblem
from pytest_evo.plugin.cases import collected_marks
from pytest_evo.plugin.options import MODES

VARIABLE = "PYTEST_EVO_LISTING"
_FOUND = pytest.StashKey[dict[str, dict[str, str]]]()
_ERRORS = pytest.StashKey[dict[str, str]]()
_COMPLETE = pytest.StashKey[bool]()
_LONGEST = 10_000  # characters of an error


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> Generator[None, Any, Any]:
    """Leave out what the base's own settings may ask for: a gate inside a gate."""
    for name in MODES:
        setattr(config.option, name, None)
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Generator[None, Any, Any]:
    """Note that nothing broke it off."""
    result = yield
    session.config.stash[_COMPLETE] = True
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Note what could not be collected."""
    report = yield
    if report.failed:
        errors = collector.config.stash.setdefault(_ERRORS, {})
        errors[report.nodeid] = report.longreprtext[:_LONGEST]
    return report


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Note the cases."""
    try:
        marks = collected_marks(session).marks
    except SuiteProblem:
        marks = ()
    session.config.stash[_FOUND] = {
        mark.id: {"body": mark.body, "outcome": ""} for mark in marks
    }


@pytest.hookimpl(tryfirst=True)  # it answers nothing, so that others do
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Note how a case ended: a failure in any phase, or a pass."""
    found = item.config.stash.get(_FOUND, {}).get(item.nodeid)
    if found is None:
        return
    if call.excinfo is not None:
        skipped = call.excinfo.errisinstance(pytest.skip.Exception)
        found["outcome"] = "skipped" if skipped else "failed"
    elif call.when == "call" and not found["outcome"]:
        found["outcome"] = "passed"


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write it down."""
    place = os.environ.get(VARIABLE)
    if place and session.config.stash.get(_COMPLETE, False):
        stash = session.config.stash
        found = {"cases": stash.get(_FOUND, {}), "errors": stash.get(_ERRORS, {})}
        Path(place).write_text(json.dumps(found), encoding="utf-8")
