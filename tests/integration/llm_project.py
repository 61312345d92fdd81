"""A project whose files a scripted model edits over HTTP."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from evolve_project import environment
from evolve_project import evolve_command
from evolve_project import make_project

from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ScriptedCall
from pytest_evo.testing.model_server import ServedRequest

KEY = "sk-test-Canary0123456789abcdefghij"
TOKENS = 120  # of one scripted answer
PYPROJECT = """
[tool.pytest_evo]
artifact = "art"
objective = "climb"
model = "{model}"
diagnoser = "{diagnoser}"
[tool.pytest_evo.model_options]
api_base = "{url}"
timeout = 10
max_wait = 20
{options}
"""


def make_llm_project(
    pytester: pytest.Pytester,
    server: ModelServer,
    options: str = "",
    *,
    model: str = "openai/scripted",
    diagnoser: str = "none",
    count: int = 12,
) -> Path:
    """Write the project; its cases want the number in a file to be high."""
    root = make_project(pytester, count=count)
    set_options(root, server, options, model=model, diagnoser=diagnoser)
    return root


def set_options(
    root: Path,
    server: ModelServer,
    options: str = "",
    *,
    model: str = "openai/scripted",
    diagnoser: str = "none",
) -> None:
    """Write the settings."""
    url = server.root if model.startswith("anthropic") else server.url
    text = PYPROJECT.format(model=model, diagnoser=diagnoser, url=url, options=options)
    (root / "pyproject.toml").write_text(text)


def climb(request: ServedRequest) -> Answer:
    """Read the number, write a higher one, finish: one call in each answer."""
    if not request.tools:
        return Answer("ok")  # the question before the run
    results = request.results
    if not results:
        return Answer(calls=(ScriptedCall("read_file", {"path": "level.txt"}),))
    if len(results) == 1:
        found = re.search(r"\d+", results[0])
        level = int(found[0]) if found else 0
        new = {"path": "level.txt", "content": str(level + 2)}
        return Answer(calls=(ScriptedCall("write_file", new),))
    entry = {"file": "level.txt", "reason": "higher passes more"}
    return Answer(calls=(ScriptedCall("finish", {"changelog": [entry]}),))


def evolve_with_model(
    root: Path,
    *options: str,
    key: str | None = KEY,
    python: tuple[str, ...] = (),
    timeout: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Run to the end; ``key`` is in the environment."""
    variables = environment()
    variables.pop("OPENAI_API_KEY", None)
    if key is not None:
        variables["OPENAI_API_KEY"] = key
    command = evolve_command(*options)
    return subprocess.run(
        [command[0], *python, *command[1:]],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=timeout,
        env=variables,
        check=False,
    )


def everything_kept(root: Path) -> str:
    """All texts that a run has left in its folders."""
    texts = []
    for folder in (".evo", "evo-reports"):
        for place, _, files in os.walk(root / folder):
            for file in files:
                path = Path(place, file)
                texts.append(path.read_bytes().decode("utf-8", "replace"))
    return "\n".join(texts)
