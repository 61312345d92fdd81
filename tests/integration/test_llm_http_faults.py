"""What can go wrong between the controller and a provider, and what a run does then."""

from __future__ import annotations

import threading
import time

import pytest
from llm_world import FINISH
from llm_world import LlmWorld
from llm_world import PLEASE
from llm_world import START
from llm_world import WRITE

from pytest_evo.engine.softstop import Interrupted
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.testing.model_server import context_overflow
from pytest_evo.testing.model_server import dropped
from pytest_evo.testing.model_server import Fault
from pytest_evo.testing.model_server import hang
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import rate_limited
from pytest_evo.testing.model_server import server_error
from pytest_evo.testing.model_server import truncated
from pytest_evo.testing.model_server import unauthorized
from pytest_evo.testing.model_server import unknown_model

KEY = "sk-test-Canary0123456789abcdefghij"
PASSING = {
    "429_seconds": [rate_limited("1")],
    "429_bare": [rate_limited()],
    "429_negative": [rate_limited("-5")],
    "429_nonsense_header": [rate_limited("soon")],
    "429_http_date": [rate_limited("Wed, 21 Oct 2015 07:28:00 GMT")],
    "500_three_times": [server_error()] * 3,
    "502_html": [Fault(502, raw="<h1>Bad gateway</h1>", type="text/html")],
    "529_overloaded": [server_error(529)],
    "dropped": [dropped()] * 2,
    "body_cut": [truncated(WRITE)],
    "slow": [hang(60)],
    "400_context_overflow": [context_overflow()],
    "400_unsupported_parameter": [
        Fault(400, "invalid_request_error", "temperature is not supported")
    ],
}
ENDING = {
    "401": (unauthorized(KEY), ModelProblem),
    "404_model": (unknown_model(), ModelProblem),
    "quota_spent": (
        Fault(429, "insufficient_quota", "you exceeded your current quota"),
        ModelProblem,
    ),
    "500_for_ever": (server_error(), ModelFailed),
    "429_for_a_day": (rate_limited("86400"), ModelFailed),
}


@pytest.mark.parametrize("name", PASSING)
def test_passing_fault_is_overcome(tmp_path, name: str) -> None:
    faults = PASSING[name]
    with ModelServer([*faults, WRITE, FINISH]) as server:
        world = LlmWorld(tmp_path, server, temperature=0.3, timeout=1)
        end = world.run()
    assert end.stop.complete
    assert world.files(end.winner.candidate.tree)["prompt.txt"].decode() == PLEASE
    assert world.prompts == {START, PLEASE}
    assert world.usage.calls == len(server.requests)
    first, second = server.requests[:2]
    if name == "429_seconds":
        assert second.at - first.at >= 1
    if name == "400_context_overflow":
        assert second.body["max_tokens"] < first.body["max_tokens"]
    if name == "400_unsupported_parameter":
        assert "temperature" not in second.body


@pytest.mark.parametrize("name", ENDING)
def test_lasting_fault_ends_the_run_soon_and_resumable(tmp_path, name: str) -> None:
    fault, kind = ENDING[name]
    began = time.monotonic()
    with ModelServer([fault]) as server:
        world = LlmWorld(tmp_path, server, retries=3)
        with pytest.raises(kind) as caught:
            world.run()
    assert time.monotonic() - began < 30
    assert len(server.requests) <= 8
    assert world.usage.calls == len(server.requests)
    assert world.loop.state.population  # what was found is there
    assert KEY not in str(caught.value)
    assert world.prompts == {START}


def test_stop_does_not_wait_for_a_wait(tmp_path) -> None:
    with ModelServer([rate_limited("25")]) as server:
        world = LlmWorld(tmp_path, server)

        def stop() -> None:
            for _ in range(2_000):
                if server.requests:
                    break
                time.sleep(0.01)
            world.loop.interrupt()

        thread = threading.Thread(target=stop, daemon=True)
        thread.start()
        began = time.monotonic()
        with pytest.raises(Interrupted):
            world.run()
        thread.join()
    assert time.monotonic() - began < 20
