from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_evo.diagnosis.evidence import collect
from pytest_evo.diagnosis.evidence import Sources
from pytest_evo.diagnosis.quality import faults_of
from pytest_evo.diagnosis.quality import Ground
from pytest_evo.diagnosis.quality import is_vague
from pytest_evo.models import Candidate
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Diagnosis
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Reach
from pytest_evo.models import Rollout

A, B = "t.py::a", "t.py::b"
TRACE = "E   AssertionError: expected 'Paris'\nE   got   'paris, France'\n"
GOOD = Diagnosis(
    (A,),
    observation="the answer carries the country behind the city",
    cause="prompt.md shows an example with a country",
    file="prompt.md",
    change="remove ', France' from the second example in prompt.md",
    quotes=("expected 'Paris'",),
    confidence=0.7,
)


def node(
    place: int, scores: dict[str, float], edits: tuple[str, ...] = (), **reach: object
) -> Node:
    name = f"c{place:04}"
    changelog = tuple(ChangelogEntry(file, "why", "modified") for file in edits)
    rollouts = tuple(
        Rollout(name, name, case, 0, Outcome.FAILED, score, reach=Reach(**reach))  # type: ignore[arg-type]
        for case, score in scores.items()
    )
    return Node(Candidate(name, name, changelog=changelog), rollouts)


def ground(*nodes: Node, earlier: tuple[str, ...] = ()) -> Ground:
    return Ground(
        collect(nodes or [node(0, {A: 0.0})], (), Sources()),
        [TRACE],
        frozenset({"prompt.md", "steps.py"}),
        earlier,
    )


def test_sound_diagnosis_has_no_faults() -> None:
    assert faults_of(GOOD, ground()) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"quotes": ()}, "no quote"),
        ({"quotes": ("expected 'Berlin'",)}, "is not in the trace"),
        ({"quotes": ("Paris",)}, "too short"),
        ({"file": "prompts.md"}, "does not exist"),
        ({"file": ""}, "does not exist"),
        ({"change": "Improve the prompt so that it works better."}, "change is too"),
        ({"cause": "The instructions are not clear enough"}, "cause is too vague"),
        ({"observation": "The test failed"}, "observation is too vague"),
        ({"classes": {"c0000/9": "B"}}, "no earlier diagnosis 'c0000/9'"),
    ],
)
def test_fault_is_found_and_said(change: dict[str, object], fault: str) -> None:
    (said,) = faults_of(replace(GOOD, **change), ground())  # type: ignore[arg-type]
    assert fault in said


def test_quote_may_break_lines_elsewhere_and_a_trace_without_words_needs_none() -> None:
    squeezed = replace(GOOD, quotes=("expected 'Paris' E got 'paris, France'",))
    assert faults_of(squeezed, ground()) == []
    silent = replace(ground(), traces=["", "  \n"])
    assert faults_of(replace(GOOD, quotes=()), silent) == []


@pytest.mark.parametrize(
    ("text", "vague"),
    [
        ("Make the instructions clearer and more robust.", True),
        ("Fix it", True),
        ("", True),
        ("Set bm25.k1 in pipeline.toml to 1.2", False),
        ("answer in JSON only", False),
        ("在 prompt.md 中加入引用来源的要求", False),
        ("改进提示", True),
    ],
)
def test_vague_is_what_would_fit_any_failure(text: str, vague: bool) -> None:
    assert is_vague(text) is vague


# -- classes against what is measured ------------------------------------------------

EARLIER = Diagnosis((A,), "o", file="prompt.md")


def chain(*later: Node) -> list[Node]:
    return [replace(node(0, {A: 0.0, B: 1.0}), diagnoses=(EARLIER,)), *later]


def fault(letter: str, *later: Node) -> list[str]:
    said = replace(GOOD, classes={"c0000/1": letter})
    return faults_of(said, ground(*chain(*later), earlier=("c0000/1",)))


READ = node(1, {A: 0.0, B: 1.0}, ("prompt.md",), files=("prompt.md",))
UNREAD = node(1, {A: 0.0, B: 1.0}, ("prompt.md",), files=("steps.py",))
UNSURE = node(1, {A: 0.0, B: 1.0}, ("prompt.md",), exact=False)


@pytest.mark.parametrize("letter", list("BCDEGI"))
def test_class_that_fits_an_edit_that_was_read_stands(letter: str) -> None:
    assert fault(letter, READ) == []


@pytest.mark.parametrize("letter", list("AEG"))
def test_class_that_fits_an_edit_that_was_not_read_stands(letter: str) -> None:
    assert fault(letter, UNREAD) == []


def test_never_triggered_is_contradicted_by_a_read_file() -> None:
    (said,) = fault("A", READ)
    assert "class A for c0000/1 is contradicted" in said
    assert "these cases read it there" in said


@pytest.mark.parametrize("letter", list("BCDI"))
def test_reached_is_contradicted_by_a_file_that_was_not_read(letter: str) -> None:
    (said,) = fault(letter, UNREAD)
    assert "none of these cases read it" in said


@pytest.mark.parametrize("letter", list("ABCDI"))
def test_reach_that_nobody_knows_contradicts_nothing(letter: str) -> None:
    assert fault(letter, UNSURE) == []


@pytest.mark.parametrize("letter", list("ABCDFI"))
def test_diagnosis_that_no_edit_followed_can_have_any_class(letter: str) -> None:
    other = node(1, {A: 0.0, B: 1.0}, ("steps.py",), files=("steps.py",))
    assert fault(letter, other) == []


def test_exhausted_needs_several_edits() -> None:
    again = replace(READ, candidate=replace(READ.candidate, id="c0002"))
    assert "several variants" in fault("F", READ)[0]
    assert fault("F", READ, again) == []


def test_lost_win_needs_a_score_that_fell() -> None:
    assert "no score of these cases ever fell" in fault("H", READ)[0]
    won = node(1, {A: 1.0, B: 1.0}, ("prompt.md",), files=("prompt.md",))
    lost = node(2, {A: 0.0, B: 1.0}, ("prompt.md",), files=("prompt.md",))
    assert fault("H", won, lost) == []


def test_earlier_diagnosis_without_a_class_is_asked_for() -> None:
    (said,) = faults_of(GOOD, ground(*chain(READ), earlier=("c0000/1",)))
    assert "c0000/1 has no class" in said
