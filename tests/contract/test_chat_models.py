from __future__ import annotations

import asyncio
import gc
from random import Random

import pytest

from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import ModelProblem
from pytest_evo.llm.client import LiteLLMModel
from pytest_evo.settings_model import ModelSettings
from pytest_evo.testing.model_contract import ChatModelContract
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import context_overflow
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import unauthorized
from pytest_evo.testing.models import ScriptedModel


class TestScriptedModel(ChatModelContract):
    @pytest.fixture
    def answering(self):
        return ScriptedModel(lambda request: "hello")

    @pytest.fixture
    def overflowing(self):
        return ScriptedModel(lambda request: ContextOverflow("too long"))

    @pytest.fixture
    def hopeless(self):
        return ScriptedModel(lambda request: ModelProblem("scripted-model: no key"))


def over_http(reply):
    loop = asyncio.new_event_loop()  # in this thread the library would make one
    asyncio.set_event_loop(loop)
    with ModelServer([reply]) as server:
        options = ModelSettings(api_base=server.url, timeout=5)
        model = LiteLLMModel("openai/scripted", options, rng=Random(1))
        yield model
        model.close()
    asyncio.set_event_loop(None)
    loop.close()
    gc.collect()


class TestLiteLLMModel(ChatModelContract):
    @pytest.fixture
    def answering(self):
        yield from over_http(Answer("hello"))

    @pytest.fixture
    def overflowing(self):
        yield from over_http(context_overflow())

    @pytest.fixture
    def hopeless(self):
        yield from over_http(unauthorized())
