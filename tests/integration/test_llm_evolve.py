"""Whole runs whose proposer is a scripted model behind real HTTP."""

from __future__ import annotations

from pathlib import Path

import pytest
from evolve_project import executed
from evolve_project import records
from llm_project import climb
from llm_project import everything_kept
from llm_project import evolve_with_model
from llm_project import KEY
from llm_project import make_llm_project
from llm_project import set_options
from llm_project import TOKENS

from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ServedRequest
from pytest_evo.testing.model_server import server_error
from pytest_evo.testing.model_server import unauthorized
from pytest_evo.testing.model_server import unknown_model

pytestmark = pytest.mark.slow
FEW = ("--budget-iterations=3", "-n", "0")


def spent(root: Path) -> int:
    """Tokens in the journal."""
    rows = [*records(root, "proposal"), *records(root, "diagnosis")]
    return sum(
        row["usage"]["input_tokens"] + row["usage"]["output_tokens"] for row in rows
    )


@pytest.mark.parametrize("workers", ["0", "2"])
def test_model_wins_and_every_call_is_charged(
    pytester: pytest.Pytester, workers: str
) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server)
        done = evolve_with_model(root, "--budget-iterations=4", "-n", workers)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert not server.problems
    assert records(root, "stop")[-1]["winner"] != "c0000"
    assert spent(root) == TOKENS * len(server.requests)
    calls = sum(row["usage"]["calls"] for row in records(root, "proposal"))
    assert calls == len(server.requests)
    assert {request.key for request in server.requests} == {KEY}
    proposal = records(root, "proposal")[0]
    assert proposal["changelog"][0]["reason"] == "higher passes more"
    assert proposal["usage"]["usd"] is None  # unknown, not free
    talks = list((root / ".evo").rglob("proposer/*/talk.md"))
    assert len(talks) == len(records(root, "proposal"))


def test_anthropic_form_works_too(pytester: pytest.Pytester) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server, model="anthropic/claude-scripted")
        done = evolve_with_model(root, *FEW)
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(root, "stop")[-1]["winner"] != "c0000"
    assert {request.form for request in server.requests} == {"messages"}


def test_run_survives_warnings_as_errors(pytester: pytest.Pytester) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server)
        done = evolve_with_model(root, *FEW, "-W", "error", python=("-W", "error"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(root, "stop")[-1]["winner"] != "c0000"
    assert "litellm" not in done.stderr.lower(), done.stderr
    assert "ResourceWarning" not in done.stderr, done.stderr


# -- bad input -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (unauthorized(KEY), "refuses the key"),
        (unknown_model("scripted"), "no such model"),
        (server_error(), "no answer after"),
    ],
)
def test_model_that_cannot_be_asked_stops_before_any_rollout(
    pytester: pytest.Pytester, reply, said: str
) -> None:
    with ModelServer([reply]) as server:
        root = make_llm_project(pytester, server, "retries = 1")
        done = evolve_with_model(root, *FEW)
    text = done.stdout + done.stderr
    assert done.returncode == 4, text
    assert said in text
    assert executed(root) == 0
    assert not (root / ".evo" / "runs").exists()
    assert KEY not in text + everything_kept(root)
    assert "Traceback" not in text


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("nosuch/thing", "PROVIDER/NAME"),
        ("openai/gpt-5-mini", "export OPENAI_API_KEY=KEY"),
    ],
)
def test_wrong_name_and_missing_key_need_no_network(
    pytester: pytest.Pytester, model: str, said: str
) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server)
        table = f'[tool.pytest_evo]\nartifact = "art"\nmodel = "{model}"\n'
        (root / "pyproject.toml").write_text(table)
        done = evolve_with_model(root, *FEW, key=None)
    text = done.stdout + done.stderr
    assert done.returncode == 4, text
    assert said in text
    assert executed(root) == 0
    assert "Traceback" not in text


def test_money_needs_a_price(pytester: pytest.Pytester) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server)
        done = evolve_with_model(root, *FEW, "--budget-usd=1")
        text = done.stdout + done.stderr
        assert done.returncode == 4, text
        assert "input_usd" in text
        assert executed(root) == 0
        set_options(root, server, "input_usd = 1000\noutput_usd = 1000")
        done = evolve_with_model(root, *FEW, "--budget-usd=1")
    assert done.returncode == 0, done.stdout + done.stderr
    cost = sum(row["usage"]["usd"] for row in records(root, "proposal"))
    assert 0.5 < cost <= 1.0
    assert "budget" in records(root, "stop")[-1]["reason"]


# -- limits ----------------------------------------------------------------------------


@pytest.mark.parametrize("limit", [3_000, 15_000])
def test_tokens_are_asked_before_each_call(
    pytester: pytest.Pytester, limit: int
) -> None:
    def truthful(request: ServedRequest) -> Answer:
        answer = climb(request)
        return Answer(
            answer.text, answer.calls, input_tokens=request.size // 4, output_tokens=99
        )

    with ModelServer(truthful) as server:
        root = make_llm_project(pytester, server)
        done = evolve_with_model(
            root, f"--budget-tokens={limit}", "--budget-rollouts=2000", "-n", "0"
        )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    used = sum(request.size // 4 + 99 for request in server.requests)
    assert used <= limit
    assert records(root, "stop")[-1]["reason"] == "budget: tokens"
    if limit == 3_000:
        assert len(server.requests) == 1  # the question before the run
        assert "--budget-tokens" in records(root, "iteration")[-1]["reason"]
    else:
        assert spent(root) == used


def test_model_that_falls_silent_ends_a_run_that_can_go_on(
    pytester: pytest.Pytester,
) -> None:
    broken = [True]

    def script(request: ServedRequest):
        return server_error() if request.number >= 8 and broken else climb(request)

    with ModelServer(script) as server:
        root = make_llm_project(pytester, server, "retries = 1")
        done = evolve_with_model(root, "--budget-iterations=6", "-n", "0")
        text = done.stdout + done.stderr
        assert done.returncode == 17, text
        assert "no answer after 2 tries" in text
        assert records(root, "stop")[-1]["complete"] is False
        broken.clear()
        done = evolve_with_model(root, "--evo-resume=last", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(root, "stop")[-1]["complete"] is True
    assert records(root, "stop")[-1]["winner"] != "c0000"
    calls = sum(row["usage"]["calls"] for row in records(root, "proposal"))
    assert calls == len(server.requests)


# -- what must not be seen -------------------------------------------------------------


def test_key_is_kept_from_rollouts_and_from_everything_kept(
    pytester: pytest.Pytester,
) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server)
        spy = (
            "import os\n"
            "def test_spy(evo_artifact):\n"
            "    print(dict(os.environ))\n"
            "    (evo_artifact / 'level.txt').read_text()\n"
            "    assert 'OPENAI_API_KEY' not in os.environ\n"
        )
        (root / "test_spy.py").write_text(spy)
        done = evolve_with_model(root, *FEW)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    outcomes = {r["outcome"] for r in records(root, "rollout") if "spy" in r["case"]}
    assert outcomes == {"passed"}
    assert "rollouts do not see OPENAI_API_KEY" in text
    assert KEY not in text + everything_kept(root)
    assert all(KEY not in request.text for request in server.requests)


def test_shared_key_reaches_rollouts(pytester: pytest.Pytester) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server, "share_key = true")
        spy = (
            "import os\n"
            "def test_spy(evo_artifact):\n"
            "    (evo_artifact / 'level.txt').read_text()\n"
            f"    assert os.environ['OPENAI_API_KEY'] == {KEY!r}\n"
        )
        (root / "test_spy.py").write_text(spy)
        done = evolve_with_model(root, *FEW)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {r["outcome"] for r in records(root, "rollout") if "spy" in r["case"]}
    assert outcomes == {"passed"}
    assert KEY not in done.stdout + done.stderr


def test_held_out_cases_never_reach_the_model(pytester: pytest.Pytester) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server, count=18)
        with (root / "pyproject.toml").open("a") as settings:
            settings.write(
                "\n[tool.pytest_evo.split]\n"
                'train = ["*[[][0-5]]"]\nval = ["*[[]1?]"]\ntest = ["*[[][6-9]]"]\n'
            )
        done = evolve_with_model(root, *FEW)
    assert done.returncode == 0, done.stdout + done.stderr
    told = "\n".join(request.text for request in server.requests)
    assert "test_level.py::test_level[0]" in told
    for number in range(6, 18):
        assert f"test_level[{number}]" not in told
