from __future__ import annotations

import builtins
import time

import _pytest.python
import pytest

from pytest_evo.models import Outcome
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
