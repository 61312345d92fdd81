"""What goes wrong between a client and a model, as replies of a scripted server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from typing import TypeAlias

from pytest_evo.testing.model_wire import Answer


@dataclass(frozen=True, slots=True)
class Fault:
    """A reply that is no answer.

    ``raw`` is a whole body sent as it is; else an error in the form that was asked.
    ``hang`` seconds pass first; ``drop`` closes the connection without a byte, ``cut``
    after so many bytes of the body (of ``answer``, where there is one).
    """

    status: int = 200
    code: str = "server_error"
    message: str = "the server had an error"
    headers: Mapping[str, str] = field(default_factory=dict)
    raw: str | None = None
    type: str = "application/json"
    hang: float = 0.0
    drop: bool = False
    cut: int | None = None
    answer: Answer | None = None


Reply: TypeAlias = Answer | Fault


def unauthorized(key: str = "") -> Fault:
    """401; the message repeats the key, as some providers do."""
    return Fault(401, "invalid_api_key", f"Incorrect API key provided: {key}")


def unknown_model(model: str = "?") -> Fault:
    """404 for a model that is not there."""
    text = f"The model {model!r} does not exist or you do not have access to it."
    return Fault(404, "model_not_found", text)


def rate_limited(retry_after: str | None = None) -> Fault:
    """429, with or without ``Retry-After``."""
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return Fault(429, "rate_limit_exceeded", "Rate limit reached", headers)


def server_error(status: int = 500) -> Fault:
    """5xx."""
    return Fault(status)


def context_overflow(limit: int = 8192) -> Fault:
    """400 for a request that is too long."""
    text = f"This model's maximum context length is {limit} tokens."
    return Fault(400, "context_length_exceeded", text)


def hang(seconds: float, answer: Answer | None = None) -> Fault:
    """Nothing for so many seconds, then an answer."""
    return Fault(hang=seconds, answer=answer or Answer("late"))


def dropped() -> Fault:
    """The connection ends without a byte."""
    return Fault(drop=True)


def truncated(answer: Answer, size: int = 40) -> Fault:
    """The body ends in the middle."""
    return Fault(cut=size, answer=answer)


def garbage(text: str = "<html>Welcome to the portal</html>") -> Fault:
    """A body that is not JSON, with status 200."""
    return Fault(raw=text, type="text/html")
