"""Contract suite of language models.

Subclass it and give it the fixtures ``answering`` (says "hello" to everything),
``overflowing`` (whose context is too short for everything) and ``hopeless`` (whose key
is wrong)::

    class TestMyModel(ChatModelContract):
        @pytest.fixture
        def answering(self):
            return MyModel(...)
"""

# ruff: noqa: D102 -- the name of a test says what it checks

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Finish
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import ModelProblem
from pytest_evo.protocols import ChatModel

REQUEST = ChatRequest(
    (Message(Speaker.SYSTEM, "Be brief."), Message(Speaker.USER, "Say hello."))
)


class ChatModelContract:
    """Fixtures ``answering``, ``overflowing`` and ``hopeless``."""

    def test_has_a_name(self, answering: ChatModel) -> None:
        assert isinstance(answering.name, str)
        assert answering.name

    def test_gives_text_and_says_what_it_cost(self, answering: ChatModel) -> None:
        reply = answering.ask(REQUEST)
        assert reply.finish is Finish.STOP
        assert "hello" in reply.text
        assert reply.calls == ()
        assert reply.usage.calls >= 1
        assert reply.usage.tokens > 0
        assert 0 <= reply.usage.cached_tokens <= reply.usage.input_tokens

    def test_may_be_asked_from_several_threads(self, answering: ChatModel) -> None:
        with ThreadPoolExecutor(8) as pool:
            replies = [*pool.map(answering.ask, [REQUEST] * 24)]
        assert {reply.text for reply in replies} == {replies[0].text}

    def test_says_that_a_request_is_too_long(self, overflowing: ChatModel) -> None:
        with pytest.raises(ContextOverflow):
            overflowing.ask(REQUEST)

    def test_says_that_asking_is_vain(self, hopeless: ChatModel) -> None:
        with pytest.raises(ModelProblem) as caught:
            hopeless.ask(REQUEST)
        assert hopeless.name in str(caught.value)
