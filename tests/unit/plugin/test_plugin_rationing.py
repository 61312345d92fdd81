from __future__ import annotations

import pytest

from pytest_evo.chat import AnswerFailed
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.engine.budget import Budget
from pytest_evo.engine.budget import BudgetReached
from pytest_evo.engine.budget import Limits
from pytest_evo.errors import ModelFailed
from pytest_evo.events import DiagnosesMade
from pytest_evo.models import Usage
from pytest_evo.plugin.rationing import RationedModel
from pytest_evo.testing.doubles import ManualClock
from pytest_evo.testing.models import ScriptedModel

SHORT = ChatRequest((Message(Speaker.USER, "hm"),))
LONG = ChatRequest((Message(Speaker.USER, "x" * 8_000),))
USAGE = Usage(calls=1, input_tokens=300, output_tokens=100, usd=0.4)


def rationed(
    budget: Budget | None, model: ScriptedModel | None = None
) -> RationedModel:
    model = model or ScriptedModel(lambda request: "yes", usage=USAGE)
    return RationedModel(model, "diagnoser", lambda: budget)


def budget(**limits: float) -> Budget:
    return Budget(Limits(**limits), ManualClock())  # type: ignore[arg-type]


def charge(budget: Budget, usage: Usage) -> None:
    budget.charge_usage(DiagnosesMade(1, 0, "c0000", (), usage))


def test_calls_of_one_step_cannot_pass_a_limit_together() -> None:
    model = rationed(budget(tokens=1_000))
    for _ in range(3):  # nobody knows before how long the third reply gets
        model.ask(SHORT)
    with pytest.raises(ModelFailed, match="--budget-tokens: 0 are left"):
        model.ask(SHORT)


def test_budget_that_does_not_pay_for_a_question_lets_nothing_new_start() -> None:
    purse = budget(tokens=1_500)
    model = rationed(purse)
    model.ask(SHORT)
    purse.ask()
    with pytest.raises(ModelFailed, match="question of about"):
        model.ask(LONG)
    with pytest.raises(BudgetReached, match="tokens: 1,100 are left"):
        purse.ask()


def test_question_that_is_longer_than_what_is_left_is_not_asked() -> None:
    script = ScriptedModel(lambda request: "yes", usage=USAGE)
    model = rationed(budget(tokens=1_500), script)
    with pytest.raises(ModelFailed, match="do not pay"):
        model.ask(LONG)
    assert script.requests == []


def test_money_is_asked_before_each_call() -> None:
    model = rationed(budget(usd=1.0))
    for _ in range(3):
        model.ask(SHORT)
    with pytest.raises(ModelFailed, match="--budget-usd"):
        model.ask(SHORT)


def test_what_the_budget_has_learned_counts_once() -> None:
    purse = budget(tokens=2_000)
    charge(purse, USAGE)  # of an earlier session
    model = rationed(purse)
    model.ask(SHORT)
    charge(purse, USAGE)
    model.ask(SHORT)
    charge(purse, USAGE)
    assert purse.tokens == 1_200
    model.ask(SHORT)
    with pytest.raises(ModelFailed, match="400 are left"):
        model.ask(ChatRequest((Message(Speaker.USER, "x" * 2_000),)))


def test_failure_that_costs_counts_too() -> None:
    script = ScriptedModel(lambda request: AnswerFailed("503", USAGE))
    model = rationed(budget(tokens=900), script)
    for _ in range(3):
        with pytest.raises(ModelFailed, match="503"):
            model.ask(SHORT)
    with pytest.raises(ModelFailed, match="do not pay"):
        model.ask(SHORT)


def test_without_a_budget_everything_is_asked() -> None:
    assert rationed(None).ask(LONG).text == "yes"
    assert rationed(budget()).ask(LONG).text == "yes"
    assert rationed(None).name == "scripted-model"
