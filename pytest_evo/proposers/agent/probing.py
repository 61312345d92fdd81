"""Asks an agent's provider once, so that a wrong key or model is known at the start."""

from __future__ import annotations

import http.client
import json
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from pytest_evo.errors import ModelProblem
from pytest_evo.hostile import one_line
from pytest_evo.proposers.agent.gateway_forward import connect
from pytest_evo.proposers.agent.gateway_forward import headers_for
from pytest_evo.proposers.agent.gateway_forward import Upstream
from pytest_evo.proposers.agent.gateway_wire import address_at
from pytest_evo.proposers.agent.gateway_wire import Counted
from pytest_evo.proposers.agent.gateway_wire import counted
from pytest_evo.proposers.agent.gateway_wire import Route
from pytest_evo.proposers.agent.gateway_wire import ROUTES
from pytest_evo.proposers.agent.gateway_wire import Wire

_SECONDS = 30.0
_LARGEST = 1_000_000
_SAY = "Reply with: ok"
_PATHS = {route.wire: route for route in ROUTES.values() if route.metered}
_WORDS = {401: "the key is wrong", 403: "the key is not allowed"}


def probe(upstream: Upstream, wire: Wire, model: str | None) -> tuple[Counted, str]:
    """Ask for a word, or for the list of models where no model is named.

    Returns:
        What it cost, and a remark if the provider is not ready, else an empty text.

    Raises:
        ModelProblem: it cannot be reached, or refuses the key or the model.
    """
    where, status, body = _ask(upstream, wire, model)
    text = upstream.scrub(body).decode("utf-8", "replace")
    said = one_line(_message(text), 300)
    known = status == 404 or (status == 400 and "model" in said.lower())
    if status in _WORDS:
        raise ModelProblem(
            f"The agent's model at {where}: {_WORDS[status]} ({status}: {said}). "
            "Correct the environment variable (agent_options.api_key_env), or api_base."
        )
    if known and model is not None:
        raise ModelProblem(
            f"The agent's model at {where}: {model!r} is refused ({status}: {said}). "
            "Correct model or api_base in [tool.pytest_evo.agent_options]."
        )
    if status >= 300 and not (known and model is None):
        return Counted(), f"the agent's model at {where} is not ready: {status} {said}"
    return counted(_data(text).get("usage"), wire) or Counted(), ""


def _ask(upstream: Upstream, wire: Wire, model: str | None) -> tuple[str, int, bytes]:
    route = _PATHS[wire] if model is not None else Route("/v1/models", wire)
    place = urlsplit(address_at(upstream.base, route))
    headers = headers_for(upstream, wire)
    if wire is Wire.MESSAGES:
        headers["anthropic-version"] = "2023-06-01"
    patient = Upstream(upstream.base, upstream.key, _SECONDS)
    try:
        with closing(connect(patient)) as provider:
            if model is None:
                provider.request("GET", place.path, headers=headers)
            else:
                data = json.dumps(_question(wire, model)).encode()
                provider.request("POST", place.path, data, headers)
            with provider.getresponse() as reply:
                return place.netloc, reply.status, reply.read(_LARGEST)
    except (OSError, http.client.HTTPException) as error:
        raise ModelProblem(
            f"The agent's model at {upstream.base} cannot be reached: "
            f"{one_line(str(error)) or type(error).__name__}. Correct api_base in "
            "[tool.pytest_evo.agent_options], or start the server."
        ) from error


def _question(wire: Wire, model: str) -> dict[str, Any]:
    if wire is Wire.RESPONSES:
        return {"model": model, "input": _SAY}
    body = {"model": model, "messages": [{"role": "user", "content": _SAY}]}
    # elsewhere a limit has different names in different models
    return {**body, "max_tokens": 16} if wire is Wire.MESSAGES else body


def _data(text: str) -> dict[str, Any]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return data if isinstance(data, dict) else {}


def _message(text: str) -> str:
    error = _data(text).get("error")
    found = error.get("message") if isinstance(error, dict) else error
    return str(found or text)
