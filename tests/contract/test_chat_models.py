from __future__ import annotations

import asyncio
import contextlib
import gc
from random import Random

import pytest

from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import ModelProblem
from pytest_evo.llm.cassettes import CassetteFile
from pytest_evo.llm.cassettes import Header
from pytest_evo.llm.cassettes import read_cassette
from pytest_evo.llm.client import LiteLLMModel
from pytest_evo.llm.exchanges import Cleaner
from pytest_evo.llm.taping import Player
from pytest_evo.llm.taping import Recorder
from pytest_evo.llm.taping import Recording
from pytest_evo.llm.taping import Replaying
from pytest_evo.settings_model import ModelSettings
from pytest_evo.testing.model_contract import ChatModelContract
from pytest_evo.testing.model_contract import REQUEST
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


OVERFLOW = ContextOverflow("too long")
HOPELESS = ModelProblem("scripted-model: no key")


@pytest.fixture
def recorder(tmp_path):
    recorder = Recorder(tmp_path / "run.jsonl", Cleaner())
    header = Header(run="r", made_by="0", seed=0, slots=1)
    recorder.begin(CassetteFile.create(recorder.path, header))
    yield recorder
    recorder.close()


class TestRecording(ChatModelContract):
    @pytest.fixture
    def answering(self, recorder):
        return Recording(ScriptedModel(lambda request: "hello"), recorder)

    @pytest.fixture
    def overflowing(self, recorder):
        return Recording(ScriptedModel(lambda request: OVERFLOW), recorder)

    @pytest.fixture
    def hopeless(self, recorder):
        return Recording(ScriptedModel(lambda request: HOPELESS), recorder)


def replaying(recorder: Recorder, answer) -> Replaying:
    model = Recording(ScriptedModel(lambda request: answer), recorder)
    for _ in range(24):
        with contextlib.suppress(ContextOverflow, ModelProblem):
            model.ask(REQUEST)
    cassette = read_cassette(recorder.path, "--evo-replay")
    return Replaying(model.name, Player(cassette, Cleaner()))


class TestReplaying(ChatModelContract):
    @pytest.fixture
    def answering(self, recorder):
        return replaying(recorder, "hello")

    @pytest.fixture
    def overflowing(self, recorder):
        return replaying(recorder, OVERFLOW)

    @pytest.fixture
    def hopeless(self, recorder):
        return replaying(recorder, HOPELESS)
