from __future__ import annotations

import pytest

from pytest_evo.plugin.modelling import hidden_variables
from pytest_evo.plugin.modelling import kept_back
from pytest_evo.plugin.modelling import key_variables
from pytest_evo.plugin.modelling import RunModels
from pytest_evo.plugin.modelling import SECRETS
from pytest_evo.settings import Settings
from pytest_evo.settings_model import ModelSettings

ENVIRONMENT = {
    "OPENAI_API_KEY": "sk-one",
    "MY_COPY": "sk-one",
    "ANTHROPIC_API_KEY": "sk-two",
    "JUDGE_API_KEY": "sk-three",
    "PATH": "/bin",
}


def settings(model: str | None, **options: object) -> Settings:
    return Settings(model=model, model_options=ModelSettings(**options))


def test_only_the_key_of_the_model_is_hidden_with_its_copies() -> None:
    asked = settings("openai/gpt-5-mini")
    assert kept_back(asked, ENVIRONMENT) == ["MY_COPY", "OPENAI_API_KEY"]


def test_named_variable_is_hidden_instead() -> None:
    asked = settings("openai/gpt-5-mini", api_key_env="JUDGE_API_KEY")
    assert kept_back(asked, ENVIRONMENT) == ["JUDGE_API_KEY"]


def test_all_that_look_like_keys_are_hidden_where_nobody_knows() -> None:
    assert hidden_variables(settings("mystery/x"), ENVIRONMENT) == SECRETS
    hidden = kept_back(settings("mystery/x"), ENVIRONMENT)
    assert hidden == ["ANTHROPIC_API_KEY", "JUDGE_API_KEY", "OPENAI_API_KEY"]


def test_shared_key_hides_nothing_and_neither_does_no_model() -> None:
    shared = settings("openai/gpt-5-mini", share_key=True)
    assert hidden_variables(shared, ENVIRONMENT) == ()
    assert hidden_variables(settings(None), ENVIRONMENT) == ()


def test_key_of_the_model_that_diagnoses_is_hidden_too() -> None:
    asked = Settings(
        model="openai/gpt-5-mini", diagnosis_model="anthropic/claude-haiku-4-5"
    )
    assert kept_back(asked, ENVIRONMENT) == [
        "ANTHROPIC_API_KEY",
        "MY_COPY",
        "OPENAI_API_KEY",
    ]


@pytest.mark.parametrize(
    ("model", "variables"),
    [
        ("openai/x", ["OPENAI_API_KEY"]),
        ("gpt-5-mini", ["OPENAI_API_KEY"]),
        ("claude-sonnet-4-5", ["ANTHROPIC_API_KEY"]),
        ("gemini/gemini-2.5-flash", ["GEMINI_API_KEY", "GOOGLE_API_KEY"]),
        ("ollama/llama3", []),
        ("mystery", []),
    ],
)
def test_key_is_looked_for_where_the_provider_has_it(model, variables) -> None:
    assert key_variables(model) == variables


def test_same_name_and_options_are_one_model() -> None:
    models = RunModels(ENVIRONMENT)
    one = models.model("openai/x", ModelSettings())
    assert models.model("openai/x", ModelSettings()) is one
    assert models.model("openai/x", ModelSettings(temperature=1)) is not one
    assert models.model("openai/y", ModelSettings()) is not one
