"""Contract suite of diagnosers.

Subclass it and give it the fixture ``diagnoser``; override ``nodes`` where it needs
other rollouts::

    class TestMyDiagnoser(DiagnoserContract):
        @pytest.fixture
        def diagnoser(self):
            return MyDiagnoser()
"""

# ruff: noqa: D102 -- the name of a test says what it checks

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from pytest_evo.events import DiagnosesMade
from pytest_evo.evidence import diagnosis_name
from pytest_evo.models import Candidate
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Detail
from pytest_evo.models import Diagnosis
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import TraceStep
from pytest_evo.protocols import Diagnosed
from pytest_evo.protocols import Diagnoser
from pytest_evo.store.records import decode
from pytest_evo.store.records import encode
from pytest_evo.store.records import frame
from pytest_evo.store.records import parse

CASES = ("t.py::test_a", "t.py::test_b", "t.py::test_c")
FAILURE = "E       AssertionError: the answer names no source"
FILES = {"prompt.md": b"Answer the question.\n", "steps.py": b"LIMIT = 3\n"}
"""The files of every node; ``trees`` has them by the node's tree."""


class DiagnoserContract:
    """Fixture ``diagnoser``: reads nodes whose rollouts bring their details."""

    def nodes(self, *scores: Sequence[float]) -> list[Node]:
        """A chain with the given scores of the three cases at each node."""
        return [make_node(place, row) for place, row in enumerate(scores)]

    @pytest.fixture
    def diagnoser(self) -> Diagnoser:
        raise NotImplementedError("give the suite a fixture 'diagnoser'")

    def run(self, diagnoser: Diagnoser, nodes: Sequence[Node]) -> Diagnosed:
        return asyncio.run(diagnoser.diagnose(nodes))

    def test_failures_of_the_newest_node_are_read(self, diagnoser: Diagnoser) -> None:
        found = self.run(diagnoser, self.nodes((1.0, 0.0, 0.0)))
        assert isinstance(found, Diagnosed)
        for diagnosis in found.diagnoses:
            check(diagnosis)
            assert set(diagnosis.cases) <= set(CASES[1:])

    def test_chain_is_read_in_the_light_of_what_was_read_before(
        self, diagnoser: Diagnoser
    ) -> None:
        nodes = self.nodes((0.0, 0.0, 1.0))
        first = self.run(diagnoser, nodes)
        parent = replace(nodes[0], diagnoses=first.diagnoses)
        chain = [parent, make_node(1, (0.0, 1.0, 0.0))]
        names = {
            diagnosis_name(parent.candidate.id, number)
            for number, _ in enumerate(first.diagnoses, 1)
        }
        for diagnosis in self.run(diagnoser, chain).diagnoses:
            check(diagnosis)
            assert diagnosis.weak or set(diagnosis.classes) <= names

    def test_perfect_node_has_no_diagnosis_and_costs_nothing(
        self, diagnoser: Diagnoser
    ) -> None:
        found = self.run(diagnoser, self.nodes((0.0, 0.0, 0.0), (1.0, 1.0, 1.0)))
        assert found.diagnoses == ()
        assert found.usage.calls == 0

    def test_same_nodes_give_the_same_diagnoses_in_the_same_order(
        self, diagnoser: Diagnoser
    ) -> None:
        nodes = self.nodes((0.0, 0.5, 0.0))
        one = self.run(diagnoser, nodes)
        assert self.run(diagnoser, nodes).diagnoses == one.diagnoses

    def test_two_nodes_can_be_read_at_the_same_time(self, diagnoser: Diagnoser) -> None:
        nodes = self.nodes((0.0, 0.0, 0.0))

        async def both() -> list[Diagnosed]:
            return list(
                await asyncio.gather(
                    diagnoser.diagnose(nodes), diagnoser.diagnose(nodes)
                )
            )

        one, two = asyncio.run(both())
        assert one.diagnoses == two.diagnoses

    def test_diagnoses_survive_the_journal(self, diagnoser: Diagnoser) -> None:
        found = self.run(diagnoser, self.nodes((0.0, 0.0, 0.0)))
        event = DiagnosesMade(
            1, 0, "c0000", found.diagnoses, found.usage, found.problems
        )
        line = frame(1, event.kind, "2020-01-01T00:00:00.000000Z", "1", encode(event))
        record = parse(line.rstrip(b"\n"))
        assert record is not None
        assert decode(record) == event

    def test_rollouts_without_details_are_read_too(self, diagnoser: Diagnoser) -> None:
        bare = Node(Candidate("c0000", "tree-0"), (make_rollout(0, CASES[0], 0.0),))
        assert isinstance(self.run(diagnoser, [bare]), Diagnosed)


def check(diagnosis: Diagnosis) -> None:
    """What holds for every diagnosis, whoever made it."""
    assert diagnosis.cases
    assert diagnosis.observation.strip()
    assert 0 <= diagnosis.confidence <= 1
    assert set(diagnosis.classes.values()) <= set("ABCDEFGHI")
    assert diagnosis.weak is bool(diagnosis.doubts)


def make_node(place: int, scores: Sequence[float]) -> Node:
    """A node whose failing rollouts bring a failure and a trace step."""
    name = f"c0001-{place}" if place else "c0000"
    changelog = (ChangelogEntry("prompt.md", "name the source", "modified"),)
    candidate = Candidate(
        name,
        f"tree-{place}",
        parent="c0000" if place else None,
        base="c0000" if place else None,
        changelog=changelog if place else (),
    )
    rollouts = tuple(
        make_rollout(place, case, score, DETAIL if score < 1 else Detail())
        for case, score in zip(CASES, scores, strict=True)
    )
    return Node(candidate, rollouts, mean=sum(scores) / len(scores))


DETAIL = Detail(
    phases=(
        Phase("call", "failed", 0.1, "AssertionError", FAILURE, (("stdout", "asked"),)),
    ),
    steps=(TraceStep("search", {"hits": 0}),),
)


def make_rollout(
    place: int, case: str, score: float, detail: Detail | None = None
) -> Rollout:
    """One rollout that read ``prompt.md`` and nothing else."""
    outcome = Outcome.PASSED if score >= 1 else Outcome.FAILED
    reach = Reach(("prompt.md",))
    name = f"c0001-{place}" if place else "c0000"
    return Rollout(
        name, f"tree-{place}", case, 0, outcome, score, reach=reach, detail=detail
    )
