"""Finds out whether the code under test has changed what runs and judges it.

Candidates run in the process that judges them. Two looks at the end of each test
process tell the usual tricks: the functions that decide an outcome are the ones that
were there before, and a test that has to fail still fails. Code that undoes its own
changes in time, or lies better than this, is not found; see the threat model.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from operator import is_
from operator import itemgetter
from types import CodeType
from types import FunctionType
from types import MappingProxyType
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


class _Owner(NamedTuple):
    """A module or class, with what its judging names stood for."""

    owner: Any
    current: Mapping[str, object]  # all its names, as they are now
    names: tuple[str, ...]
    values: tuple[object, ...]
    look: Callable[[Mapping[str, object]], tuple[object, ...]]  # to the same now

    def changed(self) -> bool:
        """Whether a name stands for something else now."""
        try:
            return not all(map(is_, self.look(self.current), self.values))
        except KeyError:  # a name is gone
            return True


class Judges:
    """The functions that decide outcomes, as they are before candidates run.

    Every test process looks at some thousand names when it ends. Each object that is
    touched on the way is written to, by the count of its references, and may have its
    page of memory copied. So the look goes past names and code, is made of loops that
    run in C, and compares identities: a planted object may call itself equal to
    anything.
    """

    def __init__(self) -> None:
        self._owners = tuple(_owners())
        values = (value for owner in self._owners for value in owner.values)
        found = (getattr(value, "__func__", value) for value in values)
        self._codes = {
            one: one.__code__ for one in found if isinstance(one, FunctionType)
        }
        self._swapped = _listening()

    def changed(self) -> list[str]:
        """Names that stand for something else now."""
        recoded = self._recoded()
        return [
            _title(owner.owner, name)
            for owner in self._owners
            if recoded or owner.changed()
            for name, value in zip(owner.names, owner.values, strict=True)
            if owner.current.get(name) is not value
            or id(getattr(value, "__func__", value)) in recoded
        ]

    def _recoded(self) -> set[int]:
        """Ids of the functions whose code was replaced inside of them."""
        if not self._swapped():
            return set()
        codes = self._codes.items()
        return {id(one) for one, code in codes if one.__code__ is not code}


def _listening() -> Callable[[], bool]:
    """Tells from now on whether any function has been given other code.

    There is an audit event for it. Listening spares reading the code of all functions,
    each of which has a page of its own. What is kept here is in no module and on no
    object; whatever makes the hook deaf for a while is told like a swap, and for good.
    """
    heard = asked = 0

    def hear(event: str, args: tuple[Any, ...]) -> None:  # with no name from outside
        nonlocal heard
        if event == "object.__setattr__" and args[1:2] == ("__code__",):
            heard += 1

    def swapped() -> bool:
        nonlocal asked
        asked += 1
        _probe.__code__ = _PROBED
        return heard != asked

    sys.addaudithook(hear)
    return swapped


def _probe() -> None:
    """Is given its own code again, to find out whether that is heard."""


_PROBED: CodeType = _probe.__code__


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


class _FailingTest(pytest.Function):
    """Fails, and says so without looking at a traceback: every process pays for it."""

    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None
    ) -> str:
        """One line."""
        return "this test has to fail"


def failing_test(like: pytest.Item) -> pytest.Item:
    """A test beside ``like``, under its name and without fixtures, that has to fail."""

    def fails() -> None:
        pytest.fail("this test has to fail", pytrace=False)

    return _FailingTest.from_parent(
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


def _owners() -> Iterator[_Owner]:
    for name in _JUDGES:
        module = sys.modules.get(name)
        if module is not None:
            yield from _of_module(module)
    kept = [name for name, value in vars(builtins).items() if callable(value)]
    yield _owner(builtins, [name for name in kept if name not in _FREE_BUILTINS])
    yield _owner(sys.modules["time"], _CLOCKS)


def _of_module(module: Any) -> Iterator[_Owner]:
    own = [
        name
        for name, value in vars(module).items()
        if isinstance(value, FunctionType)
        or (isinstance(value, type) and value.__module__ == module.__name__)
    ]
    yield _owner(module, own)
    for name in own:
        kind = vars(module)[name]
        if isinstance(kind, type):
            members = vars(kind).items()
            yield _owner(
                kind, [key for key, one in members if isinstance(one, _MEMBERS)]
            )


def _owner(owner: Any, names: Sequence[str]) -> _Owner:
    current = vars(owner)
    if isinstance(current, dict):  # a module's; see Judges for what this spares
        current = MappingProxyType(current)
    values = tuple(current[name] for name in names)
    # asked for one name only, a getter returns no tuple; asked for none, it raises
    look = itemgetter(*names, names[0]) if names else _nothing
    return _Owner(owner, current, tuple(names), values, look)


def _nothing(current: Mapping[str, object]) -> tuple[object, ...]:
    return ()
