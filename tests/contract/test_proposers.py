from __future__ import annotations

import json
import shlex
import sys

import pytest

from pytest_evo.chat import ChatReply
from pytest_evo.chat import Finish
from pytest_evo.chat import ToolCall
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Proposal
from pytest_evo.models import Usage
from pytest_evo.proposers.agent.starting import make_agent_proposer
from pytest_evo.proposers.llm.proposer import LlmProposer
from pytest_evo.proposers.patches import load_patch
from pytest_evo.proposers.patches import parse_diff
from pytest_evo.proposers.scripted import FunctionProposer
from pytest_evo.proposers.scripted import PatchProposer
from pytest_evo.proposers.search import SearchProposer
from pytest_evo.settings import Settings
from pytest_evo.settings_agent import AgentSettings
from pytest_evo.settings_model import ModelSettings
from pytest_evo.testing.models import ScriptedModel
from pytest_evo.testing.proposer_contract import ProposerContract

AGENT = """
import json
from pathlib import Path
prompt = Path("artifact/prompt.md")
prompt.write_text(prompt.read_text() + "Say more.\\n")
entry = {"file": "prompt.md", "reason": "says more"}
Path("changelog.json").write_text(json.dumps([entry]))
"""


class TestSearch(ProposerContract):
    @pytest.fixture
    def proposer(self):
        return SearchProposer()


class TestPatches(ProposerContract):
    @pytest.fixture
    def proposer(self, tmp_path_factory):
        root = tmp_path_factory.mktemp("patches")
        for number in (1, 2):
            folder = root / f"{number:02}"
            folder.mkdir()
            (folder / "prompt.md").write_text(f"Version {number}.\n")
        diff = (
            b"--- prompt.md\n+++ prompt.md\n@@ -1 +1 @@\n-Answer the question.\n+Hm\n"
        )
        return PatchProposer(
            [
                load_patch(root / "01"),
                load_patch(root / "02"),
                parse_diff("03.patch", diff),
            ]
        )


class TestFunction(ProposerContract):
    @pytest.fixture
    def proposer(self):
        def propose(request):
            prompt = request.workspace / "artifact" / "prompt.md"
            prompt.write_text(prompt.read_text() + f"{request.iteration}\n")
            return "says more"

        return FunctionProposer(propose)


class TestAsyncFunction(ProposerContract):
    @pytest.fixture
    def proposer(self):
        async def propose(request):
            prompt = request.workspace / "artifact" / "prompt.md"
            prompt.write_text(prompt.read_text() + f"{request.iteration}\n")
            return Proposal((ChangelogEntry("prompt.md", "says more"),))

        return FunctionProposer(propose)


class TestAgent(ProposerContract):
    @pytest.fixture
    def proposer(self, tmp_path_factory):
        root = tmp_path_factory.mktemp("project")
        (root / "agent.py").write_text(AGENT)
        settings = Settings(
            agent=shlex.join([sys.executable, "agent.py"]),
            agent_options=AgentSettings(sandbox="never"),
        )
        return make_agent_proposer(settings, root)


class TestLlm(ProposerContract):
    @pytest.fixture
    def proposer(self):
        def answer(request):
            if "is changed" in request.messages[-1].text:
                entry = {"file": "pipeline.toml", "reason": "says more"}
                return said("finish", changelog=[entry])
            new = "# start\n# one more\n"
            return said("edit_file", path="pipeline.toml", old="# start\n", new=new)

        def said(name, **arguments):
            call = ToolCall("call_1", name, json.dumps(arguments))
            return ChatReply("", Finish.TOOLS, (call,), Usage(1, 100, 0, 10))

        return LlmProposer(ScriptedModel(answer), ModelSettings())
