"""A model that deletes, empties, floods and swaps; and what it is shown."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path
from urllib.parse import quote

import pytest
from evolve_project import environment
from evolve_project import evolve_command
from evolve_project import records
from llm_project import climb
from llm_project import everything_kept
from llm_project import evolve_with_model
from llm_project import make_llm_project
from llm_world import LlmWorld
from llm_world import START

from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ScriptedCall
from pytest_evo.testing.model_server import ServedRequest

slow = pytest.mark.slow


def proposing(*calls: ScriptedCall, files: tuple[str, ...]) -> list[Answer]:
    """These calls, and an end that gives reasons for the files."""
    entries = [{"file": name, "reason": "cleaning up"} for name in files]
    end = ScriptedCall("finish", {"changelog": entries})
    return [Answer(calls=calls), Answer(calls=(end,))]


def delete(path: str) -> ScriptedCall:
    return ScriptedCall("delete_file", {"path": path})


def write(path: str, content: str) -> ScriptedCall:
    return ScriptedCall("write_file", {"path": path, "content": content})


DESTRUCTIVE = {
    "deletes_all": (delete("prompt.txt"),),
    "empties": (write("prompt.txt", ""),),
    "file_becomes_folder": (delete("prompt.txt"), write("prompt.txt/inner.txt", "x")),
    "moves_away": (
        ScriptedCall("move_file", {"path": "prompt.txt", "target": "old/p.txt"}),
    ),
}


@pytest.mark.parametrize("name", DESTRUCTIVE)
def test_destructive_edit_is_scored_as_what_it_is(tmp_path: Path, name: str) -> None:
    calls = DESTRUCTIVE[name]
    files = ("prompt.txt", "prompt.txt/inner.txt", "old/p.txt")
    with ModelServer(proposing(*calls, files=files)) as server:
        world = LlmWorld(tmp_path, server, iterations=1)
        end = world.run()
    assert end.stop.complete
    assert end.winner.candidate.id == "c0000"
    assert (tmp_path / "project" / "prompt.txt").read_text() == START
    made = [proposal for proposal in world.proposals if proposal.tree is not None]
    assert made
    assert world.prompts == {START, ""}


@pytest.mark.parametrize("size", [6_000_000, 4_900_000], ids=["one", "together"])
def test_huge_files_are_refused_by_a_stated_limit(tmp_path: Path, size: int) -> None:
    calls = (write("big.txt", "x" * size), write("bigger.txt", "x" * size))
    with ModelServer(proposing(*calls, files=("big.txt", "bigger.txt"))) as server:
        world = LlmWorld(tmp_path, server, iterations=1)
        world.run()
    assert world.prompts == {START}
    told = "\n".join(text for request in server.requests for text in request.results)
    assert "5000000" in told


# -- what a model is shown -------------------------------------------------------------

CANARIES = {
    "CASE_API_KEY": "sk-case-AAAAcanary0123456789abcdef",
    "GITHUB_TOKEN": "ghp_caseBBBBcanary0123456789abcdefABCD",
    "AWS_ACCESS_KEY_ID": "AKIACASECANARY000000",
    "SLACK_TOKEN": "xoxb-case-canary-0123456789",
    "OPENAI_API_KEY": "sk-case-AAAAcanary0123456789abcdef",
    "PRIVATE_KEY": "-----BEGIN CASE PRIVATE KEY-----",
}
TELLTALE = """
import base64
import os
import urllib.parse

import pytest


@pytest.mark.parametrize("n", range(3))
def test_prints_environment(n, evo_artifact):
    print(dict(os.environ))
    for value in os.environ.values():
        print(base64.b64encode(value.encode()).decode())
        print(urllib.parse.quote(value, safe=""))
    secret = (evo_artifact / ".env").read_text().split("=", 1)[1]
    raise ConnectionError(f"cannot reach https://user:{secret}@db.example/{os.environ}")
"""
HIDDEN = "hunter2-of-the-artifact"


@slow
def test_secrets_reach_neither_model_nor_reports(pytester: pytest.Pytester) -> None:
    def script(request: ServedRequest) -> Answer:
        if not request.tools:
            return Answer("ok")
        if request.results:
            return climb(request)
        looks = (
            ScriptedCall("read_file", {"path": "level.txt"}),
            ScriptedCall("read_file", {"path": ".env"}),
            ScriptedCall("search_files", {"text": "e"}),
            ScriptedCall("search_files", {"text": "e", "folder": "evidence"}),
        )
        return Answer(calls=looks)

    with ModelServer(script) as server:
        root = make_llm_project(pytester, server)
        (root / "test_tell.py").write_text(TELLTALE)
        (root / "art" / ".env").write_text(f"DB_PASSWORD={HIDDEN}\n")
        done = subprocess.run(
            evolve_command("--budget-iterations=2", "-n", "0", "--showlocals"),
            cwd=root,
            capture_output=True,
            text=True,
            timeout=120,
            env={**environment(), **CANARIES},
            check=False,
        )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text
    told = "\n".join(request.text for request in server.requests)
    assert "redacted" in told
    kept = everything_kept_but_blobs(root)
    for value in (*CANARIES.values(), HIDDEN):
        forms = [value, quote(value, safe="")]
        forms.append(base64.b64encode(value.encode()).decode().rstrip("="))
        for form in forms:
            assert form not in told
            assert form not in text
            assert form not in kept
    assert ".env in the artifact may hold secrets" in text


def everything_kept_but_blobs(root: Path) -> str:
    """Texts of a run, less the versions of the artifact, which have to be complete."""
    texts = []
    for folder in (".evo", "evo-reports"):
        for place, _, files in os.walk(root / folder):
            if {"blobs", "artifact"} & set(Path(place).parts):
                continue
            for name in files:
                texts.append(Path(place, name).read_bytes().decode(errors="replace"))
    return "\n".join(texts)


MANY = """
import pytest


@pytest.mark.parametrize("n", range(240))
def test_case(n, evo_artifact):
    kind = n % 5
    print(f"trace of case {n}: " + "detail " * 2000)
    need = f"rule-{kind}"
    rules = (evo_artifact / "level.txt").read_text()
    assert need in rules, f"case {n} needs {need}; " + "because " * 500
"""


@slow
def test_hundreds_of_long_failures_fit_into_one_request(
    pytester: pytest.Pytester,
) -> None:
    with ModelServer(climb) as server:
        root = make_llm_project(pytester, server, "prompt_bytes = 40000")
        (root / "test_level.py").write_text(MANY)
        done = evolve_with_model(
            root, "--budget-iterations=1", "--evo-batch=60", "-n", "0", "--tb=short"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(root, "proposal")
    assert max(request.size for request in server.requests) <= 40_000
    first = next(request.text for request in server.requests if request.tools)
    assert "are left out" in first
    assert {kind for kind in range(5) if f"needs rule-{kind}" in first} == {*range(5)}
    batch = records(root, "iteration")[0]["batch"]
    shown = [case for case in batch if f"## {case}" in first]
    assert len(shown) >= 20
    for case in shown:
        number = case.partition("[")[2].rstrip("]")
        assert f"case {number} needs rule-{int(number) % 5}" in first
    assert "detail detail" in everything_kept(root)
