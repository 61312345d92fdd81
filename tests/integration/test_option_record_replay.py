"""Runs whose model traffic is recorded over real HTTP, then replayed without it."""

from __future__ import annotations

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from evolve_project import comparable
from evolve_project import records
from evolve_project import run_directory
from llm_project import climb
from llm_project import evolve_with_model
from llm_project import KEY
from llm_project import make_llm_project
from test_diagnosis_runs import read

from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ScriptedCall
from pytest_evo.testing.model_server import ServedRequest
from pytest_evo.testing.model_server import server_error

pytestmark = pytest.mark.slow
FEW = ("--budget-iterations=3", "-n", "0")
SAYS_LITELLM = """
import sys

def pytest_unconfigure(config):
    print("litellm is", "loaded" if "litellm" in sys.modules else "not loaded")
"""


def plain(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A journal less its times; the arrival of rollouts depends on timing."""
    rows = json.loads(json.dumps(rows), object_hook=_timeless)
    rows = comparable(rows)
    return sorted(rows, key=lambda row: (row["kind"], json.dumps(row, sort_keys=True)))


def _timeless(row: dict[str, Any]) -> dict[str, Any]:
    volatile = {"at", "seconds", "seconds_before", "seq", "trace", "run"}
    return {name: value for name, value in row.items() if name not in volatile}


def settle(request: ServedRequest) -> Answer:
    """Edits as no other proposal does, and reads failures when asked to."""
    if not request.tools:
        return read(request)
    answer = climb(request)
    if answer.calls[0].name == "write_file":
        own = {"path": "own.txt", "content": f"the answer to {request.number}"}
        return Answer(calls=(*answer.calls, ScriptedCall("write_file", own)))
    if answer.calls[0].name == "read_file":
        return answer
    names = ("level.txt", "own.txt")
    entries = [{"file": name, "reason": "higher passes more"} for name in names]
    return Answer(calls=(ScriptedCall("finish", {"changelog": entries}),))


@pytest.mark.parametrize(
    ("options", "diagnoser"),
    [(("-n", "0"), "mara"), (("-n", "2", "--evo-slots=2"), "none")],
)
def test_replay_is_the_recorded_run_without_key_and_server(
    pytester: pytest.Pytester, options: tuple[str, ...], diagnoser: str
) -> None:
    with ModelServer(settle) as server:
        root = make_llm_project(pytester, server, diagnoser=diagnoser)
        (root / "conftest.py").write_text(SAYS_LITELLM)
        options = ("--budget-iterations=4", *options)
        done = evolve_with_model(root, *options, "--evo-record=run.jsonl")
        asked = len(server.requests)
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert "litellm is loaded" in text
    tape = root / "run.jsonl"
    lines = tape.read_text("utf-8").splitlines()
    assert len(lines) == 1 + asked - 1  # the question before the run is not on it
    assert f"{asked - 1} model calls are on {tape}" in text
    assert KEY not in tape.read_text("utf-8")
    assert str(root) not in tape.read_text("utf-8")
    assert stat.S_IMODE(tape.stat().st_mode) == 0o600
    recorded, first = plain(records(root)), run_directory(root)
    readings = [row["diagnoses"] for row in records(root, "diagnosis")]
    assert any(readings) is (diagnoser == "mara")
    assert records(root, "stop")[-1]["winner"] != "c0000"
    done = evolve_with_model(
        root, *options, "--evo-replay=run.jsonl", key=None, python=("-W", "error")
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    assert "litellm is not loaded" in text
    assert "were not asked for" not in text
    assert run_directory(root) != first
    assert plain(records(root)) == recorded
    assert tape.read_text("utf-8").splitlines() == lines


def test_changed_suite_is_told_by_what_differs(pytester: pytest.Pytester) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server)
        done = evolve_with_model(root, *FEW, "--evo-record=run.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr
    settings = root / "pyproject.toml"
    settings.write_text(settings.read_text().replace('"climb"', '"climb higher"'))
    done = evolve_with_model(root, *FEW, "--evo-replay=run.jsonl", key=None)
    text = done.stdout + done.stderr
    assert done.returncode == 4, text
    assert "what is not on the cassette" in text
    assert "climb higher" in text
    assert "--evo-record=" in text
    assert "Traceback" not in text


def test_shorter_replay_says_what_was_not_asked_for(pytester: pytest.Pytester) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server)
        evolve_with_model(root, *FEW, "--evo-record=run.jsonl")
    less = ("--budget-iterations=1", "-n", "0")
    done = evolve_with_model(root, *less, "--evo-replay=run.jsonl", key=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "were not asked for" in done.stdout


def test_resumed_run_goes_on_recording_and_replays_whole(
    pytester: pytest.Pytester,
) -> None:
    broken = [True]

    def script(request: ServedRequest):
        return server_error() if request.number >= 8 and broken else climb(request)

    options = ("--budget-iterations=5", "-n", "0")
    with ModelServer(script) as server:
        root = make_llm_project(pytester, server, "retries = 1")
        done = evolve_with_model(root, *options, "--evo-record=run.jsonl")
        assert done.returncode == 17, done.stdout + done.stderr
        assert "goes on with --evo-resume=last" in done.stdout
        broken.clear()
        done = evolve_with_model(root, "--evo-resume=last", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    recorded, first = plain(records(root)), run_directory(root)
    assert len(records(root, "stop")) == 2
    # what failed fails again, and the resumed replay goes on with its cassette
    done = evolve_with_model(root, *options, "--evo-replay=run.jsonl", key=None)
    assert done.returncode == 17, done.stdout + done.stderr
    done = evolve_with_model(root, "--evo-resume=last", "-n", "0", key=None)
    assert done.returncode == 0, done.stdout + done.stderr
    assert run_directory(root) != first
    assert plain(records(root)) == recorded


def test_run_that_never_began_leaves_no_cassette(pytester: pytest.Pytester) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server)
        less = ("--budget-rollouts=3", "-n", "0")  # not even the baseline
        done = evolve_with_model(root, *less, "--evo-record=run.jsonl")
        assert done.returncode == 4, done.stdout + done.stderr
        assert not (root / "run.jsonl").exists()
        done = evolve_with_model(root, *FEW, "--evo-record=run.jsonl")
    assert done.returncode == 0, done.stdout + done.stderr


# -- bad input -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--evo-record=old.jsonl",), "not overwritten"),
        (("--evo-record=art/run.jsonl",), "inside the artifact"),
        (("--evo-record=no/such/run.jsonl",), "mkdir -p"),
        (("--evo-record=a.jsonl", "--evo-replay=b.jsonl"), "exclude each other"),
        (("--evo-replay=none.jsonl",), "no such cassette"),
        (("--evo-replay=old.jsonl",), "no cassette of pytest-evo"),
        (("--evo-replay=seeded.jsonl",), "Type --evo-seed=7"),
        (("--evo-replay=slotted.jsonl",), "Type --evo-slots=3"),
        (
            ("--evo-replay=good.jsonl", "--evo-proposer=agent", "--evo-agent=claude"),
            "scripted",
        ),
        (
            ("--evo-record=new.jsonl", "--evo-proposer=scripted"),
            "no model of pytest-evo is asked",
        ),
    ],
)
def test_what_cannot_work_stops_before_anything_is_spent(
    pytester: pytest.Pytester, options: tuple[str, ...], said: str
) -> None:
    def header(**other: int) -> str:
        fields = {"kind": "cassette", "version": 1, "run": "r", "made_by": "0.1.0"}
        return json.dumps({**fields, "seed": 0, "slots": 1, **other}) + "\n"

    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server)
        if "--evo-proposer=scripted" in options:
            settings = root / "pyproject.toml"
            text = settings.read_text()
            settings.write_text(text.replace("[tool.pytest_evo]\n", SCRIPTED, 1))
        (root / "old.jsonl").write_text("precious\n")
        (root / "good.jsonl").write_text(header())
        (root / "seeded.jsonl").write_text(header(seed=7))
        (root / "slotted.jsonl").write_text(header(slots=3))
        done = evolve_with_model(root, *FEW, *options)
        assert not server.requests
    text = done.stdout + done.stderr
    assert done.returncode == 4, text
    assert said in text
    assert (root / "old.jsonl").read_text() == "precious\n"
    assert not (root / "new.jsonl").exists()
    assert not (root / "executed.log").exists()
    assert not Path(root, ".evo", "runs").exists()
    assert "Traceback" not in text


SCRIPTED = '[tool.pytest_evo]\nscripted = "proposals.py"\n'
