"""Small projects with something odd about them, and what a run made of them.

Every proposal is taken and judged by all cases, so that a run says of each version what
a plain run of the suite on it would say.
"""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evolve_project import environment
from evolve_project import records
from evolve_project import run_directory

PARTS = """
from pytest_evo.models import Decision
from pytest_evo.models import Verdict

class Take:
    def decide(self, comparison):
        return Verdict(Decision.ACCEPTED, 1.0, 0.0, None, "taken")

    def smallest_batch(self, size, noisy_share, variance, attempts):
        return max(1, size)

class Start:
    def sample(self, population, rng):
        starts = [member for member in population if member.candidate.id == "c0000"]
        return (starts or list(population))[0]

class Newest:
    def sample(self, population, rng):
        return max(population, key=lambda member: member.candidate.id)
"""
SETTINGS = {
    "artifact": "art",
    "scripted": "proposals.py",
    "acceptance": "parts:Take",
    "parents": "parts:Start",
    "batches": "epoch",
    "batch": 100,
    "chain_depth": 0,
    "slots": 1,
    "validation": "full",
    "survivors": "keep-all",
    "noise": "none",
    "timeout": 30,
}
PROPOSALS = """
FILES = {files!r}

def propose(request):
    for name, text in FILES[request.iteration - 1].items():
        path = request.workspace / "artifact" / name
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    return "as scripted"
"""
Files = Mapping[str, str]
Edit = Mapping[str, "str | None"]


def write_files(root: Path, files: Files) -> None:
    """Write texts below a folder."""
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_odd(
    root: Path,
    files: Files,
    proposals: Sequence[Edit] = (),
    *,
    ini: str = "",
    **settings: object,
) -> Path:
    """Write the project; ``ini`` are lines of ``pytest.ini``. Returns its folder."""
    chosen = {"budget_iterations": max(1, len(proposals)), **SETTINGS, **settings}
    lines = [f"{name} = {json.dumps(value)}" for name, value in chosen.items()]
    own = {
        "parts.py": PARTS,
        "proposals.py": PROPOSALS.format(files=[dict(edit) for edit in proposals]),
        "pytest_evo.toml": "\n".join(lines) + "\n",
        "pytest.ini": f"[pytest]\n{ini}",
    }
    write_files(root, {**own, **files})
    return root


@dataclass(frozen=True)
class Result:
    """What a run of an odd project said and left."""

    root: Path
    status: int
    output: str

    def rollouts(self, iteration: int) -> list[dict[str, Any]]:
        """Records of the rollouts of an iteration's candidate; 0 is the start."""
        made = {row["id"]: row["iteration"] or 0 for row in self.records("candidate")}
        rows = self.records("rollout")
        return [row for row in rows if made[row["candidate"]] == iteration]

    def records(self, kind: str) -> list[dict[str, Any]]:
        """Records of one kind."""
        return records(self.root, kind)

    def outcomes(self, iteration: int = 0) -> dict[str, str]:
        """The last outcome of each case, by what follows the file's name."""
        return {
            row["case"].partition("::")[2]: row["outcome"]
            for row in self.rollouts(iteration)
        }

    def told(self, test: str, iteration: int = 0) -> str:
        """The stored detail of the last rollout of a case."""
        traces = [
            row["trace"]
            for row in self.rollouts(iteration)
            if row["case"].partition("::")[2] == test
        ]
        return (run_directory(self.root) / traces[-1]).read_text()

    def junit(self, iteration: int = 0) -> dict[str, ElementTree.Element]:
        """The testcases of a candidate's report by name, once the counters fit them."""
        rows = self.records("candidate")
        (name,) = [row["id"] for row in rows if (row["iteration"] or 0) == iteration]
        path = run_directory(self.root) / "candidates" / name / "junit.xml"
        (suite,) = ElementTree.parse(path).iter("testsuite")
        cases = suite.findall("testcase")
        for kind, tag in (("failures", "failure"), ("errors", "error")):
            marked = [case for case in cases if case.find(tag) is not None]
            assert int(suite.attrib[kind]) == len(marked)
        assert int(suite.attrib["tests"]) == len(cases)
        named = {case.attrib["name"]: case for case in cases}
        assert len(named) == len(cases)
        return named


def run_odd(
    root: Path,
    *options: str,
    status: int = 0,
    cwd: Path | None = None,
    blocked: Sequence[str] = ("cacheprovider", "hypothesispytest", "anyio"),
    variables: Mapping[str, str] | None = None,
) -> Result:
    """Run one iteration for each proposal; the exit code has to be ``status``."""
    command = [sys.executable, "-m", "pytest", "--evolve"]
    command += [word for name in blocked for word in ("-p", f"no:{name}")]
    done = subprocess.run(
        [*command, *options],
        cwd=cwd or root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        env={**environment(), **(variables or {})},
        check=False,
    )
    output = done.stdout + done.stderr
    assert done.returncode == status, output
    return Result(root, done.returncode, output)
