"""One call of an agent: to the provider, with the real key, and back."""

from __future__ import annotations

import contextlib
import http.client
import json
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage
from pytest_evo.proposers.agent.gateway_meter import Spent
from pytest_evo.proposers.agent.gateway_wire import address_at
from pytest_evo.proposers.agent.gateway_wire import Body
from pytest_evo.proposers.agent.gateway_wire import Counted
from pytest_evo.proposers.agent.gateway_wire import counted
from pytest_evo.proposers.agent.gateway_wire import prepare
from pytest_evo.proposers.agent.gateway_wire import Route
from pytest_evo.proposers.agent.gateway_wire import Stream
from pytest_evo.proposers.agent.gateway_wire import wants_usage
from pytest_evo.proposers.agent.gateway_wire import Wire
from pytest_evo.spending import MAYBE_BILLED

if TYPE_CHECKING:
    from pytest_evo.proposers.agent.gateway import Gateway
    from pytest_evo.proposers.agent.gateway import Handler

KEPT = 20_000
"""Characters of a request or a reply in the transcript."""
LARGEST_REPLY = 64_000_000
_CHUNK = 1 << 16
_PASSED_ON = ("anthropic-version", "anthropic-beta", "openai-beta")
_PASSED_BACK = ("retry-after", "request-id", "x-request-id")


@dataclass(frozen=True, slots=True)
class Upstream:
    """The provider: one address, one key (None: it needs none), patience in seconds."""

    base: str
    key: str | None
    seconds: float = 600.0

    def scrub(self, data: bytes) -> bytes:
        """Bytes without the key, should a provider repeat it."""
        if self.key and self.key.encode() in data:
            return data.replace(self.key.encode(), b"[redacted]")
        return data


@dataclass(frozen=True, slots=True)
class Call:
    """One request for the transcript."""

    at: float
    path: str
    status: int
    seconds: float
    usage: Usage = NO_USAGE
    request: str = ""
    reply: str = ""


class Refused(Exception):
    """A request is answered by the gateway itself, with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.recorded = False


class Forward:
    """One call: to the provider and back."""

    def __init__(
        self, handler: Handler, gateway: Gateway, route: Route, body: Body, size: int
    ) -> None:
        self._handler = handler
        self._gateway = gateway
        self._route = route
        self._body = body
        self._size = size
        self._began = time.monotonic()
        self._said = bytearray()  # the start of the reply, for the transcript
        self._answered = 0
        self._tokens: Counted | None = None
        self._need = 0
        self._status = 0
        self._sent = False
        self._whole = False  # nothing of the reply is missing
        self._usage: Usage | None = None

    def go(self) -> None:
        """Forward, count, record.

        Raises:
            Refused: the budget is used up, or the provider cannot be reached.
        """
        left = None
        if self._route.metered:
            try:
                self._need, left = self._gateway.allowance.reserve(
                    self._size, _most(self._body)
                )
            except Spent as spent:
                raise Refused(400, str(spent)) from None
        sent = prepare(self._body, self._route, self._gateway.model, left)
        data = json.dumps(sent).encode()
        try:
            with self._gateway.holding(connect(self._gateway.upstream)) as provider:
                reply = self._ask(provider, data)
                with reply:
                    self._status = reply.status
                    self._pass(reply)
        except Refused as refused:
            refused.recorded = True
            raise
        finally:
            self._settle()
            texts = data.decode(), bytes(self._said).decode("utf-8", "replace")
            self._gateway.record(
                self._began,
                self._route.path,
                self._status or 502,
                self._usage or NO_USAGE,
                texts,
            )

    def _settle(self) -> None:
        """Count the call, once, before the agent can know that it is over."""
        if self._usage is not None or not self._route.metered:
            return
        # what went out and was not refused may be on the bill, whatever came back
        refused = self._status >= 300 and self._status not in MAYBE_BILLED
        billed = self._sent and not refused
        took = time.monotonic() - self._began
        self._usage = self._gateway.allowance.settle(
            self._need,
            self._tokens,
            took,
            max(1, self._answered) if billed else 0,
            _most(self._body),
            whole=self._whole and self._status not in MAYBE_BILLED,
        )

    def _ask(
        self, upstream: http.client.HTTPConnection, data: bytes
    ) -> http.client.HTTPResponse:
        provider = self._gateway.upstream
        where = urlsplit(address_at(provider.base, self._route))
        headers = headers_for(provider, self._route.wire)
        for name in _PASSED_ON:
            if value := self._handler.headers.get(name):
                headers[name] = value
        try:
            upstream.connect()
            self._sent = True
            upstream.request("POST", where.path, data, headers)
            reply = upstream.getresponse()
        except (OSError, http.client.HTTPException) as error:
            raise Refused(
                502, f"{where.netloc} cannot be reached: {error or type(error)}"
            ) from None
        if reply.status in range(300, 400):
            reply.close()
            raise Refused(502, f"{where.netloc} redirects elsewhere")
        return reply

    def _pass(self, reply: http.client.HTTPResponse) -> None:
        kind = reply.headers.get("content-type", "application/json")
        headers = {"content-type": kind}
        for name in _PASSED_BACK:
            if value := reply.headers.get(name):
                headers[name] = value
        if kind.startswith("text/event-stream"):
            self._pass_stream(reply, headers)
            return
        data = self._read(reply)
        self._whole = not reply.length  # it is read short without an error
        self._keep(data)
        with contextlib.suppress(ValueError, RecursionError):  # it is no JSON
            body = json.loads(data)
            usage = body.get("usage") if isinstance(body, dict) else None
            self._tokens = counted(usage, self._route.wire)
        self._settle()
        self._handler.send(reply.status, data, headers)

    def _read(self, reply: http.client.HTTPResponse) -> bytes:
        try:
            data = reply.read(LARGEST_REPLY + 1)
        except (OSError, http.client.HTTPException) as error:
            raise Refused(502, f"the reply broke off: {error}") from None
        if len(data) > LARGEST_REPLY:
            raise Refused(502, f"the reply has more than {LARGEST_REPLY} bytes")
        return self._gateway.upstream.scrub(data)

    def _pass_stream(
        self, reply: http.client.HTTPResponse, headers: dict[str, str]
    ) -> None:
        stream = Stream(
            self._route.wire,
            hide_usage=not wants_usage(self._body),
            scrub=self._gateway.upstream.scrub,
        )
        handler = self._handler
        handler.send_response(reply.status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        whole = False
        # a client that went away, a provider that broke off, or too much: what was
        # counted until then counts
        with contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            while data := reply.read1(_CHUNK):
                self._write(stream.feed(data))
                if self._answered > LARGEST_REPLY or self._gateway.closing.is_set():
                    raise ValueError("too much")
            self._write(stream.rest())
            whole = not reply.length  # all that was announced has come
            self._tokens = stream.usage
            self._whole = whole
            self._settle()
            if whole:
                handler.wfile.write(b"0\r\n\r\n")
                handler.wfile.flush()
        handler.close_connection = handler.close_connection or not whole
        self._tokens = stream.usage

    def _write(self, data: bytes) -> None:
        if data:
            self._keep(data)
            self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            self._handler.wfile.flush()

    def _keep(self, data: bytes) -> None:
        self._answered += len(data)
        if len(self._said) < 2 * KEPT:
            self._said += data[: 2 * KEPT]


def _most(body: Body) -> int:
    """How long a reply may get, as far as the request says."""
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens")
    given = (body.get(name) for name in names)
    return next((n for n in given if isinstance(n, int) and 0 < n < 10**7), 0)


def headers_for(upstream: Upstream, wire: Wire) -> dict[str, str]:
    """The headers of a request of ours, with the real key."""
    headers = {"content-type": "application/json", "accept-encoding": "identity"}
    headers["user-agent"] = "pytest-evo"
    if upstream.key is not None and wire is Wire.MESSAGES:
        headers["x-api-key"] = upstream.key
    elif upstream.key is not None:
        headers["authorization"] = f"Bearer {upstream.key}"
    return headers


def connect(upstream: Upstream) -> http.client.HTTPConnection:
    """A connection to the provider; nothing is sent yet."""
    where = urlsplit(upstream.base)
    host, port = where.hostname or "", where.port
    if where.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(
            host, port, timeout=upstream.seconds, context=context
        )
    return http.client.HTTPConnection(host, port, timeout=upstream.seconds)
