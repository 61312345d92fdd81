"""Whole runs with scripted agents that stray, leak and lie."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import urllib.parse
from pathlib import Path
from typing import Any

import pytest
from evolve_project import environment
from evolve_project import records
from evolve_project import run_directory

from pytest_evo.proposers.agent.sandbox import find_sandbox
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer

TESTS = """
from pathlib import Path
import os

def prompt():
    return (Path(__file__).parent.parent / "artifact" / "prompt.txt").read_text()

def test_polite():
    assert "please" in prompt()

def test_brief():
    assert len(prompt()) < 200

def test_kind():
    print(dict(os.environ))
    assert "kind" in prompt()
"""
SETTINGS = """
[tool.pytest_evo]
artifact = "artifact"
objective = "Be polite."
budget_iterations = 1
chain_depth = 0
batches = "epoch"
split = {{ train = ["*"], val = ["*test_polite"] }}
[tool.pytest_evo.agent_options]
sandbox = "{sandbox}"
timeout = 30
"""
ENTRY = [{"file": "prompt.txt", "reason": "it was rude", "evidence": ["test_polite"]}]
HONEST = f"""
import os, subprocess, sys
from pathlib import Path
Path("artifact/prompt.txt").write_text("be brief, please, and kind\\n")
Path("changelog.json").write_text({json.dumps(ENTRY)!r})
project = Path(sys.argv[1])
"""
STRAYS = """
for path in project.glob("tests/*.py"):
    path.write_text("def test_polite(): pass\\ndef test_brief(): pass\\n")
try:
    (project / "pytest.ini").write_text("[pytest]\\naddopts = --co\\n")
    (project / "artifact" / "prompt.txt").write_text("please kind")
    (project / "beside.txt").write_text("beside the artifact")
except OSError as error:
    print(error)
"""
STORE = """
for path in project.rglob("*"):
    if path.suffix in (".jsonl", ".xml", ".db"):
        print(path)
        with path.open("a") as file:
            file.write('\\n{"outcome": "passed"}\\n')
"""
INNER = """
subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", project])
"""
CANARIES = {
    "CASE_API_KEY": "sk-case-AAAAcanary0123456789abcdef",
    "GITHUB_TOKEN": "ghp_caseBBBBcanary0123456789abcdefABCD",
    "AWS_ACCESS_KEY_ID": "AKIACASECANARY000000",
    "SLACK_TOKEN": "xoxb-case-canary-0123456789",
    "ID_TOKEN": "eyJhbGciOiJub25lIn0.canary.sig",
    "PRIVATE_KEY": "-----BEGIN CASE PRIVATE KEY-----",
}
PASSWORD = "hunter2-canary-password"


@pytest.fixture(params=["never", "required"])
def sandbox(request) -> str:
    return need(request.param)


def need(wanted: str) -> str:
    if wanted == "required" and isinstance(find_sandbox((), os.environ), str):
        pytest.skip("bubblewrap does not work here")
    return wanted


def project(root: Path, sandbox: str, agent: str) -> Path:
    (root / "artifact").mkdir()
    (root / "artifact" / "prompt.txt").write_text("be brief\n")
    (root / "tests").mkdir()
    (root / "tests" / "test_prompt.py").write_text(TESTS)
    (root / "pyproject.toml").write_text(SETTINGS.format(sandbox=sandbox))
    (root / "agent.py").write_text(agent)
    return root


def evolve(
    root: Path, *options: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = f"{sys.executable} agent.py {root}"
    words = [sys.executable, "-m", "pytest", "--evolve", "-n", "1"]
    return subprocess.run(
        [*words, "-p", "no:cacheprovider", f"--evo-agent={command}", *options],
        cwd=root,
        env={**environment(), **variables},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def accepted(root: Path) -> dict[str, Any]:
    (row,) = [row for row in records(root, "candidate") if row["id"] == "c0001"]
    assert row["status"] == "accepted"
    return row


def files(root: Path) -> dict[str, bytes]:
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
        and not {".evo", "evo-reports", "__pycache__"} & {*path.relative_to(root).parts}
    }


def test_agent_in_a_sandbox_cannot_stray(tmp_path):
    root = project(tmp_path, need("required"), HONEST + STRAYS + STORE + INNER)
    before = files(root)
    done = evolve(root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert files(root) == before
    accepted(root)
    facts = records(root, "proposal")[-1]["data"]["agent"]
    assert facts["changed"] == ["modified prompt.txt"]


def test_agent_that_strays_without_a_sandbox_is_refused_and_told_of(tmp_path):
    root = project(tmp_path, need("never"), HONEST + STRAYS)
    done = evolve(root)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert [row["tree"] for row in records(root, "proposal")][:1] == [None]
    assert "tests/test_prompt.py" in records(root, "proposal")[0]["refusal"]
    assert "without a sandbox, files of the project changed" in said.replace("\n", " ")


def test_agent_that_runs_the_tests_does_not_disturb_the_run(tmp_path):
    root = project(tmp_path, need("never"), HONEST + INNER)
    done = evolve(root)
    assert done.returncode == 0, done.stdout + done.stderr
    accepted(root)


def test_idle_agent_costs_no_rollout_of_a_candidate(tmp_path, sandbox):
    root = project(tmp_path, sandbox, "print('All done, the prompt is better now.')")
    done = evolve(root)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = records(root, "proposal")
    assert len(rows) == 2
    assert all("nothing changed" in row["refusal"] for row in rows)
    assert {row["candidate"] for row in records(root, "rollout")} == {"c0000"}
    kept = run_directory(root) / "proposer" / "c0001-again"
    assert "All done" in (kept / "output.txt").read_text()
    assert "nothing changed" in (kept / "prompt.md").read_text()


def test_no_secret_is_in_anything_that_a_run_leaves(tmp_path, sandbox):
    leak = """
print(dict(os.environ))
print("and", open("artifact/.env").read())
for path in Path("evidence").rglob("*.json"):
    print(path.read_text())
"""
    root = project(tmp_path, sandbox, HONEST + leak)
    (root / "artifact" / ".env").write_text(f"PASSWORD={PASSWORD}\n")
    done = evolve(root, **CANARIES)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    accepted(root)
    assert ".env in the artifact may hold secrets" in said.replace("\n", " ")
    left = {"the terminal": said.encode()}
    for folder in (".evo", "evo-reports"):
        for path in (root / folder).rglob("*"):
            # versions of the artifact hold what is in it, its .env too
            own = {"blobs", "candidates"} & {*path.relative_to(root).parts}
            if path.is_file() and not own:
                left[str(path)] = path.read_bytes()
    assert any("output.txt" in name for name in left)
    for value in (*CANARIES.values(), PASSWORD):
        forms = {value, urllib.parse.quote(value), _base64(value)}
        found = [
            (name, form)
            for name, data in left.items()
            for form in forms
            if form.encode() in data
        ]
        assert found == []


def _base64(value: str) -> str:
    return base64.b64encode(value.encode()).decode().rstrip("=")


LOOP = """
import json, os, urllib.request
while True:
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "m", "messages": []}).encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"]},
    )
    try:
        urllib.request.urlopen(request, timeout=20).read()
    except OSError:
        pass
"""


def test_agent_that_never_stops_asking_ends_with_the_token_budget(tmp_path, sandbox):
    root = project(tmp_path, sandbox, HONEST + LOOP)
    with ModelServer([Answer("hello")]) as server:
        settings = (root / "pyproject.toml").read_text()
        settings = settings.replace("budget_iterations = 1", "budget_iterations = 3")
        options = f'api_base = "{server.url}"\nmodel = "m"\n'
        (root / "pyproject.toml").write_text(settings + options)
        done = evolve(root, "--budget-tokens=500")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert len(server.requests) == 5  # of 120 tokens each
    (row,) = records(root, "proposal")
    assert "token budget" in row["refusal"]
    assert row["usage"]["calls"] == 5
    assert records(root, "stop")[-1]["reason"] == "budget: tokens", said
    assert {row["candidate"] for row in records(root, "rollout")} == {"c0000"}


@pytest.mark.parametrize(
    ("agent", "options", "words"),
    [
        ("codex", "", "npm install -g @openai/codex"),
        ("cluade", "", "--evo-agent=claude"),
        ("python agent.py {prompt}", "", "there is no such placeholder"),
        ("python agent.py", 'prompt = "missing.md"', "missing.md"),
        ("python agent.py", 'sandbox = "required"', "There is no sandbox"),
        ("python agent.py", 'api_base = "nowhere"', "an address is needed"),
    ],
)
def test_what_is_wrong_with_an_agent_ends_the_session_before_it_starts(
    tmp_path, agent, options, words
):
    root = project(tmp_path, "auto", HONEST)
    text = SETTINGS.format(sandbox="auto").replace('sandbox = "auto"', options)
    (root / "pyproject.toml").write_text(text)
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python").symlink_to(sys.executable)
    (folder / "bwrap").write_text("#!/bin/sh\nexit 1\n")  # one that does not work
    (folder / "bwrap").chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--evolve", "-n", "0", f"--evo-agent={agent}"],
        cwd=root,
        env={**environment(), "PATH": f"{folder}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 4, done.stdout + done.stderr
    assert words in done.stderr
    assert not (root / ".evo").exists()
