"""The engine with real files, a judge in memory, and a scripted model behind HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.blobs import MemoryTrees
from pytest_evo.artifact.trees import snapshot
from pytest_evo.artifact.workshop import DirectoryWorkshop
from pytest_evo.diagnosis.none import NoDiagnosis
from pytest_evo.engine.budget import Limits
from pytest_evo.engine.draws import SeededDraws
from pytest_evo.engine.loop import Loop
from pytest_evo.engine.loop import RunEnd
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Plan
from pytest_evo.events import Event
from pytest_evo.events import ProposalMade
from pytest_evo.llm.client import LiteLLMModel
from pytest_evo.llm.waiting import Backoff
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import CaseMark
from pytest_evo.models import Outcome
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import TreeHash
from pytest_evo.models import Usage
from pytest_evo.proposers.llm.proposer import LlmProposer
from pytest_evo.settings import Settings
from pytest_evo.settings_model import ModelSettings
from pytest_evo.store.journal import MemoryJournal
from pytest_evo.strategies.presets import make_strategy
from pytest_evo.testing.doubles import FakeEvaluator
from pytest_evo.testing.doubles import ManualClock
from pytest_evo.testing.doubles import MemoryRollouts
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ScriptedCall

START = "be brief\n"
PLEASE = "be brief, please\n"
WRITE = Answer(
    calls=(ScriptedCall("write_file", {"path": "prompt.txt", "content": PLEASE}),)
)
FINISH = Answer(
    calls=(
        ScriptedCall(
            "finish", {"changelog": [{"file": "prompt.txt", "reason": "polite"}]}
        ),
    )
)


class LlmWorld:
    """Twelve cases: a third wants "please", a third brevity, a third "kind"."""

    def __init__(
        self, root: Path, server: ModelServer, *, iterations: int = 2, **options: object
    ) -> None:
        artifact = root / "project"
        artifact.mkdir()
        (artifact / "prompt.txt").write_text(START)
        self.blobs, self.trees = MemoryBlobs(), MemoryTrees()
        schema = ArtifactSchema("project")
        workshop = DirectoryWorkshop(root / "work", self.blobs, self.trees, schema)
        start = workshop.register(snapshot(artifact, self.blobs))
        settings = ModelSettings(
            **{"api_base": server.url, "timeout": 5, "max_wait": 30, **options}
        )
        self.model = LiteLLMModel(
            "openai/scripted", settings, rng=Random(1), backoff=Backoff(first=0.01)
        )
        self.heard: list[Event] = []
        self.evaluator = FakeEvaluator(self._judge, files=self.files)
        marks = [
            CaseMark(f"t.py::test_{kind}[{number}]", "t.py", 1, "print")
            for kind in ("polite", "brief", "kind")
            for number in range(4)
        ]
        parts = Parts(
            evaluator=self.evaluator,
            workshop=workshop,
            proposer=LlmProposer(self.model, settings),
            diagnoser=NoDiagnosis(),
            strategy=make_strategy(Settings(), 3),
            journal=MemoryJournal(),
            rollouts=MemoryRollouts(),
            clock=ManualClock(),
            draws=SeededDraws(0),
            observer=self,
            marks=marks,
        )
        plan = Plan(schema, "be polite", start, depth=0, noise="none")
        self.loop = Loop(parts, plan, Limits(rollouts=2_000, iterations=iterations))

    def notice(self, event: Event) -> None:
        """Hear what the engine says."""
        self.heard.append(event)

    def files(self, tree: TreeHash) -> dict[str, bytes]:
        """What a version holds."""
        entries = self.trees.get(tree).entries
        return {e.path: self.blobs.get(e.blob) for e in entries if e.kind == "file"}

    @staticmethod
    def _judge(files: dict[str, bytes], case: str, repeat: int) -> Rollout:
        prompt = files.get("prompt.txt", b"").decode()
        passed = {
            "polite": "please" in prompt,
            "brief": len(prompt) < 200,
            "kind": "kind" in prompt,
        }[case.partition("test_")[2].partition("[")[0]]
        outcome = Outcome.PASSED if passed else Outcome.FAILED
        reach = Reach(("prompt.txt",))
        return Rollout(
            "?", "?", case, repeat, outcome, float(passed), 0.001, reach=reach
        )

    def run(self) -> RunEnd:
        """Run to the end."""
        try:
            return asyncio.run(self.loop.run(lambda prospect: None))
        finally:
            self.model.close()

    @property
    def proposals(self) -> list[ProposalMade]:
        """All answers of the proposer."""
        return [event for event in self.heard if isinstance(event, ProposalMade)]

    @property
    def usage(self) -> Usage:
        """What the ledger has for the proposer."""
        return self.loop.budget.usage.get("proposer", Usage())

    @property
    def prompts(self) -> set[str]:
        """The prompt of every version that was ever run."""
        trees = {tree for tree, _, _ in self.evaluator.executed}
        return {
            self.files(tree).get("prompt.txt", b"").decode("utf-8", "replace")
            for tree in trees
        }
