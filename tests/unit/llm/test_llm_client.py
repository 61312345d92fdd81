"""The client against a scripted server: real HTTP through litellm, one import of it."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from pytest_evo.chat import AskedInVain
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Costly
from pytest_evo.chat import Finish
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.chat import Tool
from pytest_evo.chat import ToolCall
from pytest_evo.chat import ToolsRefused
from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.llm.client import LiteLLMModel
from pytest_evo.llm.waiting import Backoff
from pytest_evo.settings_model import ModelSettings
from pytest_evo.tabs import opened_tab
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import context_overflow
from pytest_evo.testing.model_server import dropped
from pytest_evo.testing.model_server import Fault
from pytest_evo.testing.model_server import garbage
from pytest_evo.testing.model_server import hang
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import rate_limited
from pytest_evo.testing.model_server import Reply
from pytest_evo.testing.model_server import ScriptedCall
from pytest_evo.testing.model_server import server_error
from pytest_evo.testing.model_server import truncated
from pytest_evo.testing.model_server import unauthorized
from pytest_evo.testing.model_server import unknown_model

KEY = "sk-test-0123456789abcdefghij"
HELLO = ChatRequest((Message(Speaker.USER, "hello"),))
LOOK = Tool("look", "Look at it.", {"type": "object", "properties": {}})
MODELS = ["openai/scripted", "anthropic/claude-scripted"]

Make = Callable[..., LiteLLMModel]


MADE: list[LiteLLMModel] = []


@pytest.fixture(autouse=True, scope="module")
def no_leftovers():
    """What is left open is closed by the models while warnings still count.

    A run asks from other threads; in this one the library looks for an event loop, and
    makes one that nobody closes.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    for model in MADE:
        model.close()
    asyncio.set_event_loop(None)
    loop.close()
    gc.collect()


def make(server: ModelServer, name: str = MODELS[0], **options: Any) -> LiteLLMModel:
    base = server.root if name.startswith("anthropic") else server.url
    settings = ModelSettings(api_base=base, **{"timeout": 5.0, **options})
    fast = Backoff(first=0.01)
    MADE.append(LiteLLMModel(name, settings, rng=Random(1), key=KEY, backoff=fast))
    return MADE[-1]


def refused(replies: Sequence[Reply], kind: type[Exception], **options: Any) -> str:
    """The message of the error that a request ends with."""
    with ModelServer(replies) as server, pytest.raises(kind) as caught:
        make(server, **options).ask(HELLO)
    assert not server.problems
    assert len(server.requests) == 1
    return str(caught.value)


# -- answers -------------------------------------------------------------------------


@pytest.mark.parametrize("name", MODELS)
def test_answer_comes_with_its_cost(name: str) -> None:
    said = Answer("hi", input_tokens=100, cached_tokens=60, output_tokens=7)
    prices = {"input_usd": 10.0, "cached_usd": 1.0, "output_usd": 100.0}
    with ModelServer([said]) as server:
        reply = make(server, name, **prices).ask(HELLO)
        plain = make(server, name).ask(HELLO)
    assert (reply.text, reply.finish) == ("hi", Finish.STOP)
    assert reply.usage.calls == 1
    assert reply.usage.input_tokens == 100
    assert reply.usage.cached_tokens == 60
    assert reply.usage.output_tokens == 7
    assert reply.usage.usd == pytest.approx((40 * 10 + 60 * 1 + 7 * 100) / 1e6)
    assert reply.usage.seconds > 0
    assert plain.usage.usd is None  # unknown, not free


@pytest.mark.parametrize("name", MODELS)
def test_tools_go_out_and_calls_come_back(name: str) -> None:
    request = ChatRequest(
        (
            Message(Speaker.SYSTEM, "be kind"),
            Message(Speaker.USER, "hello"),
            Message(Speaker.ASSISTANT, "", (ToolCall("call_9", "look", "{}"),)),
            Message(Speaker.TOOL, "all is well", answers="call_9"),
        ),
        tools=(LOOK,),
    )
    call = ScriptedCall("look", {"at": "ü"})
    with ModelServer([Answer(calls=(call, call))]) as server:
        reply = make(server, name).ask(request)
    asked = server.requests[0]
    assert asked.tools == ("look",)
    assert asked.results == ("all is well",)
    assert "be kind" in asked.text
    assert reply.finish is Finish.TOOLS
    assert [c.name for c in reply.calls] == ["look", "look"]
    assert len({c.id for c in reply.calls}) == 2


def test_known_price_is_taken_from_the_table() -> None:
    with ModelServer([Answer("hi", input_tokens=1000, output_tokens=100)]) as server:
        reply = make(server, "openai/gpt-5-mini").ask(HELLO)
    assert reply.usage.usd is not None
    assert reply.usage.usd > 0


def test_usage_is_estimated_where_the_provider_tells_none() -> None:
    body = (
        '{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant",'
    )
    long = body + '"content":"' + "word " * 80 + '"}}]}'
    with ModelServer([Fault(raw=long)]) as server:
        usage = make(server, input_usd=1.0, output_usd=1.0).ask(HELLO).usage
    assert usage.input_tokens > 0
    assert usage.output_tokens == 100
    assert usage.usd is not None
    assert usage.usd > 0


def test_replies_without_an_answer_are_paid_for_too() -> None:
    nothing = (
        '{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[],'
        '"usage":{"prompt_tokens":40,"completion_tokens":0,"total_tokens":40}}'
    )
    said = Answer("hi", input_tokens=100, output_tokens=7)
    with ModelServer([Fault(raw=nothing), said]) as server:
        usage = make(server, retries=1, input_usd=1.0, output_usd=1.0).ask(HELLO).usage
    assert (usage.calls, usage.tokens) == (2, 147)
    assert usage.usd == pytest.approx(147 / 1e6)


def test_time_and_probe_are_charged_with_a_failure() -> None:
    with ModelServer([Answer("ok"), unauthorized()]) as server:
        model = make(server)
        probed = model.probe()
        with pytest.raises(AskedInVain) as caught:
            model.ask(HELLO)
    spent = caught.value.usage
    assert (spent.calls, spent.tokens) == (2, probed.tokens)
    assert spent.seconds > probed.seconds > 0


@pytest.mark.parametrize(
    ("answer", "finish"),
    [
        (Answer(""), Finish.EMPTY),
        (Answer("  \n"), Finish.EMPTY),
        (Answer("half", finish=Finish.LENGTH), Finish.LENGTH),
        (Answer("", finish=Finish.LENGTH), Finish.LENGTH),
        (Answer("", finish=Finish.REFUSED), Finish.REFUSED),
        (Answer("no", refusal="no"), Finish.REFUSED),
    ],
)
def test_end_of_an_answer_is_told_apart(answer: Answer, finish: Finish) -> None:
    with ModelServer([answer]) as server:
        assert make(server).ask(HELLO).finish is finish


def test_lone_surrogates_do_not_pass() -> None:
    body = (
        '{"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant",'
    )
    with ModelServer([Fault(raw=body + '"content":"\\ud83d broken"}}]}')]) as server:
        sent = ChatRequest((Message(Speaker.USER, "half a \ud83d pair"),))
        reply = make(server).ask(sent)
    assert reply.text.encode()
    assert "broken" in reply.text
    assert "pair" in server.requests[0].text


def test_start_of_a_prompt_is_marked_for_caching_where_it_must_be() -> None:
    request = ChatRequest((Message(Speaker.SYSTEM, "be kind"), *HELLO.messages))
    with ModelServer([Answer("hi")]) as server:
        make(server, "anthropic/claude-scripted").ask(request)
        make(server).ask(request)
    first, second = server.requests
    assert "cache_control" in str(first.body["system"])
    assert "cache_control" not in str(second.body)


def test_schema_is_sent_and_left_out_where_it_is_refused() -> None:
    request = ChatRequest(HELLO.messages, schema={"type": "object", "properties": {}})
    no = Fault(400, "invalid_request_error", "response_format is not supported")
    with ModelServer([Answer("{}"), no, Answer("{}")]) as server:
        model = make(server)
        model.ask(request)
        model.ask(request)
        model.ask(request)
    sent = [r.body.get("response_format", {}).get("type") for r in server.requests]
    assert sent == ["json_schema", "json_schema", None, None]


# -- faults --------------------------------------------------------------------------


def test_wrong_key_is_told_once_and_never_shown() -> None:
    with ModelServer([unauthorized(KEY)]) as server, pytest.raises(ModelProblem) as no:
        make(server).ask(HELLO)
    assert len(server.requests) == 1
    assert "key" in str(no.value)
    assert KEY[:8] not in str(no.value)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(400, "x", f"bad thing in {KEY} you sent"),
        Fault(500, "x", f"exploded on {KEY}"),
        Fault(404, "x", f"no model for {KEY}"),
    ],
)
def test_key_in_any_error_is_taken_out(fault: Fault) -> None:
    with (
        ModelServer([fault]) as server,
        pytest.raises((ModelFailed, ModelProblem)) as e,
    ):
        make(server, retries=0).ask(HELLO)
    assert KEY not in str(e.value)
    assert "[key]" in str(e.value)


@pytest.mark.parametrize(
    "fault",
    [
        unknown_model("scripted"),
        Fault(429, "insufficient_quota", "you exceeded your current quota"),
        Fault(402, "x", "payment required"),
    ],
)
def test_vain_requests_are_not_repeated(fault: Fault) -> None:
    with ModelServer([fault]) as server, pytest.raises(ModelProblem) as caught:
        make(server).ask(HELLO)
    assert len(server.requests) == 1
    assert "scripted" in str(caught.value)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "fault",
    [
        rate_limited(),
        rate_limited("soon"),
        rate_limited("-5"),
        rate_limited("Wed, 21 Oct 2015 07:28:00 GMT"),
        server_error(500),
        server_error(503),
        server_error(529),
        Fault(502, raw="<h1>Bad gateway</h1>", type="text/html"),
        Fault(raw='{"error": {"message": "overloaded", "type": "overloaded_error"}}'),
        Fault(raw='{"id": "x", "choices": [], "content": []}'),
        dropped(),
        truncated(Answer("hello")),
        garbage(),
        garbage(""),
    ],
)
def test_passing_faults_are_tried_again(fault: Fault, name: str) -> None:
    with ModelServer([fault, fault, Answer("at last")]) as server:
        reply = make(server, name).ask(HELLO)
    assert reply.text == "at last"
    assert reply.usage.calls == 3
    assert len(server.requests) == 3


def test_hanging_server_is_left_and_asked_again() -> None:
    with ModelServer([hang(30), Answer("at last")]) as server:
        began = time.monotonic()
        assert make(server, timeout=0.3).ask(HELLO).text == "at last"
    assert time.monotonic() - began < 10


def test_asked_wait_is_kept() -> None:
    with ModelServer([rate_limited("0.6"), Answer("hi")]) as server:
        make(server).ask(HELLO)
    first, second = server.requests
    assert second.at - first.at >= 0.6


def test_asked_wait_holds_for_every_thread() -> None:
    with ModelServer([rate_limited("0.6"), Answer("hi")]) as server:
        model = make(server)
        threads = [threading.Thread(target=model.ask, args=(HELLO,)) for _ in range(3)]
        threads[0].start()
        for _ in range(4_000):
            if server.requests:
                break
            time.sleep(0.005)
        time.sleep(0.1)
        for thread in threads[1:]:
            thread.start()
        for thread in threads:
            thread.join()
    begun = server.requests[0].at
    assert len(server.requests) == 4
    assert all(request.at - begun >= 0.6 for request in server.requests[1:])


def test_wait_of_a_day_is_not_slept_through() -> None:
    began = time.monotonic()
    text = refused([rate_limited("86400")], ModelFailed)
    assert "86400 s" in text
    assert "max_wait" in text
    assert time.monotonic() - began < 10


def test_tries_are_bounded_and_charged() -> None:
    with ModelServer([server_error()]) as server, pytest.raises(Costly) as caught:
        make(server, retries=2).ask(HELLO)
    assert isinstance(caught.value, ModelFailed)
    assert len(server.requests) == 3
    assert caught.value.usage.calls == 3


PRICES = {"input_usd": 10.0, "output_usd": 50.0, "max_tokens": 1_000}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fault", [dropped(), truncated(Answer("x" * 400)), garbage()])
def test_lost_answer_is_a_call_of_unknown_price(fault: Fault, name: str) -> None:
    replies = [fault, Answer("ok", input_tokens=100, output_tokens=20)]
    with ModelServer(replies) as server:
        usage = make(server, name, retries=1, **PRICES).ask(HELLO).usage
    assert (usage.calls, usage.unpriced, usage.usd) == (2, 1, None)
    assert usage.known_usd == pytest.approx(0.002)
    sent = usage.input_tokens - 100
    assert sent > 0
    assert usage.estimated_usd == pytest.approx((sent * 10 + 1_000 * 50) / 1e6)


def test_answer_that_came_too_late_is_a_call_of_unknown_price() -> None:
    with ModelServer([hang(5)]) as server, pytest.raises(Costly) as caught:
        make(server, retries=0, timeout=0.2).ask(HELLO)
    assert caught.value.usage.unpriced == 1
    assert caught.value.usage.estimated_usd is None  # nobody knows its prices


@pytest.mark.parametrize("fault", [server_error(), rate_limited(), unauthorized()])
@pytest.mark.parametrize("name", MODELS)
def test_providers_take_nothing_for_an_error(fault: Fault, name: str) -> None:
    with ModelServer([fault]) as server, pytest.raises(Exception) as caught:  # noqa: PT011
        make(server, name, retries=0).ask(HELLO)
    assert caught.value.usage.usd == 0.0  # type: ignore[attr-defined]


def test_request_that_never_went_out_is_free() -> None:
    with ModelServer([]) as server:
        gone = make(server, retries=0)
    with pytest.raises(Costly) as caught:
        gone.ask(HELLO)
    assert caught.value.usage.usd == 0.0


def test_price_of_a_lost_answer_is_estimated_by_the_table() -> None:
    with ModelServer([dropped()]) as server, pytest.raises(Costly) as caught:
        make(server, "openai/gpt-4o-mini", retries=0, max_tokens=1_000).ask(HELLO)
    assert caught.value.usage.estimated_usd == pytest.approx(0.0006, rel=0.1)


def test_waits_end_when_the_run_ends() -> None:
    with ModelServer([rate_limited("60")]) as server:
        model = make(server)
        found: list[BaseException] = []

        def work() -> None:
            try:
                model.ask(HELLO)
            except ModelFailed as error:
                found.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        for _ in range(4_000):
            if server.requests:
                break
            time.sleep(0.005)
        model.close()
        thread.join(5)
    assert "ending" in str(found[0])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "fault",
    [
        context_overflow(),
        Fault(400, "x", "prompt is too long: 300000 tokens > 200000 maximum"),
        Fault(400, "x", "the request exceeds the available context size"),
        Fault(413, "x", "request too large"),
    ],
)
def test_overflow_has_its_own_error(fault: Fault, name: str) -> None:
    with ModelServer([fault]) as server, pytest.raises(ContextOverflow):
        make(server, name).ask(HELLO)
    assert len(server.requests) == 1


def test_refused_parameter_is_left_out_for_good() -> None:
    no = Fault(400, "invalid_request_error", "temperature is not supported")
    with ModelServer([no, Answer("hi")]) as server:
        model = make(server, temperature=0.5)
        model.ask(HELLO)
        model.ask(HELLO)
    assert ["temperature" in r.body for r in server.requests] == [True, False, False]


def test_other_bad_requests_are_not_repeated() -> None:
    assert "messages are odd" in refused(
        [Fault(400, "x", "messages are odd")], ModelFailed
    )


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (400, "this model does not support tools"),
        (400, "tool choice requires --enable-auto-tool-choice to be set"),
        (500, "tools param requires --jinja flag"),
        (404, "No endpoints found that support tool use: not supported"),
    ],
)
def test_model_without_tools_is_told_apart(status: int, text: str) -> None:
    request = ChatRequest(HELLO.messages, tools=(LOOK,))
    with ModelServer([Fault(status, "x", text)]) as server, pytest.raises(ToolsRefused):
        make(server).ask(request)


# -- at the start --------------------------------------------------------------------


def test_unknown_provider_is_refused_without_network() -> None:
    model = LiteLLMModel("nosuch/x", ModelSettings(), rng=Random(1))
    with pytest.raises(ModelProblem, match="PROVIDER/NAME"):
        model.check()


def test_missing_key_is_refused_without_network(monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = LiteLLMModel("openai/gpt-5-mini", ModelSettings(), rng=Random(1))
    with pytest.raises(ModelProblem, match="export OPENAI_API_KEY=KEY"):
        model.check()
    named = ModelSettings(api_key_env="EVO_KEY", api_base="http://127.0.0.1:9")
    model = LiteLLMModel("openai/x", named, rng=Random(1))
    with pytest.raises(ModelProblem, match="export EVO_KEY=KEY"):
        model.check()


def test_server_of_ones_own_needs_no_key(monkeypatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with ModelServer([Answer("ok")]) as server:
        options = ModelSettings(api_base=server.url)
        usage = LiteLLMModel("openai/x", options, rng=Random(1)).probe()
    assert usage.tokens == 120
    assert server.requests[0].body["max_tokens"] == 16


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (unauthorized(KEY), "refuses the key"),
        (unknown_model(), "no such model"),
        (server_error(), "no answer after"),
        (Fault(400, "x", "nope"), "nope"),
    ],
)
def test_probe_says_what_to_change(fault: Fault, said: str) -> None:
    with ModelServer([fault]) as server, pytest.raises(ModelProblem, match=said):
        make(server, retries=1).probe()


def test_library_is_loaded_quietly_and_only_when_it_is_needed() -> None:
    code = """
import os, sys, warnings
warnings.simplefilter("error")
from random import Random
from pytest_evo.llm.client import LiteLLMModel
from pytest_evo.settings_model import ModelSettings
from pytest_evo.tabs import opened_tab
from pytest_evo.chat import ChatRequest, Message, Speaker
from pytest_evo.testing.model_server import Answer, ModelServer, unauthorized
assert "litellm" not in sys.modules
before = dict(os.environ)
with ModelServer([Answer("hi"), unauthorized()]) as server:
    options = ModelSettings(api_base=server.url)
    model = LiteLLMModel("openai/x", options, rng=Random(1))
    request = ChatRequest((Message(Speaker.USER, "hello"),))
    assert model.ask(request).text == "hi"
    try:
        model.ask(request)
    except Exception as error:
        assert "refuses the key" in str(error)
assert dict(os.environ) == before
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_call_that_is_out_is_on_the_tab_as_a_lost_one() -> None:
    came = threading.Event()

    def slow(request: object) -> Reply:
        came.set()
        return hang(5)

    with ModelServer(slow) as server, opened_tab() as tab:
        model = make(server, retries=0, **PRICES)
        within = contextvars.copy_context()
        asked = threading.Thread(target=within.run, args=(_failing, model), daemon=True)
        asked.start()
        assert came.wait(10)
        seen = tab.total()
        assert (seen.calls, seen.unpriced) == (1, 1)
        assert seen.estimated_usd == pytest.approx(0.05, rel=0.1)
    asked.join(10)
    assert tab.total().calls == 1


def _failing(model: LiteLLMModel) -> None:
    with pytest.raises(ModelFailed):
        model.ask(HELLO)
