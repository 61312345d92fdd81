"""A scripted model behind real HTTP on loopback, with the faults that providers have.

    def script(request):
        if request.results:
            return Answer("Done.")
        return Answer(calls=(ScriptedCall("write_file", {"path": "a.md"}),))

    with ModelServer(script) as server:
        ...                          # point a client at server.url (ends in /v1)
    assert server.requests[0].tools == ("write_file",)

It speaks ``/v1/chat/completions``, ``/v1/responses`` and ``/v1/messages``, whole and
streamed, and keeps every request.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer
from types import TracebackType
from typing import Any
from typing import Self
from typing import TypeAlias

from pytest_evo.testing.model_faults import context_overflow
from pytest_evo.testing.model_faults import dropped
from pytest_evo.testing.model_faults import Fault
from pytest_evo.testing.model_faults import garbage
from pytest_evo.testing.model_faults import hang
from pytest_evo.testing.model_faults import rate_limited
from pytest_evo.testing.model_faults import Reply
from pytest_evo.testing.model_faults import server_error
from pytest_evo.testing.model_faults import truncated
from pytest_evo.testing.model_faults import unauthorized
from pytest_evo.testing.model_faults import unknown_model
from pytest_evo.testing.model_wire import Answer
from pytest_evo.testing.model_wire import body_of
from pytest_evo.testing.model_wire import events_of
from pytest_evo.testing.model_wire import Form
from pytest_evo.testing.model_wire import ScriptedCall

__all__ = [
    "Answer",
    "Fault",
    "ModelServer",
    "ScriptedCall",
    "Script",
    "ServedRequest",
    "context_overflow",
    "dropped",
    "garbage",
    "hang",
    "rate_limited",
    "server_error",
    "truncated",
    "unauthorized",
    "unknown_model",
]

_FORMS: Mapping[str, Form] = {
    "chat/completions": "chat",
    "responses": "responses",
    "messages": "messages",
}


@dataclass(frozen=True, slots=True)
class ServedRequest:
    """One request as it came; ``at`` in seconds of the monotonic clock."""

    number: int
    at: float
    path: str
    form: Form
    headers: Mapping[str, str]  # names in lower case
    body: Mapping[str, Any]
    size: int  # bytes of the body

    @property
    def model(self) -> str:
        """The model that was asked for."""
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        """Whether the reply is to be streamed."""
        return bool(self.body.get("stream"))

    @property
    def tools(self) -> tuple[str, ...]:
        """Names of the tools that were offered."""
        named = (tool.get("function", tool) for tool in self.body.get("tools") or ())
        return tuple(str(tool.get("name", "")) for tool in named)

    @property
    def key(self) -> str:
        """The key that came in the headers."""
        bearer = self.headers.get("authorization", "").removeprefix("Bearer ")
        return bearer or self.headers.get("x-api-key", "")

    @property
    def messages(self) -> list[dict[str, Any]]:
        """Messages, or the items of ``input`` in the responses form."""
        found = self.body.get("messages", self.body.get("input")) or []
        return [{"role": "user", "content": found}] if isinstance(found, str) else found

    @property
    def text(self) -> str:
        """All that the model is told, as text."""
        told = [self.body.get("system"), self.body.get("instructions"), self.messages]
        return "\n".join(_texts(told))

    @property
    def results(self) -> tuple[str, ...]:
        """What tools answered so far, oldest first."""
        found: list[str] = []
        for message in self.messages:
            if message.get("role") == "tool":
                found.append("\n".join(_texts(message.get("content"))))
            elif message.get("type") == "function_call_output":
                found.append("\n".join(_texts(message.get("output"))))
            elif isinstance(message.get("content"), list):
                found += [
                    "\n".join(_texts(block.get("content")))
                    for block in message["content"]
                    if isinstance(block, dict) and block.get("type") == "tool_result"
                ]
        return tuple(found)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for part in value for text in _texts(part)]
    if isinstance(value, dict):
        keys = ("text", "content", "output", "input", "arguments", "function")
        return [
            text
            for key in (*keys, "tool_calls", "refusal")
            for text in _texts(value.get(key))
        ]
    return []


Script: TypeAlias = Callable[[ServedRequest], Reply]


def in_order(replies: Sequence[Reply]) -> Script:
    """Each reply once, the last one for ever after."""
    return lambda request: replies[min(request.number, len(replies) - 1)]


class ModelServer:
    """A server on a free port, from ``with`` to its end.

    Args:
        script: a function of the request, or replies in order (the last one repeats).
            What it raises is kept in ``problems`` and answered with status 500.
    """

    def __init__(self, script: Script | Sequence[Reply]) -> None:
        self._script = script if callable(script) else in_order(script)
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self.requests: list[ServedRequest] = []
        self.problems: list[BaseException] = []
        self._server = _Server(self)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.02},
            name="scripted-model",
            daemon=True,
        )

    def __enter__(self) -> Self:
        """Start to serve."""
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop; replies that hang end at once."""
        self._closing.set()
        self._server.shutdown()
        self._thread.join()
        self._server.end()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self._server.server_address[1])

    @property
    def root(self) -> str:
        """The address without ``/v1``, as the messages form wants it."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def url(self) -> str:
        """The address as the chat and responses forms want it."""
        return f"{self.root}/v1"

    def serve(self, handler: _Handler) -> None:
        """Answer one request; called by the handler."""
        path = handler.path.split("?")[0].rstrip("/")
        raw = handler.rfile.read(int(handler.headers.get("content-length") or 0))
        if path.endswith("/count_tokens"):
            handler.send_json(200, {"input_tokens": len(raw) // 4})
            return
        form = next((_FORMS[end] for end in _FORMS if path.endswith(end)), None)
        if form is None:
            handler.send_json(404, {"error": {"message": f"no such path: {path}"}})
            return
        request = self._record(handler, form, raw)
        try:
            reply = self._script(request)
        except Exception as error:  # noqa: BLE001 - kept for the test to look at
            self.problems.append(error)
            reply = Fault(500, message=f"the script raised {type(error).__name__}")
        self._send(handler, request, reply)

    def _record(self, handler: _Handler, form: Form, raw: bytes) -> ServedRequest:
        try:
            body = json.loads(raw)
        except ValueError:
            body = {}
        with self._lock:
            request = ServedRequest(
                number=len(self.requests),
                at=time.monotonic(),
                path=handler.path,
                form=form,
                headers={k.lower(): v for k, v in handler.headers.items()},
                body=body if isinstance(body, dict) else {},
                size=len(raw),
            )
            self.requests.append(request)
        return request

    def _send(self, handler: _Handler, request: ServedRequest, reply: Reply) -> None:
        fault = reply if isinstance(reply, Fault) else Fault(answer=reply)
        if fault.hang:
            self._closing.wait(fault.hang)
        if fault.drop or self._closing.is_set():
            handler.hang_up()
            return
        kind, body = _rendered(request, fault)
        handler.send_body(fault.status, kind, body, fault.headers, fault.cut)


def _rendered(request: ServedRequest, fault: Fault) -> tuple[str, bytes]:
    if fault.raw is not None:
        return fault.type, fault.raw.encode()
    if fault.answer is None:
        return "application/json", json.dumps(_error(request.form, fault)).encode()
    form, answer = request.form, fault.answer
    if not request.stream:
        body = body_of(form, answer, request.model, request.number)
        return "application/json", json.dumps(body).encode()
    options = request.body.get("stream_options") or {}
    events = events_of(
        form,
        answer,
        request.model,
        request.number,
        with_usage=bool(options.get("include_usage")),
    )
    return "text/event-stream", b"".join(events)


def _error(form: Form, fault: Fault) -> dict[str, Any]:
    if form == "messages":
        error = {"type": fault.code, "message": fault.message}
        return {"type": "error", "error": error}
    return {
        "error": {
            "message": fault.message,
            "type": fault.code,
            "code": fault.code,
            "param": None,
        }
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, model: ModelServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.model = model
        self._open: set[socket.socket] = set()

    def end(self) -> None:
        """Close the port and every connection that is still open."""
        self.server_close()
        for connection in tuple(self._open):
            _shut(connection)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # without these two every call on a kept connection costs 40 ms
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        self.server.model.serve(self)

    def do_GET(self) -> None:
        self.send_json(200, {"object": "list", "data": []})

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the requests are kept."""

    def send_json(self, status: int, body: Mapping[str, Any]) -> None:
        self.send_body(status, "application/json", json.dumps(body).encode(), {}, None)

    def send_body(
        self,
        status: int,
        kind: str,
        body: bytes,
        headers: Mapping[str, str],
        cut: int | None,
    ) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body if cut is None else body[:cut])
        self.wfile.flush()
        if cut is not None:
            self.hang_up()

    def hang_up(self) -> None:
        self.close_connection = True
        _shut(self.connection)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # the other side was faster
        connection.shutdown(socket.SHUT_RDWR)
