"""Starts the model's servers once a session, and asks them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
import server
from prompts import build_request
from tasks import Task

ROOT = Path(__file__).parents[1]
MOST_SERVERS = 2


def pytest_sessionstart(session: pytest.Session) -> None:
    config = session.config
    # workers, and processes started for one rollout, have the addresses already
    if os.environ.get(server.ADDRESSES) or config.option.collectonly:
        return
    workers = getattr(config.option, "numprocesses", None) or 1
    try:
        model = server.model_file()
        servers = [
            server.Server(model, number) for number in range(min(workers, MOST_SERVERS))
        ]
        for process in servers:
            config.add_cleanup(process.stop)
        addresses = [process.address() for process in servers]
    except server.LocalModelProblem as problem:
        raise pytest.UsageError(str(problem)) from None
    os.environ[server.ADDRESSES] = " ".join(addresses)
    os.environ["LOCAL_MODEL"] = server.model_name()
    config.add_cleanup(lambda: os.environ.pop(server.ADDRESSES))


@pytest.fixture
def ask(evo_trace, evo_usage) -> Callable[[Task, str], str]:
    """Ask the model about a text, with the prompt as it is or the candidate's."""

    def answer(task: Task, text: str) -> str:
        # Two artifacts: a candidate's directory is that of the chosen target, and only
        # its cases are run. In a plain run each task has its own.
        chosen = os.environ.get("PYTEST_EVO_ARTIFACT")
        directory = Path(chosen) if chosen else ROOT / task.name
        body = build_request(directory, task, text)
        reply = server.complete(server.own_address(), body)
        evo_trace("answer", prompt=body["prompt"], said=reply.text)
        evo_usage(
            input_tokens=reply.input_tokens,
            cached_tokens=reply.cached_tokens,
            output_tokens=reply.output_tokens,
            usd=0.0,
        )
        return reply.text

    return answer
