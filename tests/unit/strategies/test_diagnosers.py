from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.blobs import MemoryTrees
from pytest_evo.diagnosis.briefing import Versions
from pytest_evo.diagnosis.ecdysis import AcrossCases
from pytest_evo.diagnosis.mara import CaseByCase
from pytest_evo.diagnosis.none import NoDiagnosis
from pytest_evo.errors import SettingsProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Candidate
from pytest_evo.models import Detail
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Rollout
from pytest_evo.protocols import Diagnosed
from pytest_evo.settings import Settings
from pytest_evo.strategies.diagnosers import choose_diagnoser
from pytest_evo.strategies.diagnosers import make_diagnoser
from pytest_evo.strategies.diagnosers import model_name
from pytest_evo.strategies.diagnosers import Tools
from pytest_evo.strategies.diagnosers import WithDetails
from pytest_evo.testing.models import ScriptedModel


def tools(prompts: Path | None = None) -> Tools:
    versions = Versions(MemoryTrees().get, MemoryBlobs().get, ArtifactSchema("art"))
    return Tools(ScriptedModel([]), versions, "objective", prompts)


class Reader:
    """A diagnoser of somebody's own."""

    def __init__(self) -> None:
        self.seen: list[Node] = []

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        self.seen += nodes
        return Diagnosed()


@pytest.mark.parametrize(
    ("given", "proposer", "chosen"),
    [
        ({}, "search", "none"),
        ({"model": "a/b"}, "llm", "mara"),
        ({"model": "a/b"}, "search", "none"),
        ({"model": "a/b"}, "scripted", "none"),
        ({"agent": "claude"}, "agent", "none"),
        ({"agent": "claude", "model": "a/b"}, "agent", "mara"),
        ({"agent": "claude", "diagnosis_model": "a/b"}, "agent", "mara"),
        ({"diagnosis_model": "a/b"}, "scripted", "mara"),
        ({"model": "a/b", "diagnoser": "none"}, "llm", "none"),
        ({"model": "a/b", "diagnoser": "ecdysis"}, "search", "ecdysis"),
        ({"diagnoser": "own.module:Reader"}, "search", "own.module:Reader"),
    ],
)
def test_diagnoser_is_what_is_set_else_what_somebody_reads(
    given: dict[str, str], proposer: str, chosen: str
) -> None:
    assert choose_diagnoser(Settings(**given), proposer) == chosen


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"diagnoser": "mara"}, "asks a model, and none is set"),
        ({"diagnoser": "none", "diagnosis_model": "a/b"}, "Remove one of them"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    given: dict[str, str], why: str
) -> None:
    with pytest.raises(SettingsProblem, match=why):
        choose_diagnoser(Settings(**given), "llm")


def test_model_of_the_diagnoser_may_be_another_one() -> None:
    assert model_name(Settings(model="a/b")) == "a/b"
    assert model_name(Settings(model="a/b", diagnosis_model="c/d")) == "c/d"


def test_diagnosers_are_made_by_name() -> None:
    def unwanted() -> Tools:
        raise AssertionError("no model is needed")

    assert isinstance(make_diagnoser("none", unwanted), NoDiagnosis)
    assert isinstance(make_diagnoser("mara", tools), CaseByCase)
    assert isinstance(make_diagnoser("ecdysis", tools), AcrossCases)
    own = make_diagnoser(f"{__name__}:Reader", unwanted)
    assert type(own).__name__ == "Reader"


def test_unknown_diagnoser_and_missing_prompts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsProblem, match="Did you mean 'mara'"):
        make_diagnoser("marra", tools)
    with pytest.raises(SettingsProblem, match="cannot be imported"):
        make_diagnoser("no.such.module:x", tools)
    with pytest.raises(SettingsProblem, match=r"mara-system\.md.* are not there"):
        make_diagnoser("mara", lambda: tools(tmp_path))


def test_diagnoser_of_ones_own_gets_rollouts_with_their_details() -> None:
    kept = {"c0000/a": Detail(warnings=("careful",))}
    rollouts = (
        Rollout("c0000", "t", "a", 0, Outcome.FAILED, 0.0, trace="c0000/a"),
        Rollout("c0000", "t", "b", 0, Outcome.FAILED, 0.0),
    )
    reader = Reader()
    whole = WithDetails(reader, kept.__getitem__)
    asyncio.run(whole.diagnose([Node(Candidate("c0000", "t"), rollouts)]))
    (node,) = reader.seen
    assert [one.detail for one in node.rollouts] == [kept["c0000/a"], None]
