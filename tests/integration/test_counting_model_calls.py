"""The calls of models that a suite makes through litellm and openai, in a real run."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from evolve_project import evolve
from evolve_project import run_directory
from llm_project import everything_kept

from pytest_evo.models import Usage
from pytest_evo.store.view import load_run
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import Fault
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ServedRequest
from pytest_evo.testing.model_server import unauthorized

PYPROJECT = """
[tool.pytest_evo]
artifact = "art"
scripted = "proposals.py"
noise = "none"
isolation = "{isolation}"
{setting}
"""
SUITE = """
import pytest
from litellm import completion
from openai import AsyncOpenAI, OpenAI
import asyncio, litellm

HERE = dict(api_base="{url}", api_key="sk-secret", max_retries=0)
ASK = dict(messages=[dict(role="user", content="a question")])

def test_litellm(evo_artifact):
    answer = completion(
        model="openai/known", **ASK, **HERE,
        input_cost_per_token=1e-6, output_cost_per_token=2e-6,
    )
    assert answer.choices[0].message.content == "an answer"

def test_streamed(evo_artifact):
    parts = list(completion(
        model="openai/known", stream=True, **ASK, **HERE,
        stream_options=dict(include_usage=True),
    ))
    text = "".join(p.choices[0].delta.content or "" for p in parts if p.choices)
    assert text == "an answer"

def test_openai(evo_artifact):
    with OpenAI(base_url="{url}", api_key="sk-secret", max_retries=0) as client:
        client.chat.completions.create(model="known", **ASK)
        raw = client.chat.completions.with_raw_response.create(model="known", **ASK)
        assert raw.parse().choices[0].message.content == "an answer"
        stream = client.chat.completions.create(
            model="known", stream=True, stream_options=dict(include_usage=True), **ASK
        )
        assert len(list(stream)) > 1
        client.responses.create(model="known", input="a question")

def test_awaited(evo_artifact):
    async def ask():
        async with AsyncOpenAI(
            base_url="{url}", api_key="sk-secret", max_retries=0
        ) as client:
            await client.chat.completions.create(model="known", **ASK)
            stream = await client.chat.completions.create(
                model="known", stream=True,
                stream_options=dict(include_usage=True), **ASK
            )
            assert len([part async for part in stream]) > 1
    asyncio.run(ask())

def test_refused(evo_artifact):
    assert (evo_artifact / "a.txt").read_text() == "0"
    with pytest.raises(litellm.AuthenticationError):
        completion(model="openai/refused", **ASK, **HERE)
"""
PROPOSALS = """
def propose(request):
    raise AssertionError("no iteration is made")
"""
ONCE = ("--budget-iterations=0",)  # the baseline only


def script(request: ServedRequest) -> Answer | Fault:
    if request.model == "refused":
        return unauthorized()
    return Answer("an answer")


def make(root: Path, url: str, isolation: str = "fork", setting: str = "") -> None:
    (root / "art").mkdir()
    (root / "art" / "a.txt").write_text("0")
    (root / "pyproject.toml").write_text(
        PYPROJECT.format(isolation=isolation, setting=setting)
    )
    (root / "proposals.py").write_text(PROPOSALS)
    (root / "test_suite.py").write_text(SUITE.format(url=url))


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(script) as running:
        yield running


def usage_by_test(root: Path) -> dict[str, Usage]:
    rollouts = load_run(run_directory(root)).rollouts["c0000"]
    return {one.case.partition("::")[2]: one.usage for one in rollouts}


def steps_of(root: Path, test: str) -> list[dict[str, Any]]:
    view = load_run(run_directory(root))
    (rollout,) = [one for one in view.all_rollouts if one.case.endswith(test)]
    detail = view.detail(rollout)
    assert detail is not None
    return [dict(step.data) for step in detail.steps if step.name == "model call"]


def test_calls_through_the_real_libraries_are_counted(
    pytester: pytest.Pytester, server: ModelServer
) -> None:
    root = pytester.path
    make(root, server.url)
    done = evolve(root, "-n0", *ONCE)
    used = usage_by_test(root)
    price = 100 * 1e-6 + 20 * 2e-6
    assert used["test_litellm"].usd == pytest.approx(price)
    assert (used["test_litellm"].calls, used["test_litellm"].tokens) == (1, 120)
    assert used["test_streamed"].tokens == 120
    assert (used["test_openai"].calls, used["test_openai"].tokens) == (4, 480)
    assert (used["test_awaited"].calls, used["test_awaited"].tokens) == (2, 240)
    refused = used["test_refused"]
    assert (refused.calls, refused.tokens, refused.usd) == (1, 0, 0.0)
    assert all(one.seconds > 0 for one in used.values())
    assert len(server.requests) == sum(one.calls for one in used.values()) == 9

    for test in used:
        for step in steps_of(root, test):
            assert "a question" in step["prompt"]
            assert (
                step["answer"] == "an answer"
                or "AuthenticationError" in (step["error"])
            )
    assert "sk-secret" not in everything_kept(root)

    assert "5 rollouts" in done.stdout
    (row,) = [one for one in done.stdout.splitlines() if one.startswith("suite ")]
    assert row.split()[:4] == ["suite", "9", "960", "0"]
    assert row.endswith("unknown price")


STAND_IN = """
    from types import SimpleNamespace as Plain

    def completion(model, messages):
        usage = Plain(prompt_tokens=30, completion_tokens=5)
        return Plain(choices=[], usage=usage, _hidden_params={"response_cost": 0.25})
    """
SMALL = """
    import pytest
    from litellm import completion

    @pytest.mark.parametrize("number", range(2))
    def test_small(evo_artifact, number):
        assert (evo_artifact / "a.txt").read_text() == "0"
        completion("m", [])
        completion("m", [])
    """


@pytest.mark.parametrize(
    ("isolation", "workers", "setting", "calls"),
    [
        ("fork", "-n1", "", 2),
        ("fresh", "-n0", "", 2),
        ("workspace", "-n0", "", 2),
        ("fork", "-n0", "count_model_calls = false", 0),
    ],
)
def test_calls_are_counted_wherever_rollouts_run(
    pytester: pytest.Pytester, isolation: str, workers: str, setting: str, calls: int
) -> None:
    root = pytester.path
    make(root, "", isolation, setting)
    (root / "test_suite.py").write_text(textwrap.dedent(SMALL))
    (root / "litellm").mkdir()  # a stand-in of the same shape
    (root / "litellm" / "__init__.py").write_text("from .main import completion\n")
    (root / "litellm" / "main.py").write_text(textwrap.dedent(STAND_IN))
    done = evolve(root, workers, *ONCE, "-Werror")
    used = usage_by_test(root)["test_small[0]"]
    assert (used.calls, used.tokens, used.usd) == (calls, 35 * calls, 0.25 * calls), (
        done.stdout
    )
    assert ("model calls by" in done.stdout) is bool(calls)
