from __future__ import annotations

import builtins
import sys
import time
from types import FunctionType
from typing import Any

import _pytest.python
import pytest
from _pytest import runner

from pytest_evo.models import Outcome
from pytest_evo.plugin import canary
from pytest_evo.plugin import itemrun
from pytest_evo.plugin import outcomes
from pytest_evo.plugin.canary import Judges
from pytest_evo.plugin.canary import verdict
from pytest_evo.plugin.canary import Watch


def test_nothing_changed_is_nothing_told() -> None:
    assert Judges().changed() == []


def test_replaced_method_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges()
    monkeypatch.setattr(_pytest.python.Function, "runtest", lambda self: None)
    assert judges.changed() == ["_pytest.python.Function.runtest"]
    monkeypatch.undo()
    assert judges.changed() == []


def test_swapped_code_object_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges()

    def score_of(outcome: object, notes: object, score_from: object = None) -> float:
        return 1.0

    monkeypatch.setattr(outcomes.score_of, "__code__", score_of.__code__)
    assert judges.changed() == [
        f"{itemrun.__name__}.score_of",
        f"{outcomes.__name__}.score_of",
    ]


@pytest.mark.parametrize(
    ("place", "name"),
    [(builtins, "isinstance"), (builtins, "type"), (canary, "FunctionType")],
)
def test_swap_is_found_whatever_was_something_else_meanwhile(
    monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    judges = Judges()
    function = runner.pytest_runtest_makereport
    code = function.__code__
    with monkeypatch.context() as patch:
        patch.setattr(place, name, lambda *args: False)
        function.__code__ = (lambda item, call: None).__code__
    try:
        found = judges.changed()
    finally:
        function.__code__ = code
    assert found == ["_pytest.runner.pytest_runtest_makereport"]
    assert judges.changed() == []


def test_swap_is_found_though_somebody_has_asked_in_between() -> None:
    judges = Judges()
    code = runner.call_and_report.__code__
    runner.call_and_report.__code__ = (lambda *args, **kwds: None).__code__
    judges._swapped()
    try:
        found = judges.changed()
    finally:
        runner.call_and_report.__code__ = code
    assert found == ["_pytest.runner.call_and_report"]


@pytest.mark.parametrize("how", [setattr, object.__setattr__, FunctionType.__setattr__])
def test_code_may_be_swapped_in_any_way(how: Any) -> None:
    judges, code = Judges(), runner.call_and_report.__code__
    how(runner.call_and_report, "__code__", (lambda *args, **kwds: None).__code__)
    try:
        found = judges.changed()
    finally:
        runner.call_and_report.__code__ = code
    assert found == ["_pytest.runner.call_and_report"]


def test_code_of_other_functions_is_nobodys_business() -> None:
    judges = Judges()

    def other() -> None:
        """Whatever the project likes."""

    other.__code__ = (lambda: None).__code__
    sys.audit("object.__setattr__", [], "__code__", None)
    sys.audit("object.__setattr__")
    assert judges.changed() == []


def test_removed_name_and_names_that_changed_places_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judges = Judges()
    monkeypatch.delattr(_pytest.python.Function, "runtest")
    assert judges.changed() == ["_pytest.python.Function.runtest"]
    monkeypatch.undo()
    first, second = outcomes.metrics_of, outcomes.usage_of
    monkeypatch.setattr(outcomes, "metrics_of", second)
    monkeypatch.setattr(outcomes, "usage_of", first)
    found = judges.changed()
    name = outcomes.__name__
    assert sorted(found) == [f"{name}.metrics_of", f"{name}.usage_of"]


def test_object_that_calls_itself_equal_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Same:
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    judges = Judges()
    monkeypatch.setattr(outcomes, "outcome_of", Same())
    assert judges.changed() == [f"{outcomes.__name__}.outcome_of"]


def test_builtins_and_clock_are_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges()
    monkeypatch.setattr(builtins, "sorted", list)
    monkeypatch.setattr(time, "monotonic", lambda: 0.0)
    found = judges.changed()
    monkeypatch.undo()
    assert found == ["builtins.sorted", "time.monotonic"]


def test_open_and_print_may_be_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    judges = Judges()
    monkeypatch.setattr(builtins, "print", lambda *args: None)
    assert judges.changed() == []


def test_added_plugin_and_item_with_a_method_of_its_own_are_told(
    request: pytest.FixtureRequest,
) -> None:
    item = request.node
    watch = Watch(Judges(), request.config, [item])
    assert watch.tampered() == ()
    plugin = object()
    request.config.pluginmanager.register(plugin, "evil")
    item.runtest = lambda: None
    try:
        told = watch.tampered()
    finally:
        request.config.pluginmanager.unregister(plugin)
        del item.runtest
    assert told == (
        f"replaced runtest of {item.nodeid}",
        "registered the plugin 'evil'",
    )


@pytest.mark.parametrize("outcome", Outcome)
def test_only_a_pass_of_the_failing_test_counts(outcome: Outcome) -> None:
    assert bool(verdict(outcome)) is (outcome is Outcome.PASSED)
