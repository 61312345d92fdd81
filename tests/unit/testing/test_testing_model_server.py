from __future__ import annotations

import http.client
import json
import time
from collections.abc import Mapping
from typing import Any

import pytest

from pytest_evo.chat import Finish
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import context_overflow
from pytest_evo.testing.model_server import dropped
from pytest_evo.testing.model_server import garbage
from pytest_evo.testing.model_server import hang
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import rate_limited
from pytest_evo.testing.model_server import ScriptedCall
from pytest_evo.testing.model_server import ServedRequest
from pytest_evo.testing.model_server import truncated
from pytest_evo.testing.model_server import unauthorized

PATHS = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
CALL = ScriptedCall("write_file", {"path": "a.md", "content": "a longer text " * 5})
BOTH = Answer("I edit the file now, at last.", calls=(CALL,), cached_tokens=60)


def ask(
    server: ModelServer,
    form: str = "chat",
    headers: Mapping[str, str] = {},
    **body: Any,
) -> tuple[int, Mapping[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        key = "input" if form == "responses" else "messages"
        said = {"model": "m", key: [{"role": "user", "content": "hi"}], **body}
        connection.request("POST", PATHS[form], json.dumps(said), dict(headers))
        reply = connection.getresponse()
        return reply.status, dict(reply.headers), reply.read()
    finally:
        connection.close()


def events(raw: bytes) -> list[dict[str, Any]]:
    rows = [line[6:] for line in raw.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(row) for row in rows if row != b"[DONE]"]


def test_chat_answer_has_text_calls_and_usage() -> None:
    with ModelServer([BOTH]) as server:
        body = json.loads(ask(server)[2])
    message = body["choices"][0]["message"]
    assert message["content"] == BOTH.text
    assert message["tool_calls"][0]["function"] == {
        "name": "write_file",
        "arguments": CALL.text,
    }
    assert body["choices"][0]["finish_reason"] == "tool_calls"
    assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 60


def test_streamed_chat_adds_up_to_the_whole() -> None:
    with ModelServer([BOTH]) as server:
        raw = ask(server, stream=True, stream_options={"include_usage": True})[2]
        bare = ask(server, stream=True)[2]
    chunks = events(raw)
    deltas = [c["choices"][0]["delta"] for c in chunks if c["choices"]]
    assert "".join(d.get("content") or "" for d in deltas) == BOTH.text
    parts = [d["tool_calls"][0]["function"] for d in deltas if "tool_calls" in d]
    assert "".join(p["arguments"] for p in parts) == CALL.text
    assert chunks[-1]["usage"]["completion_tokens"] == 20
    assert all("usage" not in chunk for chunk in events(bare))
    assert raw.endswith(b"data: [DONE]\n\n")


def test_streamed_responses_end_with_the_whole() -> None:
    with ModelServer([BOTH]) as server:
        whole = json.loads(ask(server, "responses", input="hi")[2])
        streamed = events(ask(server, "responses", input="hi", stream=True)[2])
    assert [item["type"] for item in whole["output"]] == ["message", "function_call"]
    assert streamed[0]["type"] == "response.created"
    assert streamed[-1]["type"] == "response.completed"
    assert streamed[-1]["response"]["usage"] == whole["usage"]
    arguments = [e for e in streamed if e["type"].endswith("arguments.delta")]
    assert "".join(event["delta"] for event in arguments) == CALL.text
    assert [e["sequence_number"] for e in streamed] == [*range(len(streamed))]


def test_streamed_messages_add_up_to_the_whole() -> None:
    with ModelServer([BOTH]) as server:
        whole = json.loads(ask(server, "messages")[2])
        streamed = events(ask(server, "messages", stream=True)[2])
    assert whole["usage"]["input_tokens"] == 40
    assert whole["usage"]["cache_read_input_tokens"] == 60
    assert whole["content"][1]["input"] == dict(CALL.arguments)  # type: ignore[arg-type]
    deltas = [e["delta"] for e in streamed if e["type"] == "content_block_delta"]
    assert "".join(d.get("text", "") for d in deltas) == BOTH.text
    assert "".join(d.get("partial_json", "") for d in deltas) == CALL.text
    assert streamed[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize(
    ("form", "place"),
    [
        ("chat", lambda b: b["choices"][0]["finish_reason"] == "length"),
        ("messages", lambda b: b["stop_reason"] == "max_tokens"),
        ("responses", lambda b: b["incomplete_details"]["reason"].startswith("max")),
    ],
)
def test_cut_answer_says_so_in_each_form(form: str, place: Any) -> None:
    with ModelServer([Answer("half", finish=Finish.LENGTH)]) as server:
        assert place(json.loads(ask(server, form)[2]))


def test_requests_are_kept_with_what_a_test_asks_of_them() -> None:
    tool = {"type": "function", "function": {"name": "look"}}
    result = {"role": "tool", "tool_call_id": "1", "content": "42 lines"}
    block = {"type": "tool_result", "content": [{"type": "text", "text": "43 lines"}]}
    with ModelServer([Answer("hi")]) as server:
        ask(
            server,
            messages=[result],
            tools=[tool],
            headers={"Authorization": "Bearer k"},
        )
        ask(
            server,
            "messages",
            system="be kind",
            messages=[{"role": "user", "content": [block]}],
            tools=[{"name": "see"}],
            headers={"x-api-key": "k2"},
        )
        ask(
            server,
            "responses",
            input=[{"type": "function_call_output", "output": "44 lines"}],
        )
    first, second, third = server.requests
    assert (first.tools, first.results, first.key) == (("look",), ("42 lines",), "k")
    assert (second.tools, second.results, second.key) == (("see",), ("43 lines",), "k2")
    assert "be kind" in second.text
    assert third.results == ("44 lines",)
    assert first.at <= second.at


def test_script_sees_the_request_and_its_own_error_is_kept() -> None:
    def script(request: ServedRequest) -> Answer:
        if request.number:
            raise LookupError("no line for this")
        return Answer(f"to {request.model}")

    with ModelServer(script) as server:
        assert b"to m" in ask(server)[2]
        assert ask(server)[0] == 500
    assert [type(problem) for problem in server.problems] == [LookupError]


def test_faults_come_as_asked() -> None:
    replies = [
        unauthorized("sk-1"),
        rate_limited("3"),
        context_overflow(),
        garbage(),
        Answer("fine"),
    ]
    with ModelServer(replies) as server:
        status, _, body = ask(server)
        assert (status, b"sk-1" in body) == (401, True)
        status, headers, _ = ask(server)
        assert (status, headers["Retry-After"]) == (429, "3")
        error = json.loads(ask(server)[2])["error"]
        assert error["code"] == "context_length_exceeded"
        status, headers, body = ask(server)
        assert (status, headers["content-type"]) == (200, "text/html")
        assert b"fine" in ask(server)[2]
        assert b"fine" in ask(server)[2]


def test_dropped_and_cut_replies_break_the_connection() -> None:
    with ModelServer([dropped(), truncated(Answer("hello"))]) as server:
        with pytest.raises(http.client.RemoteDisconnected):
            ask(server)
        with pytest.raises(http.client.IncompleteRead) as caught:
            ask(server)
    assert len(caught.value.partial) == 40


def test_hanging_reply_ends_with_the_server() -> None:
    began = time.monotonic()
    with ModelServer([hang(60)]) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
        connection.request("POST", PATHS["chat"], "{}")
        while not server.requests:
            time.sleep(0.005)
    connection.close()
    assert time.monotonic() - began < 5
