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
from types import FunctionType
from typing import Any
from typing import NamedTuple
from typing import NoReturn

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
_MOST_TOLD = 5


class _Part(NamedTuple):
    """One name of a module or class, with what it stood for."""

    owner: Any  # a module or class
    name: str
    value: object
    code: object  # of a function: it can be replaced inside

    def is_changed(self) -> bool:
        """Whether the name stands for something else now."""
        now = vars(self.owner).get(self.name)
        return now is not self.value or _code(now) is not self.code

    def __str__(self) -> str:
        module = getattr(self.owner, "__module__", None)
        where = self.owner.__name__
        return ".".join(filter(None, (module, where, self.name)))


class Judges:
    """The functions that decide outcomes, as they are before candidates run."""

    def __init__(self) -> None:
        self._parts = tuple(_parts())

    def changed(self) -> list[str]:
        """Names that stand for something else now."""
        return [str(part) for part in self._parts if part.is_changed()]


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

    def fails() -> NoReturn:
        raise AssertionError("this test has to fail")

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
    return function, _code(function)


def _parts() -> Iterator[_Part]:
    for name in _JUDGES:
        module = sys.modules.get(name)
        if module is not None:
            yield from _of_module(module)
    for name, value in vars(builtins).items():
        if callable(value) and name not in _FREE_BUILTINS:
            yield _Part(builtins, name, value, None)
    time = sys.modules["time"]
    for name in _CLOCKS:
        yield _Part(time, name, vars(time)[name], None)


def _of_module(module: Any) -> Iterator[_Part]:
    for name, value in list(vars(module).items()):
        if isinstance(value, FunctionType):
            yield _Part(module, name, value, _code(value))
        elif isinstance(value, type) and value.__module__ == module.__name__:
            yield _Part(module, name, value, None)
            for inner, member in list(vars(value).items()):
                if isinstance(member, (FunctionType, classmethod, staticmethod)):
                    yield _Part(value, inner, member, _code(member))
                elif isinstance(member, property):
                    yield _Part(value, inner, member, None)


def _code(value: object) -> object:
    inner = getattr(value, "__func__", value)
    return getattr(inner, "__code__", None) if value is not None else None
