"""Finds out whether the code under test has changed what runs and judges it.

Candidates run in the process that judges them. Two looks at the end of each test
process tell the usual tricks: the functions that decide an outcome are the ones that
were there before, and a test that has to fail still fails. Code that undoes its own
changes in time, or lies better than this, is not found; see the threat model.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from types import FunctionType
from typing import Any
from typing import NamedTuple

import pytest
from _pytest.fixtures import FuncFixtureInfo

from pytest_evo.models import Outcome

_JUDGES = (
    "_pytest._code.code",
    "_pytest.assertion.rewrite",
    "_pytest.fixtures",
    "_pytest.junitxml",
    "_pytest.nodes",
    "_pytest.outcomes",
    "_pytest.python",
    "_pytest.python_api",
    "_pytest.raises",
    "_pytest.reports",
    "_pytest.runner",
    "_pytest.skipping",
    "_pytest.timing",
    "_pytest.unittest",
    "pluggy._callers",
    "pluggy._hooks",
    "pluggy._manager",
    "pluggy._result",
    "pytest_evo.models",
    "pytest_evo.plugin.canary",
    "pytest_evo.plugin.emitting",
    "pytest_evo.plugin.fixtures",
    "pytest_evo.plugin.frames",
    "pytest_evo.plugin.hooks",
    "pytest_evo.plugin.itemrun",
    "pytest_evo.plugin.messages",
    "pytest_evo.plugin.outcomes",
    "pytest_evo.plugin.plain",
    "pytest_evo.plugin.rawrollout",
    "pytest_evo.plugin.recording",
    "unittest.case",
)
_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter")
# replaced by honest programs: debuggers, lazy imports, coloured output
_FREE_BUILTINS = frozenset(
    {"__import__", "breakpoint", "copyright", "credits", "exit", "help", "input"}
    | {"license", "open", "print", "quit"}
)
_OWN_METHODS = ("runtest", "setup", "teardown")
_MEMBERS = (FunctionType, classmethod, staticmethod, property)
_MOST_TOLD = 5


class _Part(NamedTuple):
    """One name of a module or class, with what it stood for."""

    names: Mapping[str, object]  # of the module or class, as they are now
    name: str
    value: object
    function: Any  # with the code that runs; None where there is none
    code: object  # it can be replaced inside the function
    owner: Any


class Judges:
    """The functions that decide outcomes, as they are before candidates run."""

    def __init__(self) -> None:
        self._parts = tuple(_parts())

    def changed(self) -> list[str]:
        """Names that stand for something else now."""
        return [
            _title(owner, name)
            for names, name, value, function, code, owner in self._parts
            if names.get(name) is not value
            or (code is not None and function.__code__ is not code)
        ]


def _title(owner: Any, name: str) -> str:
    module = getattr(owner, "__module__", None)
    return ".".join(filter(None, (module, owner.__name__, name)))


class Watch:
    """What a test process looks at before and after its cases."""

    def __init__(
        self, judges: Judges, config: pytest.Config, items: Iterable[pytest.Item]
    ) -> None:
        """Remember plugins and the test functions of ``items``."""
        self._judges = judges
        self._manager = config.pluginmanager
        self._plugins = {id(plugin) for plugin in self._manager.get_plugins()}
        self._items = tuple((item, *_function(item)) for item in items)

    def tampered(self) -> tuple[str, ...]:
        """What was changed since, in words; nothing is the rule."""
        found = self._judges.changed()
        told = [f"replaced {name}" for name in found[:_MOST_TOLD]]
        for item, function, code in self._items:
            if _function(item) != (function, code):
                told.append(f"replaced the code of {item.nodeid}")
            told += [
                f"replaced {name} of {item.nodeid}"
                for name in _OWN_METHODS
                if name in vars(item)
            ]
        for name, plugin in self._manager.list_name_plugin():
            if plugin is not None and id(plugin) not in self._plugins:
                told.append(f"registered the plugin {name!r}")
        return tuple(told)


def failing_test(like: pytest.Item) -> pytest.Item:
    """A test beside ``like``, under its name and without fixtures, that has to fail."""

    def fails() -> None:
        pytest.fail("this test has to fail", pytrace=False)  # a traceback costs time

    return pytest.Function.from_parent(
        like.getparent(pytest.Module) or like.session,
        name=like.name,
        callobj=fails,
        fixtureinfo=FuncFixtureInfo((), (), [], {}),
    )


def verdict(outcome: Outcome) -> tuple[str, ...]:
    """What it means that :func:`failing_test` came out so."""
    if outcome is Outcome.PASSED:
        return ("a test that has to fail passes",)
    return ()


def _function(item: pytest.Item) -> tuple[object, object]:
    function = getattr(item, "function", None)
    return function, getattr(function, "__code__", None)


def _parts() -> Iterator[_Part]:
    for name in _JUDGES:
        module = sys.modules.get(name)
        if module is not None:
            yield from _of_module(module)
    for name, value in vars(builtins).items():
        if callable(value) and name not in _FREE_BUILTINS:
            yield _part(builtins, name, value)
    time = sys.modules["time"]
    for name in _CLOCKS:
        yield _part(time, name, vars(time)[name])


def _of_module(module: Any) -> Iterator[_Part]:
    for name, value in list(vars(module).items()):
        if isinstance(value, FunctionType):
            yield _part(module, name, value)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield _part(module, name, value)
            for inner, member in list(vars(value).items()):
                if isinstance(member, _MEMBERS):
                    yield _part(value, inner, member)


def _part(owner: Any, name: str, value: object) -> _Part:
    function = getattr(value, "__func__", value)
    if not isinstance(function, FunctionType):
        function = None
    code = function.__code__ if function is not None else None
    return _Part(vars(owner), name, value, function, code, owner)
