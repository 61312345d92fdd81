from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.diagnosis.evidence import gather
from pytest_evo.diagnosis.evidence import MOST_TEXT
from pytest_evo.diagnosis.evidence import Sources
from pytest_evo.diagnosis.evidence import write_evidence
from pytest_evo.diagnosis.history import measure
from pytest_evo.diagnosis.history import score_history
from pytest_evo.diagnosis.none import NoDiagnosis
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Detail
from pytest_evo.models import Diagnosis
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import TraceStep

A, B, C = "t.py::a", "t.py::b[x|y]", "t.py::c"


def rollout(node, case, score, repeat=0, trace=None, **reach):
    outcome = Outcome.PASSED if score == 1 else Outcome.FAILED
    if score is None:
        outcome = Outcome.CRASHED
    return Rollout(
        node, node, case, repeat, outcome, score, reach=Reach(**reach), trace=trace
    )


def node(name, scores, files=(), base="c0000", tree=None, **reach):
    entries = tuple(ChangelogEntry(file, f"why {file}", "modified") for file in files)
    known = [score for score in scores.values() if score is not None]
    return Node(
        Candidate(name, tree or name, "c0000", base, changelog=entries),
        tuple(rollout(name, case, score, **reach) for case, score in scores.items()),
        mean=sum(known) / len(known) if known else None,
    )


def train(*ids):
    return [Case(case, Split.TRAIN) for case in ids]


def write(folder, nodes, cases, detail=None, attempts=(), **sources):
    evidence = gather(nodes, cases, attempts, Sources(detail, **sources))
    write_evidence(folder, evidence)
    return evidence


def chain():
    return [
        node("c0000", {A: 1.0, B: 0.0, C: 0.5}),
        node("c0001", {A: 0.0, B: 0.5, C: 0.5}, ["p.md"]),
        node("c0001-1", {A: 0.5, B: 1.0, C: 0.5}, ["q.md"], base="c0001"),
    ]


def test_score_history_compares_with_parent_and_with_the_node_before():
    row = score_history(chain())[0]
    assert row.scores == (1.0, 0.0, 0.5)
    assert (row.against_parent, row.against_before) == (-0.5, 0.5)
    assert row.turns == 1


def test_score_history_averages_repeats_and_leaves_gaps():
    first = Node(
        Candidate("c0000", "t"),
        (rollout("c0000", A, 1.0), rollout("c0000", A, 0.0, 1)),
    )
    second = node("c0001", {A: None, B: 1.0})
    rows = score_history([first, second])
    assert [row.scores for row in rows] == [(0.5, None), (None, 1.0)]
    assert rows[0].outcomes == (
        (Outcome.PASSED, Outcome.FAILED),
        (Outcome.CRASHED,),
    )
    assert rows[0].against_parent is None
    assert score_history([]) == ()


def test_facts_are_measured():
    facts = measure(chain())
    assert (facts.lost, facts.won) == ((A,), (B,))
    assert (facts.oscillating, facts.unmoved) == ((A,), (C,))
    assert all(reach.never for reach in facts.reach)


def test_an_edit_that_could_have_been_read_unseen_is_not_called_unread():
    read = node("c1", {A: 1.0}, ["p.md"])
    seen = Node(read.candidate, (rollout("c1", A, 1.0, files=("p.md",)),), mean=1.0)
    unsure = Node(read.candidate, (rollout("c1", A, 1.0, exact=False),), mean=1.0)
    parent = node("c0000", {A: 0.0})
    assert measure([parent, read]).reach[0].never
    assert not measure([parent, seen]).reach[0].never
    assert measure([parent, seen]).reach[0].reached == 1
    assert not measure([parent, unsure]).reach[0].never


def test_nodes_with_the_same_files_are_named():
    nodes = [node("c0000", {A: 0.0}, tree="x"), node("c0001", {A: 0.0}, tree="x")]
    assert measure(nodes).twins == (("c0000", "c0001"),)


def test_evidence_is_written(tmp_path):
    nodes = chain()
    nodes[1] = Node(
        nodes[1].candidate,
        nodes[1].rollouts,
        (Diagnosis((A,), "it is vague"),),
        nodes[1].mean,
    )
    write(tmp_path / "e", nodes, train(A, B, C))
    table = (tmp_path / "e/scores.md").read_text()
    assert "| t.py::a | 1 | 0 | 0.5 | -0.5 | +0.5 |" in table
    assert "b[x\\|y]" in table
    data = json.loads((tmp_path / "e/scores.json").read_text())
    assert [each["id"] for each in data["nodes"]] == ["c0000", "c0001", "c0001-1"]
    assert data["cases"][0]["scores"] == [1.0, 0.0, 0.5]
    log = (tmp_path / "e/changelog.md").read_text()
    assert log.index("c0001 (from c0000") < log.index("why p.md")
    assert log.index("why p.md") < log.index("c0001-1 (from c0001")
    assert "NEVER read" in (tmp_path / "e/facts.md").read_text()
    read = json.loads((tmp_path / "e/diagnoses.json").read_text())
    assert read[0]["node"] == "c0001"
    assert len(list((tmp_path / "e/rollouts").glob("*/*.json"))) == 9


def test_rollouts_come_with_their_details(tmp_path):
    detail = Detail(
        (Phase("call", "failed", 0.1, "boom", "E boom", (("stdout", "said"),)),),
        (TraceStep("search", {"k": 3}),),
        ("careful",),
    )
    here = Node(Candidate("c0000", "t"), (rollout("c0000", A, 0.0, trace="n/1"),))
    write(tmp_path, [here], train(A), {"n/1": detail}.__getitem__)
    (file,) = (tmp_path / "rollouts/c0000").iterdir()
    (told,) = json.loads(file.read_text())["rollouts"]
    assert told["failure"] == "boom\nE boom" or told["failure"] == "E boom"
    assert told["output"] == [["stdout", "said"], ["warnings", "careful"]]
    assert told["steps"] == ['search {"k": 3}']


@pytest.mark.parametrize("split", [Split.VAL, Split.TEST])
def test_cases_that_are_held_out_raise_and_leave_nothing(tmp_path, split):
    with pytest.raises(ValueError, match="train cases only"):
        write(tmp_path / "e", [node("c", {A: 1.0})], [Case(A, split), *train(B)])
    with pytest.raises(ValueError, match="not in it"):
        write(tmp_path / "e", [node("c", {A: 1.0, B: 1.0})], train(A))
    assert not (tmp_path / "e").exists()


def test_long_texts_are_cut_in_the_middle(tmp_path):
    long = "x" * (3 * MOST_TEXT) + "end"
    detail = Detail((Phase("call", "failed", 0.1, "", long),))
    here = Node(Candidate("c0000", "t"), (rollout("c0000", A, 0.0, trace="n"),))
    write(tmp_path, [here], train(A), lambda trace: detail)
    (file,) = (tmp_path / "rollouts/c0000").iterdir()
    assert file.stat().st_size < 2 * MOST_TEXT
    assert "end" in file.read_text()


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.text(max_size=200), st.text(max_size=40))
@example("a\x85b\u2028c\u202e|`", "\n## x")
def test_hostile_names_and_texts_stay_inside(tmp_path_factory, case, said):
    root = tmp_path_factory.mktemp("hostile")
    entry = ChangelogEntry(said, case, "modified", (said,))
    here = Node(
        Candidate("c0001", "t", base="c0000", changelog=(entry,)),
        (rollout("c0001", case, 0.0, trace="n"),),
    )
    parent = node("c0000", {case: 1.0})
    detail = Detail((Phase("call", "failed", 0.0, said, case, ((said, case),)),))
    write(root / "a" / "e", [parent, here], train(case), lambda trace: detail)
    assert [path.name for path in root.iterdir()] == ["a"]
    assert [path.name for path in (root / "a").iterdir()] == ["e"]
    (file,) = (root / "a/e/rollouts/c0001").iterdir()
    told = json.loads(file.read_bytes())
    assert told["case"] == case
    rows = (root / "a/e/scores.md").read_text().splitlines()
    assert len(rows) == 8


def test_names_that_look_alike_get_files_of_their_own(tmp_path):
    cases = ["t.py::a[/]", "t.py::a[.]", "t.py::a[ ]", "..", "\ud800", "x" * 300]
    write(tmp_path, [node("c0000", dict.fromkeys(cases, 1.0))], train(*cases))
    assert len(list((tmp_path / "rollouts/c0000").iterdir())) == len(cases)


def test_no_diagnosis_reads_nothing():
    found = asyncio.run(NoDiagnosis().diagnose(chain()))
    assert (found.diagnoses, found.usage.calls) == ((), 0)
