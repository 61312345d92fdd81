"""The gateway before a scripted model server, over real HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from http.server import HTTPServer
from typing import Any

import pytest

from pytest_evo.models import Usage
from pytest_evo.proposers.agent.gateway import Gateway
from pytest_evo.proposers.agent.gateway import LARGEST_REQUEST
from pytest_evo.proposers.agent.gateway_forward import Upstream
from pytest_evo.proposers.agent.gateway_meter import Meter
from pytest_evo.proposers.agent.gateway_meter import Prices
from pytest_evo.proposers.agent.gateway_wire import Counted
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import dropped
from pytest_evo.testing.model_server import Fault
from pytest_evo.testing.model_server import hang
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import server_error
from pytest_evo.testing.model_server import truncated
from pytest_evo.testing.model_server import unauthorized

KEY = "sk-the-real-key-0123456789"
CHAT = "/v1/chat/completions"
FORMS = [CHAT, "/v1/responses", "/v1/messages"]
ANSWER = Answer("Done.", input_tokens=100, output_tokens=20, cached_tokens=30)


@contextmanager
def gateway_to(base, *, tokens=None, usd=None, prices=None, model=None, seconds=5.0):
    meter = Meter(prices)
    upstream = Upstream(base, KEY, seconds)
    with Gateway(upstream, meter.open(tokens, usd), model=model) as gateway:
        yield gateway


def send(gateway, path=CHAT, body=None, *, method="POST", headers=None, token=None):
    """Status, headers and body of one request."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=10)
    sent = {"authorization": f"Bearer {token or gateway.token}", **(headers or {})}
    sent = {name: value for name, value in sent.items() if value is not None}
    data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
    try:
        connection.request(method, path, data, sent)
        reply = connection.getresponse()
        return reply.status, dict(reply.headers), reply.read()
    finally:
        connection.close()


def ask(**more: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], **more}


def events(data: bytes) -> list[Any]:
    lines = [line[5:].strip() for line in data.splitlines() if line[:5] == b"data:"]
    return [json.loads(line) for line in lines if line != b"[DONE]"]


# -- keys, counting ----------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", FORMS)
def test_every_form_gets_the_real_key_and_is_counted(path, stream):
    with ModelServer([ANSWER]) as server, gateway_to(server.url) as gateway:
        status, _, data = send(gateway, path, ask(stream=stream))
        assert status == 200
        assert b"Done." in data or b"Do" in data
    assert server.requests[0].key == KEY
    assert server.requests[0].path.split("?")[0] == path
    usage = gateway.allowance.usage
    assert (usage.calls, usage.input_tokens) == (1, 100)
    assert (usage.cached_tokens, usage.output_tokens) == (30, 20)
    assert usage.usd is None
    assert gateway.allowance.guessed == 0


def test_address_of_messages_may_end_in_a_version_or_not():
    with ModelServer([ANSWER]) as server:
        for base in (server.url, server.root):
            with gateway_to(base) as gateway:
                assert send(gateway, "/v1/messages", ask())[0] == 200
    assert {request.path for request in server.requests} == {"/v1/messages"}


def test_key_goes_where_the_form_wants_it():
    with ModelServer([ANSWER]) as server, gateway_to(server.url) as gateway:
        headers = {"anthropic-version": "2023-06-01", "x-api-key": gateway.token}
        headers |= {"authorization": None, "cookie": "a=b", "x-other": "c"}
        assert send(gateway, "/v1/messages", ask(), headers=headers)[0] == 200
        send(gateway, CHAT, ask())
    first, second = server.requests
    assert first.headers["x-api-key"] == KEY
    assert first.headers["anthropic-version"] == "2023-06-01"
    assert not {"authorization", "cookie", "x-other"} & {*first.headers}
    assert second.headers["authorization"] == f"Bearer {KEY}"


def test_stream_is_asked_for_its_usage_and_the_agent_sees_it_only_if_it_asked():
    with ModelServer([ANSWER]) as server, gateway_to(server.url) as gateway:
        plain = send(gateway, CHAT, ask(stream=True))[2]
        wanted = {"include_usage": True}
        asked = send(gateway, CHAT, ask(stream=True, stream_options=wanted))[2]
    assert all(request.body["stream_options"] == wanted for request in server.requests)
    assert not [event for event in events(plain) if event["choices"] == []]
    assert [event for event in events(asked) if event["choices"] == []]
    assert plain.rstrip().endswith(b"[DONE]")
    assert gateway.allowance.usage.tokens == 240


def test_prices_make_money_of_tokens():
    prices = Prices(input_usd=10, cached_usd=1, output_usd=50)
    with (
        ModelServer([ANSWER]) as server,
        gateway_to(server.url, prices=prices) as gateway,
    ):
        send(gateway, CHAT, ask())
    expected = (70 * 10 + 30 * 1 + 20 * 50) / 1e6
    assert gateway.allowance.usage.usd == pytest.approx(expected)


PRICES = Prices(input_usd=10, cached_usd=1, output_usd=50)


@pytest.mark.parametrize("fault", [dropped(), truncated(ANSWER)])
@pytest.mark.parametrize("stream", [False, True])
def test_lost_reply_is_of_unknown_price_and_counts_as_a_whole_one(fault, stream):
    with (
        ModelServer([fault]) as server,
        gateway_to(server.url, prices=PRICES) as gateway,
        contextlib.suppress(http.client.HTTPException),
    ):
        send(gateway, CHAT, ask(stream=stream, max_tokens=1_000))
    usage = gateway.allowance.usage
    assert (usage.calls, usage.unpriced, usage.usd) == (1, 1, None)
    assert usage.input_tokens > 0
    assert usage.estimated_usd == pytest.approx(
        (usage.input_tokens * 10 + 1_000 * 50) / 1e6
    )


def test_call_that_never_went_out_is_free():
    with gateway_to("http://127.0.0.1:9/v1") as gateway:
        assert send(gateway, CHAT, ask())[0] == 502
    assert gateway.allowance.usage.usd == 0.0


def test_reply_without_usage_is_guessed_not_free():
    body = json.dumps({"choices": [{"message": {"content": "x" * 400}}]})
    with plain_server(200, body) as base, gateway_to(base) as gateway:
        assert send(gateway, CHAT, ask())[0] == 200
    assert gateway.allowance.guessed == 1
    assert gateway.allowance.usage.tokens > 100
    assert gateway.allowance.usage.usd is None


@pytest.mark.parametrize("fault", [unauthorized(), server_error()])
def test_failed_calls_are_counted_as_calls_and_cost_nothing(fault):
    with ModelServer([fault]) as server, gateway_to(server.url) as gateway:
        status, _, _ = send(gateway, CHAT, ask())
    assert status >= 400
    assert gateway.allowance.usage.calls == 1
    assert gateway.allowance.usage.tokens == 0
    assert gateway.allowance.usage.usd == 0.0


# -- the budget --------------------------------------------------------------------


def test_no_call_is_made_when_the_tokens_are_used_up():
    with (
        ModelServer([ANSWER]) as server,
        gateway_to(server.url, tokens=150) as gateway,
    ):
        statuses = [send(gateway, CHAT, ask())[0] for _ in range(3)]
        text = send(gateway, CHAT, ask())[2]
    assert statuses == [200, 200, 400]
    assert len(server.requests) == 2
    assert b"token budget" in text
    assert gateway.allowance.spent is not None


def test_no_call_is_made_when_the_money_is_used_up():
    prices = Prices(1_000, 1_000, 1_000)
    with (
        ModelServer([ANSWER]) as server,
        gateway_to(server.url, usd=0.1, prices=prices) as gateway,
    ):
        assert [send(gateway, CHAT, ask())[0] for _ in range(2)] == [200, 400]


def test_no_reply_may_be_longer_than_what_is_left():
    with (
        ModelServer([ANSWER]) as server,
        gateway_to(server.url, tokens=500) as gateway,
    ):
        send(gateway, CHAT, ask(max_tokens=10_000))
        send(gateway, "/v1/messages", ask(max_tokens=50))
    assert server.requests[0].body["max_tokens"] < 500
    assert server.requests[1].body["max_tokens"] == 50


def test_two_agents_cannot_spend_the_same_tokens():
    meter = Meter()
    first = meter.open(100, None)
    second = meter.open(100, None)
    need, left = first.reserve(40)
    assert (need, left) == (10, 90)
    first.settle(need, Counted(50, 0, 30), 1.0, 400)
    assert second.reserve(0) == (0, 20)
    assert meter.open(200, None).reserve(0) == (0, 120)
    meter.close(first)  # now the run's budget knows of it
    assert meter.open(120, None).reserve(0) == (0, 120)


# -- what does not pass ------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v1/embeddings", 404),
        ("POST", "/v1/chat/completions/../../admin", 404),
        ("POST", "http://elsewhere.invalid/v1/chat/completions", 404),
        ("GET", "/v1/chat/completions", 404),
        ("GET", "/", 404),
        ("CONNECT", "elsewhere.invalid:443", 405),
        ("PUT", CHAT, 405),
        ("DELETE", "/v1/models", 405),
    ],
)
def test_other_paths_and_methods_are_refused(method, path, status):
    with ModelServer([ANSWER]) as server, gateway_to(server.url) as gateway:
        assert send(gateway, path, b"{}", method=method)[0] == status
    assert server.requests == []


@pytest.mark.parametrize("token", ["wrong", KEY, "x" * 5000])
def test_requests_without_the_token_are_refused(token):
    with ModelServer([ANSWER]) as server, gateway_to(server.url) as gateway:
        assert send(gateway, CHAT, ask(), token=token)[0] == 401
    assert server.requests == []


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"no json", {}, 400),
        (b"[1]", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b"{}", {"content-encoding": "gzip"}, 415),
        (None, {"content-length": str(LARGEST_REQUEST + 1)}, 413),
        (None, {"transfer-encoding": "chunked"}, 411),
        (None, {"content-length": "-5"}, 411),
    ],
)
def test_malformed_requests_are_refused(body, headers, status):
    with ModelServer([ANSWER]) as server, gateway_to(server.url) as gateway:
        assert send(gateway, CHAT, body, headers=headers)[0] == status
    assert server.requests == []


def test_models_are_told_without_asking_anybody():
    with (
        ModelServer([ANSWER]) as server,
        gateway_to(server.url, model="only-one") as gateway,
    ):
        status, _, data = send(gateway, "/v1/models", method="GET")
    assert status == 200
    assert [row["id"] for row in json.loads(data)["data"]] == ["only-one"]
    assert server.requests == []


def test_one_model_stands_for_all():
    with (
        ModelServer([ANSWER]) as server,
        gateway_to(server.url, model="cheap") as gateway,
    ):
        send(gateway, CHAT, ask(model="dear"))
    assert server.requests[0].model == "cheap"


def test_tools_that_the_provider_would_run_are_taken_out():
    hosted = [{"type": "web_search_20250305", "name": "web_search"}, {"type": "mcp"}]
    own = {"type": "function", "name": "bash", "parameters": {}}
    with ModelServer([ANSWER]) as server, gateway_to(server.url) as gateway:
        send(gateway, "/v1/responses", ask(tools=[*hosted, own], background=True))
        send(gateway, "/v1/messages", ask(tools=hosted, mcp_servers=[{"url": "x"}]))
    first, second = server.requests
    assert first.tools == ("bash",)
    assert first.body["background"] is False
    assert not {"tools", "mcp_servers"} & {*second.body}


# -- a provider that misbehaves ----------------------------------------------------


@contextmanager
def plain_server(status, body="", headers=None, kind="application/json"):
    """A provider that always gives one answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            data = body.encode()
            told = {"content-type": kind, "content-length": str(len(data))}
            for name, value in {**told, **(headers or {})}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1"
        finally:
            server.shutdown()
            thread.join()


def test_redirects_are_not_followed():
    with ModelServer([ANSWER]) as other:
        where = {"location": f"{other.url}/chat/completions"}
        with plain_server(307, headers=where) as base, gateway_to(base) as gateway:
            status, _, data = send(gateway, CHAT, ask())
    assert status == 502
    assert b"redirects" in data
    assert other.requests == []


def test_key_in_what_a_provider_says_does_not_reach_the_agent():
    body = json.dumps({"error": {"message": f"wrong key {KEY}"}})
    with plain_server(401, body) as base, gateway_to(base) as gateway:
        status, _, data = send(gateway, CHAT, ask())
    assert status == 401
    assert KEY.encode() not in data
    assert b"[redacted]" in data
    assert KEY not in json.dumps([call.reply for call in gateway.calls])


def test_closed_provider_is_an_answer():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with gateway_to(f"http://127.0.0.1:{port}/v1") as gateway:
        status, _, data = send(gateway, CHAT, ask())
    assert status == 502
    assert b"cannot be reached" in data
    assert [call.status for call in gateway.calls] == [502]


def test_provider_that_hangs_is_given_up():
    with (
        ModelServer([hang(30)]) as server,
        gateway_to(server.url, seconds=0.3) as gateway,
    ):
        assert send(gateway, CHAT, ask())[0] == 502
    assert gateway.allowance.usage.calls == 1


def test_stream_that_breaks_off_is_counted_as_far_as_it_came():
    text = "".join(
        f"data: {json.dumps(event)}\n\n"
        for event in (
            {"type": "message_start", "message": {"usage": {"input_tokens": 70}}},
            {"type": "content_block_delta", "delta": {"text": "half"}},
        )
    )
    length = {"content-length": "99999"}
    with (
        plain_server(200, text, length, "text/event-stream") as base,
        gateway_to(base, seconds=0.5) as gateway,
    ):
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=5)
        data = json.dumps(ask(stream=True))
        headers = {"authorization": f"Bearer {gateway.token}"}
        connection.request("POST", "/v1/messages", data, headers)
        with pytest.raises(http.client.IncompleteRead):
            connection.getresponse().read()
        connection.close()
    assert gateway.allowance.usage.input_tokens == 70
    assert gateway.allowance.usage.unpriced == 1  # what the rest would have cost
    assert gateway.allowance.guessed == 1


def test_reply_that_nobody_waits_for_is_counted():
    slow = Fault(hang=0.3, answer=ANSWER)
    with ModelServer([slow]) as server, gateway_to(server.url) as gateway:
        connection = http.client.HTTPConnection("127.0.0.1", gateway.port)
        headers = {"authorization": f"Bearer {gateway.token}"}
        connection.request("POST", CHAT, json.dumps(ask()), headers)
        while not server.requests:
            time.sleep(0.01)
        connection.close()
        time.sleep(0.6)
    assert gateway.allowance.usage.tokens == 120
    assert len(gateway.calls) == 1


def test_headers_that_a_client_needs_for_waiting_pass_back():
    told = {"retry-after": "7", "set-cookie": "a"}
    with plain_server(429, "{}", told) as base, gateway_to(base) as gateway:
        status, headers, _ = send(gateway, CHAT, ask())
    assert status == 429
    assert headers["retry-after"] == "7"
    assert "set-cookie" not in headers


# -- life --------------------------------------------------------------------------


def test_calls_on_their_way_are_counted_when_the_gateway_closes():
    with ModelServer([hang(20)]) as server:
        with gateway_to(server.url, seconds=20) as gateway:
            thread = threading.Thread(target=lambda: _quietly(gateway), daemon=True)
            thread.start()
            while not server.requests:
                thread.join(0.01)
        assert gateway.allowance.usage.calls <= 1
        thread.join(5)
        assert not thread.is_alive()


def _quietly(gateway):
    try:
        send(gateway, CHAT, ask())
    except OSError:
        pass
    except http.client.HTTPException:
        pass


def test_unix_socket_serves_like_a_port(tmp_path):
    path = tmp_path / "s"
    meter = Meter()
    with (
        ModelServer([ANSWER]) as server,
        Gateway(Upstream(server.url, KEY), meter.open(None, None), at=path) as gateway,
        socket.socket(socket.AF_UNIX) as client,
    ):
        client.connect(str(path))
        data = json.dumps(ask()).encode()
        head = (
            f"POST {CHAT} HTTP/1.1\r\nhost: x\r\nx-api-key: {gateway.token}\r\n"
            f"content-length: {len(data)}\r\nconnection: close\r\n\r\n"
        )
        client.sendall(head.encode() + data)
        assert client.makefile("rb").readline().startswith(b"HTTP/1.1 200")
    assert meter.total.tokens == 120


def test_calls_are_recorded_with_both_sides_and_cut():
    with ModelServer([ANSWER]) as server, gateway_to(server.url) as gateway:
        send(gateway, CHAT, ask(padding="x" * 100_000))
        send(gateway, "/nowhere", ask())
    first, second = sorted(gateway.calls, key=lambda call: call.at)
    assert (first.status, first.path) == (200, CHAT)
    assert first.usage == Usage(1, 100, 30, 20, None, first.usage.seconds)
    assert len(first.request) <= 20_000
    assert "Done." in first.reply
    assert second.status == 404
