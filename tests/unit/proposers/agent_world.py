"""What tests of the agent proposer share: a workspace, scripted agents, a sandbox."""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Candidate
from pytest_evo.models import Node
from pytest_evo.models import Proposal
from pytest_evo.proposers.agent.proposer import AgentProposer
from pytest_evo.proposers.agent.sandbox import find_sandbox
from pytest_evo.proposers.agent.starting import make_agent_proposer
from pytest_evo.proposers.archive import Archive
from pytest_evo.protocols import ProposalRequest
from pytest_evo.settings import Settings

ENTRY = {
    "file": "prompt.txt",
    "reason": "it was rude",
    "evidence": ["t.py::a: no please"],
    "expected": "t.py::a passes",
}
CHANGELOG = json.dumps([ENTRY])
START = "be brief\n"
_OWN = {"budget_usd", "dry_run"}
EDIT = f"""
from pathlib import Path
Path("artifact/prompt.txt").write_text("be brief, please\\n")
Path("changelog.json").write_text({CHANGELOG!r})
"""


def need_sandbox() -> None:
    """Skip where bubblewrap does not work."""
    found = find_sandbox((), os.environ)
    if isinstance(found, str):
        pytest.skip(f"no sandbox: {found}")


@dataclass
class World:
    """A project with a workspace, and what an agent is to it."""

    root: Path
    sandbox: str = "never"

    def __post_init__(self) -> None:
        self.archive = Archive()
        self.archive.folder = self.root / "kept"
        self.notices: list[str] = []
        self.workspace = self.root / "somewhere" / "workspace"
        self.artifact = self.workspace / "artifact"
        self.project = self.root / "project"
        self.environment: dict[str, str] = dict(os.environ)
        (self.workspace / "evidence").mkdir(parents=True)
        self.artifact.mkdir()
        self.project.mkdir()
        (self.workspace / "evidence" / "README.md").write_text("# Evidence\n")
        (self.artifact / "prompt.txt").write_text(START)
        (self.project / "test_val.py").write_text("def test_hidden(): pass\n")

    @property
    def text(self) -> str:
        """What the prompt of the artifact says now."""
        return (self.artifact / "prompt.txt").read_text()

    def request(self, **changes: Any) -> ProposalRequest:
        """A first request."""
        start = Candidate("c0000", "tree")
        made = ProposalRequest(
            iteration=1,
            step=0,
            workspace=self.workspace,
            schema=ArtifactSchema("prompts"),
            objective="Say please.",
            parent=start,
            batch=("t.py::a",),
            nodes=(Node(start, mean=0.5),),
            history=(),
            feedback=None,
            rng=Random(1),
            knobs=(),
        )
        return replace(made, **changes)

    def script(self, code: str, *words: str) -> str:
        """The command line of a scripted agent; its file lies in the project."""
        path = self.project / "agent.py"
        path.write_text(textwrap.dedent(code))
        return shlex.join([sys.executable, str(path), *words])

    def proposer(self, agent: str, **options: Any) -> AgentProposer:
        """A proposer as the settings make it."""
        given = {name: options.pop(name) for name in _OWN & {*options}}
        settings = Settings.model_validate(
            {
                "agent": agent,
                **given,
                "agent_options": {"sandbox": self.sandbox, "timeout": 30, **options},
            }
        )
        return make_agent_proposer(
            settings,
            self.project,
            archive=self.archive,
            notice=self.notices.append,
            environment=self.environment,
        )

    def ask(self, code: str, *words: str, **options: Any) -> Proposal:
        """Have a scripted agent work."""
        proposer = self.proposer(self.script(code, *words), **options)
        return proposer.propose(self.request())

    def kept(self, name: str = "c0001") -> Mapping[str, str]:
        """What was kept of a proposal."""
        place = self.root / "kept" / name
        return {path.name: path.read_text() for path in place.iterdir()}
