"""A whole run whose first edit is read and moves nothing, and its second one sinks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from evolve_project import environment
from evolve_project import evolve

pytestmark = pytest.mark.slow

PYPROJECT = """
[tool.pytest_evo]
artifact = "art"
scripted = "proposals.py"
chain_depth = 1
batches = "epoch"
mount = "never"
split = { train = ["*"], val = ["*3*"] }

[[tool.pytest_evo.file]]
path = "notes.txt"
kind = "config"

[[tool.pytest_evo.file]]
path = "hook.txt"
kind = "extension"
"""
PROPOSALS = """
from pathlib import Path

FACTS = Path(__file__).with_name("facts.txt")

def propose(request):
    artifact = request.workspace / "artifact"
    if request.step == 0:
        (artifact / "notes.txt").write_text(f"please {request.iteration}")
        return "ask for it"
    with FACTS.open("a") as file:
        file.write((request.workspace / "evidence" / "facts.md").read_text())
    (artifact / "hook.txt").write_text("1")
    return "enforce it"
"""
CASES = """
import pytest

@pytest.mark.evo(deterministic=True)
@pytest.mark.parametrize("n", range(4))
def test_it(n, evo_artifact):
    assert (evo_artifact / "notes.txt").read_text() != ""
    assert (evo_artifact / "hook.txt").read_text() == "1"
"""


def test_bypassed_edit_is_told_to_the_next_step_and_shown(
    pytester: pytest.Pytester,
) -> None:
    root = pytester.path
    files = {
        "pyproject.toml": PYPROJECT,
        "proposals.py": PROPOSALS,
        "test_it.py": CASES,
        "art/notes.txt": "be kind",
        "art/hook.txt": "0",
    }
    for name, text in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(text)
    done = evolve(root, "--budget-iterations=1", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    facts = (root / "facts.txt").read_text()
    assert "`notes.txt` (config)" in facts
    assert "if it is right, sink it to script or extension" in facts
    summary = (root / "evo-reports" / "summary.md").read_text()
    assert "- `c0001` `notes.txt` (config), read by 3 failing cases" in summary
    assert "`c0001-1`: the next edit sank to extension" in summary
    shown = show(root)
    assert "1 edit bypassed (class I):" in shown
    assert "c0001-1: the next edit sank to extension" in shown
    (row,) = json.loads(show(root, "--json"))["bypassed"]
    assert (row["file"], row["kind"]) == ("notes.txt", "config")


def show(root: Path, *options: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "pytest_evo", "show", *options],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
