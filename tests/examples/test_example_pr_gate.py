"""The pull-request gate example: three changes and what the gate says of them."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from ruamel.yaml import YAML

EXAMPLE = Path(__file__).parents[2] / "example_projects" / "pr_gate"
pytestmark = pytest.mark.slow


def environment() -> dict[str, str]:
    unwanted = ("PYTEST_", "COV_", "COVERAGE_PROCESS", "GIT_", "GITHUB_")
    found = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    found.update(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_SYSTEM=os.devnull)
    return found


def run(root: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A throw-away repository of the example."""
    hidden = shutil.ignore_patterns("__pycache__", "evo-reports", ".evo", ".git")
    root = Path(shutil.copytree(EXAMPLE, tmp_path / "desk", ignore=hidden))
    someone = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.invalid")
    for arguments in (
        ("init", "-q", "-b", "main"),
        ("add", "-A"),
        ("commit", "-q", "-m", "base"),
    ):
        assert run(root, "git", *someone, *arguments).returncode == 0
    return root


@pytest.mark.parametrize(
    ("change", "status", "verdicts"),
    [
        # noise may leave the mean open, but a better change is never called worse
        ("good", 0, {"passed", "inconclusive"}),
        ("regression", 1, {"regressed"}),
        ("noisy", 1, {"regressed"}),
    ],
)
def test_gate_judges_the_changes_of_the_example(
    desk: Path, change: str, status: int, verdicts: set[str]
) -> None:
    shutil.copytree(desk / "changes" / change, desk, dirs_exist_ok=True)
    done = run(desk, sys.executable, "-m", "pytest", "--evo-gate=git:main", "-n", "2")
    assert done.returncode == status, done.stdout + done.stderr
    record = json.loads((desk / "evo-reports" / "gate.json").read_text())
    assert record["decision"]["verdict"] in verdicts


def test_ci_files_parse_and_keep_forks_from_secrets() -> None:
    workflow = YAML(typ="safe").load(EXAMPLE / ".github" / "workflows" / "evals.yml")
    triggers = workflow.get("on") or workflow.get(True)
    assert set(triggers) == {"pull_request"}
    assert workflow["permissions"] == {"contents": "read"}
    pipeline = YAML(typ="safe").load(EXAMPLE / ".gitlab-ci.yml")
    assert "CI_MERGE_REQUEST_SOURCE_PROJECT_ID" in pipeline["evals"]["rules"][0]["if"]
    jenkins = (EXAMPLE / "Jenkinsfile").read_text()
    assert jenkins.count("{") == jenkins.count("}")
    texts = [path.read_text() for path in EXAMPLE.rglob("*") if path.is_file()]
    options = set(re.findall(r"--(evo-[a-z-]+|budget-[a-z]+)", "\n".join(texts)))
    assert options == {"evo-gate", "budget-time"}


def test_settings_of_the_example_name_its_artifact() -> None:
    settings = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())
    assert (EXAMPLE / settings["tool"]["pytest_evo"]["artifact"]).is_dir()
