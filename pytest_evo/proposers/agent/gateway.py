"""The agent's only way to a model: a small HTTP server of ours.

The agent gets its address and a token that is good for nothing else. The gateway adds
the real key, forwards to one provider, counts, enforces the budget and records. It
follows no redirect and knows four paths.
"""

from __future__ import annotations

import contextlib
import hmac
import http.client
import json
import secrets
import socket
import socketserver
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any
from typing import Self

from pytest_evo.hostile import cut
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.proposers.agent.gateway_forward import Call
from pytest_evo.proposers.agent.gateway_forward import Forward
from pytest_evo.proposers.agent.gateway_forward import KEPT
from pytest_evo.proposers.agent.gateway_forward import Refused
from pytest_evo.proposers.agent.gateway_forward import Upstream
from pytest_evo.proposers.agent.gateway_meter import Allowance
from pytest_evo.proposers.agent.gateway_wire import Body
from pytest_evo.proposers.agent.gateway_wire import ROUTES

LARGEST_REQUEST = 32_000_000
_MOST_AT_ONCE = 16
_MOST_CALLS = 2_000
_IDLE_SECONDS = 120.0
_END_SECONDS = 5.0
_MOST_KEPT = 2_000_000  # characters of a transcript


class Gateway:
    """Serves one agent, from ``with`` to its end.

    Args:
        upstream: where requests go.
        allowance: asked before each call.
        model: stands for whatever model the agent names; None leaves it to the agent.
        at: a unix socket to listen on; None: a free port on 127.0.0.1.
    """

    def __init__(
        self,
        upstream: Upstream,
        allowance: Allowance,
        *,
        model: str | None = None,
        at: Path | None = None,
    ) -> None:
        self.upstream = upstream
        self.allowance = allowance
        self.model = model
        self.token = f"evo-{secrets.token_urlsafe(24)}"
        """What the agent shows instead of a key."""
        self.calls: list[Call] = []
        self.began = time.monotonic()
        self.slots = threading.BoundedSemaphore(_MOST_AT_ONCE)
        self.closing = threading.Event()
        self._kept = 0
        self._lock = threading.Lock()
        self._providers: set[http.client.HTTPConnection] = set()
        self._server = _Server(self, at)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="evo-gateway",
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
        """Stop; calls on their way are broken off and counted."""
        self.closing.set()
        self._server.shutdown()
        self._thread.join()
        self._break_off()
        self._server.end()

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return int(self._server.server_address[1])

    def admit(self, headers: Any) -> bool:
        """Whether a request shows the token."""
        shown = headers.get("x-api-key") or ""
        shown = shown or (headers.get("authorization") or "").removeprefix("Bearer ")
        return hmac.compare_digest(shown.strip().encode(), self.token.encode())

    @contextlib.contextmanager
    def holding(
        self, provider: http.client.HTTPConnection
    ) -> Iterator[http.client.HTTPConnection]:
        """Keep a connection to the provider where it can be broken off."""
        with self._lock:
            self._providers.add(provider)
        try:
            yield provider
        finally:
            with self._lock:
                self._providers.discard(provider)
            provider.close()

    def _break_off(self) -> None:
        with self._lock:
            sockets = [provider.sock for provider in self._providers if provider.sock]
        for connection in sockets:
            shut(connection)

    def record(
        self, began: float, path: str, status: int, usage: Usage, texts: tuple[str, str]
    ) -> None:
        """Keep a request for the transcript."""
        request, reply = (cut(text, KEPT) for text in texts)
        now = time.monotonic()
        with self._lock:
            self._kept += len(request) + len(reply)
            if self._kept > _MOST_KEPT:
                request = reply = ""
            at = round(began - self.began, 3)
            took = round(now - began, 3)
            self.calls.append(Call(at, path, status, took, usage, request, reply))


class _Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 64
    allow_reuse_address = True

    def __init__(self, gateway: Gateway, at: Path | None) -> None:
        self.gateway = gateway
        self._open: set[Any] = set()
        self._idle = threading.Condition()
        if at is not None:
            self.address_family = socket.AF_UNIX
        address: Any = ("127.0.0.1", 0) if at is None else str(at)
        super().__init__(address, Handler)

    def get_request(self) -> tuple[Any, Any]:
        """Accept; a unix socket has no address to tell."""
        connection, _ = self.socket.accept()
        return connection, ("agent", 0)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._idle:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        with self._idle:
            self._open.discard(request)
            self._idle.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no event."""

    def end(self) -> None:
        """Close the port and every connection; wait until all are counted."""
        self.server_close()
        with self._idle:
            for connection in tuple(self._open):
                shut(connection)
            self._idle.wait_for(lambda: not self._open, _END_SECONDS)


class Handler(BaseHTTPRequestHandler):
    """One connection of the agent."""

    server: _Server
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_SECONDS
    disable_nagle_algorithm = False  # unix sockets know no such option
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: calls are recorded."""

    def do_GET(self) -> None:
        """Tell the only model that there is; everything else is refused."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Forward a call of the model."""
        self._answer(self._post)

    def do_CONNECT(self) -> None:
        """Refuse: this is no proxy to anywhere."""
        self._answer(self._other)

    do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_CONNECT

    # -- answers -----------------------------------------------------------------------

    def _answer(self, act: Callable[[str], None]) -> None:
        began = time.monotonic()
        path = self.path.split("?")[0]
        try:
            if not self.server.gateway.admit(self.headers):
                raise Refused(401, "the token is wrong")
            act(path)
        except Refused as refused:
            self.close_connection = True  # a body may still be on its way
            self._tell(refused.status, str(refused))
            if not refused.recorded:
                texts = "", str(refused)
                self.server.gateway.record(
                    began, cut(path, 200), refused.status, NO_USAGE, texts
                )

    def _get(self, path: str) -> None:
        if path != "/v1/models":
            raise Refused(404, "there is nothing here but /v1/models")
        model = self.server.gateway.model or "default"
        row = {"id": model, "object": "model", "type": "model", "owned_by": "evo"}
        self.send(200, json.dumps({"object": "list", "data": [row]}).encode())

    def _other(self, path: str) -> None:
        raise Refused(405, "only POST of a model's call is possible here")

    def _post(self, path: str) -> None:
        route = ROUTES.get(path)
        if route is None:
            raise Refused(404, f"only {', '.join(ROUTES)} are possible here")
        gateway = self.server.gateway
        if gateway.closing.is_set() or len(gateway.calls) >= _MOST_CALLS:
            raise Refused(429, f"no more than {_MOST_CALLS} calls for one proposal")
        body, size = self._body()
        if not gateway.slots.acquire(blocking=False):
            raise Refused(429, f"more than {_MOST_AT_ONCE} calls at the same time")
        try:
            Forward(self, gateway, route, body, size).go()
        finally:
            gateway.slots.release()

    def _body(self) -> tuple[Body, int]:
        length = self.headers.get("content-length", "")
        if not length.isdecimal() or self.headers.get("transfer-encoding"):
            raise Refused(411, "a request needs a content-length")
        if int(length) > LARGEST_REQUEST:
            raise Refused(413, f"a request may have {LARGEST_REQUEST} bytes")
        if self.headers.get("content-encoding", "identity") != "identity":
            raise Refused(415, "a request may not be compressed")
        raw = self.rfile.read(int(length))
        try:
            body = json.loads(raw)
        except (ValueError, RecursionError):
            raise Refused(400, "the request is no JSON") from None
        if not isinstance(body, dict):
            raise Refused(400, "the request is no JSON object")
        return body, len(raw)

    def _tell(self, status: int, message: str) -> None:
        text = f"pytest-evo: {message}"
        error = {"type": "invalid_request_error", "code": "evo", "message": text}
        with contextlib.suppress(OSError):
            self.send(status, json.dumps({"type": "error", "error": error}).encode())

    def send(self, status: int, body: bytes, headers: Any = None) -> None:
        """Send a whole answer."""
        self.send_response(status)
        for name, value in (headers or {"content-type": "application/json"}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()


def shut(connection: socket.socket) -> None:
    """End a connection under whoever reads from it."""
    with contextlib.suppress(OSError):  # the other side was faster
        connection.shutdown(socket.SHUT_RDWR)
