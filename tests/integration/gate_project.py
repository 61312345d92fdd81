"""Small projects in git repositories of their own, and sessions of the gate in them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

SETTINGS = '[tool.pytest_evo]\nartifact = "art"\n'


def environment(**more: str) -> dict[str, str]:
    """The environment of a session that is not one of pytest's own tests, nor CI's."""
    unwanted = ("PYTEST_", "COV_", "COVERAGE_PROCESS", "GIT_", "GITHUB_")
    found = {k: v for k, v in os.environ.items() if not k.startswith(unwanted)}
    found.update(GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_SYSTEM=os.devnull)
    return {**found, **more}


def git(root: Path, *arguments: str) -> str:
    """Run git as somebody; returns what it said."""
    done = subprocess.run(
        [
            "git",
            *("-c", "user.name=Somebody", "-c", "user.email=somebody@example.invalid"),
            *("-c", "protocol.file.allow=always", "-c", "init.defaultBranch=main"),
            *arguments,
        ],
        cwd=root,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def write(root: Path, files: Mapping[str, str]) -> None:
    """Write files by their names."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def make_repository(root: Path, files: Mapping[str, str]) -> Path:
    """A repository with one commit on ``main``."""
    root.mkdir(parents=True, exist_ok=True)
    write(root, {"pyproject.toml": SETTINGS, **files})
    git(root, "init", "-q")
    commit(root, "base")
    return root


def commit(root: Path, message: str) -> str:
    """Commit everything; returns the id."""
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message)
    return git(root, "rev-parse", "HEAD")


def gate(
    root: Path, *options: str, timeout: float = 180, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A session, in this process's interpreter, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=root,
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Everything that a session printed."""
    return done.stdout + done.stderr


def record(root: Path) -> dict[str, Any]:
    """What the last gate wrote for programs."""
    data = json.loads((root / "evo-reports" / "gate.json").read_text())
    assert isinstance(data, dict)
    return data


def verdict(root: Path) -> str:
    """The verdict of the last gate."""
    return str(record(root)["decision"]["verdict"])


def observations(root: Path, arm: str | None = None) -> list[dict[str, Any]]:
    """The rollouts of the last gate."""
    rows: list[dict[str, Any]] = record(root)["record"]["observations"]
    return [row for row in rows if arm in (None, row["arm"])]
