"""A project whose proposer is hostile: one attack an iteration, then an honest edit."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve_project import environment
from evolve_project import evolve_command
from evolve_project import records

SEED = "def answer(n):\n    return 0\n"
HONEST = "def answer(n):\n    return n * 2\n"
PYPROJECT = """
[tool.pytest.ini_options]
testpaths = ["tests"]

[tool.pytest_evo]
artifact = "art"
scripted = "proposals.py"
protect = ["data/*.json"]
"""
PROPOSALS = """
import json
import shutil
from pathlib import Path

ATTACKS = Path(__file__).with_name("attacks")

def propose(request):
    artifact = request.workspace / "artifact"
    folders = sorted(ATTACKS.iterdir())
    folder = folders[min(request.iteration, len(folders)) - 1]
    for path in folder.rglob("*"):
        target = artifact / path.relative_to(folder)
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    script = folder / "PROPOSE"
    if script.exists():
        (artifact / "PROPOSE").unlink()
        exec(compile(script.read_text(), str(script), "exec"), {"request": request})
    return "better: " + folder.name
"""
CASES = """
import importlib.util
import json
from pathlib import Path

import pytest

HERE = Path(__file__).parent

def load(folder):
    spec = importlib.util.spec_from_file_location("solver", folder / "solver.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

@pytest.mark.evo(deterministic=True)
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_train(n, evo_artifact, evo_score):
    evo_score(0.0 if n else 1.0)
    found = load(evo_artifact).answer(n)
    wanted = json.loads((HERE.parent / "data" / "wanted.json").read_text())[str(n)]
    evo_score(1.0 if found == wanted else 0.0)
    assert found == wanted

@pytest.mark.evo(split="val", deterministic=True)
@pytest.mark.parametrize("n", [0, 4, 5])
def test_held_out(n, evo_artifact):
    assert load(evo_artifact).answer(n) == n * 2
"""

EARLY = """
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "art"))
import solver

@pytest.mark.evo(deterministic=True)
@pytest.mark.parametrize("n", [0, 1, 2, 3])
def test_train(n):
    assert solver.answer(n) == n * 2

@pytest.mark.evo(split="val", deterministic=True)
@pytest.mark.parametrize("n", [0, 4, 5])
def test_held_out(n):
    assert solver.answer(n) == n * 2
"""


@dataclass(frozen=True)
class Outcome:
    """What became of the attacks, by name."""

    root: Path
    output: str
    rollouts: Mapping[str, list[dict[str, Any]]]
    refusals: Mapping[str, str]
    winner: str
    names: Mapping[str, str]

    def violations(self, attack: str) -> str:
        """What was said of an attack's rollouts."""
        rows = self.rollouts[attack]
        return "; ".join(sorted({row["violation"] or "" for row in rows} - {""}))

    def scores(self, attack: str) -> dict[str, float | None]:
        """The score of each case."""
        return {row["case"]: row["score"] for row in self.rollouts[attack]}


def make_attacked(
    root: Path, attacks: Mapping[str, Mapping[str, str]], settings: str = ""
) -> Path:
    """Write the project; ``attacks`` are files by name by attack, in their order."""
    files = {
        "pyproject.toml": PYPROJECT + settings,
        "proposals.py": PROPOSALS,
        "art/solver.py": SEED,
        "tests/test_solver.py": CASES,
        "data/wanted.json": '{"0": 0, "1": 2, "2": 4, "3": 6}',
    }
    chosen = {**attacks, "honest": {"solver.py": HONEST}}
    for at, (name, parts) in enumerate(chosen.items()):
        for file, text in parts.items():
            files[f"attacks/{at:02}-{name}/{file}"] = text
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def run_attacks(
    root: Path,
    *options: str,
    workers: str = "0",
    variables: Mapping[str, str] | None = None,
) -> Outcome:
    """Run every attack once and the honest edit last."""
    folders = sorted((root / "attacks").iterdir())
    command = evolve_command(
        f"--budget-iterations={len(folders)}",
        "--evo-chain-depth=0",
        "--evo-slots=1",
        "-n",
        workers,
        *options,
    )
    done = subprocess.run(
        command,
        cwd=root,
        capture_output=True,
        text=True,
        timeout=240,
        env={**environment(), **(variables or {})},
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    names = {row["id"]: row["iteration"] for row in records(root, "candidate")}
    called = {
        key: folders[number - 1].name[3:] for key, number in names.items() if number
    }
    rollouts: dict[str, list[dict[str, Any]]] = {name: [] for name in called.values()}
    for row in records(root, "rollout"):
        if row["candidate"] in called:
            rollouts[called[row["candidate"]]].append(row)
    refusals = {
        folders[row["iteration"] - 1].name[3:]: row["refusal"]
        for row in records(root, "proposal")
        if row["refusal"]
    }
    winner = records(root, "stop")[-1]["winner"]
    return Outcome(
        root, output, rollouts, refusals, called.get(winner, "start"), called
    )
