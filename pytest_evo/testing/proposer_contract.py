"""Contract suite of proposers.

Subclass it and give it the fixture ``proposer``; override ``files`` and ``knobs`` where
the proposer needs others::

    class TestMyProposer(ProposerContract):
        @pytest.fixture
        def proposer(self):
            return MyProposer()
"""

# ruff: noqa: D102 -- the name of a test says what it checks

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from pytest_evo.artifact.knobs import read_knob
from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import ProposerExhausted
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Attempt
from pytest_evo.models import Candidate
from pytest_evo.models import FileRule
from pytest_evo.models import Knob
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Proposal
from pytest_evo.models import Rollout
from pytest_evo.models import START
from pytest_evo.protocols import KnobValue
from pytest_evo.protocols import ProposalRequest
from pytest_evo.protocols import Proposer

CASES = ("t.py::a", "t.py::b")


class ProposerContract:
    """Fixture ``proposer``: makes at least three proposals from ``files``."""

    files: Mapping[str, bytes] = {
        "pipeline.toml": b"# start\nweight = 0.5  # of the title\nsize = 10\n",
        "prompt.md": b"Answer the question.\n",
    }
    knobs: Sequence[Knob] = (
        Knob("pipeline.toml", "weight", "float", low=0.0, high=1.0),
        Knob("pipeline.toml", "size", "int", low=1, high=50),
    )

    @pytest.fixture
    def workspaces(self, tmp_path: Path) -> Path:
        return tmp_path

    def request_in(
        self,
        workspace: Path,
        iteration: int = 1,
        files: Mapping[str, bytes] | None = None,
        seed: int = 0,
    ) -> ProposalRequest:
        """A first request on fresh files."""
        for path, content in (files or self.files).items():
            place = workspace / "artifact" / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        (workspace / "evidence").mkdir()
        start = Candidate(START, "tree-start")
        return ProposalRequest(
            iteration=iteration,
            step=0,
            workspace=workspace,
            schema=ArtifactSchema(
                "artifact", (FileRule("pipeline.toml", knobs=tuple(self.knobs)),)
            ),
            objective="Answer well.",
            parent=start,
            batch=CASES,
            nodes=(self._node(start, 0.5),),
            history=(),
            feedback=None,
            rng=Random(f"{seed} {iteration}"),
            knobs=self.read_knobs(workspace / "artifact"),
            start=dict.fromkeys(CASES, 0.5),
        )

    def read_knobs(self, artifact: Path) -> tuple[KnobValue, ...]:
        """The knobs with the values that they have in these files."""
        return tuple(
            KnobValue(
                knob,
                read_knob(
                    (artifact / knob.file).read_text(), Path(knob.file).suffix, knob.key
                ),
            )
            for knob in self.knobs
        )

    @staticmethod
    def _node(candidate: Candidate, score: float) -> Node:
        return Node(
            candidate,
            tuple(
                Rollout(candidate.id, candidate.tree, case, 0, Outcome.FAILED, score)
                for case in CASES
            ),
            mean=score,
        )

    @staticmethod
    def ask(proposer: Proposer, request: ProposalRequest) -> Proposal | str:
        """The answer, awaited if need be."""

        async def wait() -> Proposal | str:
            answer = proposer.propose(request)
            return await answer if inspect.isawaitable(answer) else answer

        return asyncio.run(wait())

    @staticmethod
    def held(folder: Path) -> dict[str, bytes]:
        """Every file below a folder."""
        return {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }

    def test_changes_the_artifact_and_nothing_beside_it(
        self, proposer: Proposer, workspaces: Path
    ) -> None:
        request = self.request_in(workspaces / "one")
        answer = self.ask(proposer, request)
        assert isinstance(answer, Proposal | str)
        assert self.held(request.workspace / "artifact") != dict(self.files)
        assert self.held(request.workspace / "evidence") == {}
        assert [path.name for path in workspaces.iterdir()] == ["one"]

    def test_gives_reasons_for_files_of_the_artifact(
        self, proposer: Proposer, workspaces: Path
    ) -> None:
        request = self.request_in(workspaces / "one")
        answer = self.ask(proposer, request)
        if isinstance(answer, str):
            assert answer
            return
        after = self.held(request.workspace / "artifact")
        for entry in answer.changelog:
            assert entry.reason
            assert entry.file in after or entry.file in self.files
        assert answer.usage.calls >= 0

    def test_gives_the_same_answer_to_the_same_request(
        self, proposer: Proposer, workspaces: Path
    ) -> None:
        found = []
        for name in ("one", "two"):
            request = self.request_in(workspaces / name)
            answer = self.ask(proposer, request)
            data = answer.data if isinstance(answer, Proposal) else answer
            found.append((self.held(request.workspace / "artifact"), data))
        assert found[0] == found[1]

    def test_goes_on_from_the_files_of_a_chain(
        self, proposer: Proposer, workspaces: Path
    ) -> None:
        first = self.request_in(workspaces / "one")
        answer = self.ask(proposer, first)
        data = answer.data if isinstance(answer, Proposal) else {}
        child = Candidate("c0001", "tree-child", START, START, 1, 0, data=data)
        files = self.held(first.workspace / "artifact")
        second = self.request_in(workspaces / "two", files=files)
        second = replace(
            second,
            step=1,
            nodes=(*second.nodes, self._node(child, 0.4)),
            knobs=self.read_knobs(second.workspace / "artifact"),
        )
        try:
            self.ask(proposer, second)
        except ProposalRefused:
            return  # a chain may end; it costs nothing
        assert self.held(second.workspace / "artifact") != files

    def test_learns_from_history_without_seeing_it_change(
        self, proposer: Proposer, workspaces: Path
    ) -> None:
        history: list[Attempt] = []
        for iteration in range(1, 4):
            request = self.request_in(workspaces / str(iteration), iteration)
            before = tuple(history)
            try:
                answer = self.ask(proposer, replace(request, history=before))
            except ProposerExhausted:
                break
            assert before == tuple(history)
            data = answer.data if isinstance(answer, Proposal) else {}
            scores = dict.fromkeys(CASES, 0.5 + 0.1 * iteration)
            history.append(
                Attempt(
                    f"c{iteration:04}",
                    START,
                    iteration,
                    0,
                    scores,
                    0.1 * iteration,
                    True,
                    data,
                )
            )
        assert history
