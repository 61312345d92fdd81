from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.diagnosis.brief import brief_text
from pytest_evo.diagnosis.evidence import gather
from pytest_evo.diagnosis.evidence import Sources
from pytest_evo.diagnosis.files import MOST_TEXT
from pytest_evo.diagnosis.files import write_evidence
from pytest_evo.diagnosis.history import measure
from pytest_evo.diagnosis.history import score_history
from pytest_evo.diagnosis.none import NoDiagnosis
from pytest_evo.diagnosis.rendering import facts_text
from pytest_evo.evidence import Bypass
from pytest_evo.evidence import Repetition
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Attempt
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Detail
from pytest_evo.models import Diagnosis
from pytest_evo.models import Effect
from pytest_evo.models import FileRule
from pytest_evo.models import Kind
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import TraceStep
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

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


# -- facts over a chain and earlier attempts -------------------------------------------


def edited(name, scores, file, effect, tree=None, base="c0000"):
    made = node(name, scores, [file], base, tree)
    (entry,) = made.candidate.changelog
    candidate = replace(made.candidate, changelog=(replace(entry, effect=effect),))
    return replace(made, candidate=candidate)


def trees(**contents):
    """Versions by their names: path to content."""
    return {
        name: Tree(
            name,
            tuple(TreeEntry(path, "file", blob=text) for path, text in files.items()),
        )
        for name, files in contents.items()
    }.__getitem__


def test_edit_that_was_read_and_moved_nothing_is_named_with_its_kind():
    parent = node("c0000", {A: 0.0, B: 1.0})
    still = Effect("c0000", (A, B), (), 0.5, 0.5)
    better = replace(still, better=(A,))
    unsure = replace(still, unsure=(A, B))
    schema = ArtifactSchema("art", (FileRule("run.py", kind=Kind.EXTENSION),))

    def bypassed(file, effect):
        chain = [parent, edited("c0001", {A: 0.0, B: 1.0}, file, effect)]
        return measure(chain, schema=schema).bypassed

    assert bypassed("p.md", still) == (Bypass("c0001", "p.md", Kind.PROSE, (A,)),)
    assert bypassed("run.py", still)[0].kind is Kind.EXTENSION
    assert bypassed("p.toml", still)[0].kind is Kind.CONFIG
    assert bypassed("p.md", better) == ()
    assert bypassed("p.md", replace(still, worse=(A,))) == ()
    assert bypassed("p.md", replace(still, worse=(B,))) == ()
    assert bypassed("p.md", unsure) == ()
    assert bypassed("p.md", None) == ()


def scored(name, outcome, score):
    """A node that edited a file which its only case reads."""
    effect = Effect("c0000", (A,), (), 0.5, 0.5)
    made = edited(name, {}, "p.md", effect)
    return replace(made, rollouts=(Rollout(name, name, A, 0, outcome, score),))


@pytest.mark.parametrize(
    ("before", "after", "stuck"),
    [
        ((Outcome.FAILED, 0.5), (Outcome.FAILED, 0.5), True),
        ((Outcome.FAILED, 0.5), (Outcome.FAILED, 0.25), False),
        ((Outcome.PASSED, 0.5), (Outcome.PASSED, 0.5), False),
        ((Outcome.PASSED, 0.5), (Outcome.FAILED, 0.5), False),
        ((Outcome.CRASHED, None), (Outcome.FAILED, 0.5), False),
    ],
)
def test_edit_is_bypassed_by_cases_that_failed_with_the_same_score(
    before, after, stuck
):
    facts = measure([scored("c0000", *before), scored("c0001", *after)])
    assert [one.cases for one in facts.bypassed] == [(A,)] * stuck


def test_content_that_was_there_before_is_found_in_the_chain_and_in_attempts():
    parent = node("c0003", {A: 0.0}, tree="parent")
    first = edited("c0004", {A: 0.0}, "p.md", None, tree="one", base="c0003")
    back = edited("c0004-1", {A: 0.0}, "p.md", None, tree="two", base="c0004")
    tried = edited("c0004-2", {A: 0.0}, "p.md", None, tree="three", base="c0004-1")
    attempt = Attempt(
        "c0001", "c0000", 1, 0, {A: 0.0}, -0.25, False, tree="old",
        changelog=(ChangelogEntry("p.md", "why", "modified"),),
    )  # fmt: skip
    read = trees(
        parent={"p.md": "start", "q.md": "q"},
        one={"p.md": "new", "q.md": "q"},
        two={"p.md": "start", "q.md": "q"},
        three={"p.md": "tried", "q.md": "q"},
        old={"p.md": "tried", "q.md": "other"},
    )
    facts = measure([parent, first, back, tried], attempts=[attempt], tree=read)
    assert facts.repeated == (
        Repetition("c0004-1", "p.md", "c0003"),
        Repetition("c0004-2", "p.md", "c0001", -0.25),
    )
    text = facts_text(facts)
    assert "c0004-2 `p.md`: the same content as in c0001, which gained -0.25" in text


def test_candidate_with_the_files_of_an_earlier_attempt_is_named():
    attempt = Attempt("c0001", "c0000", 1, 0, {A: 0.0}, 0.0, False, tree="same")
    nodes = [node("c0000", {A: 0.0}), node("c0002", {A: 0.0}, tree="same")]
    assert measure(nodes, attempts=[attempt]).twins == (("c0001", "c0002"),)
    parent = [node("c0001", {A: 0.0}, tree="same")]  # it was an attempt itself
    assert measure(parent, attempts=[attempt]).twins == ()


def test_newest_attempts_on_cases_of_the_batch_are_shown(tmp_path):
    attempts = [
        Attempt(f"c{n:04}", "c0000", n, 0, {A if n % 2 else C: 0.0}, 0.125, False)
        for n in range(1, 101)
    ]
    evidence = write(tmp_path, [node("c0000", {A: 1.0})], train(A), attempts=attempts)
    shown = [attempt.candidate for attempt in evidence.attempts]
    assert shown == [f"c{n:04}" for n in range(61, 100, 2)]
    data = json.loads((tmp_path / "attempts.json").read_text())
    assert [one["candidate"] for one in data] == shown
    assert (
        "c0099 (from c0000, rejected, gain +0.125)"
        in (tmp_path / "attempts.md").read_text()
    )


def test_files_and_values_hold_the_same_facts(tmp_path):
    nodes = chain()
    effect = Effect("c0000", (A,), (), 1.0, 0.0, (), (A,))
    nodes[1] = edited("c0001", {A: 0.0, B: 0.5, C: 0.5}, "p.md", effect)
    diagnosis = Diagnosis((A,), "it is vague", weak=True, doubts=("no quote",))
    nodes[1] = replace(nodes[1], diagnoses=(diagnosis,))
    evidence = write(tmp_path, nodes, train(A, B, C))
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert facts["lost"] == list(evidence.facts.lost)
    assert [one["node"] for one in facts["reach"]] == ["c0001", "c0001-1"]
    changelog = json.loads((tmp_path / "changelog.json").read_text())
    assert changelog[1]["entries"][0]["effect"]["worse"] == [A]
    (told,) = json.loads((tmp_path / "diagnoses.json").read_text())
    assert (told["name"], told["weak"]) == ("c0001/1", True)
    assert [name for name, _ in evidence.diagnoses] == ["c0001/1"]
    brief = (tmp_path / "brief.md").read_text()
    assert "-1 against c0000 (1 to 0) on 1 case reaching the file" in brief
    assert "WEAK" in brief
    assert "# Traces of failures" in brief


def test_brief_is_about_as_long_as_it_may_be(tmp_path):
    detail = Detail((Phase("call", "failed", 0.1, "", "x " * 30_000),))
    rollouts = tuple(rollout("c0000", f"t.py::{n}", 0.0, trace="d") for n in range(12))
    nodes = [Node(Candidate("c0000", "t"), rollouts)]
    cases = train(*(one.case for one in rollouts))
    evidence = gather(nodes, cases, (), Sources(lambda trace: detail))
    assert 20_000 < len(brief_text(evidence, 30_000)) < 36_000


def test_secrets_are_taken_out_of_what_proposers_and_models_said(tmp_path):
    key = "sesame-4711-open"
    made = node("c0001", {A: 0.0}, ["p.md"])
    entry = ChangelogEntry("p.md", f"use {key}", "modified", (f"saw {key}",))
    made = replace(
        made,
        candidate=replace(made.candidate, changelog=(entry,)),
        diagnoses=(Diagnosis((A,), f"leaks {key}", methods={"m": key}),),
    )
    attempt = Attempt("c0009", "c0", 9, 0, {A: 0.0}, 0.0, False, changelog=(entry,))
    write(
        tmp_path,
        [node("c0000", {A: 0.0}), made],
        train(A),
        attempts=[attempt],
        redact=lambda text: text.replace(key, "[redacted]"),
    )
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or key not in path.read_text(), path
    assert "use [redacted]" in (tmp_path / "attempts.md").read_text()


def test_texts_are_cut_the_same_in_small_and_in_big_files(tmp_path):
    long = "\n".join(f"line {number}" for number in range(5_000))
    entry = ChangelogEntry("p.md", long, "modified", ("a", long))
    made = node("c0001", {A: 0.0})
    made = replace(made, candidate=replace(made.candidate, changelog=(entry, entry)))
    attempt = Attempt("c0009", "c0", 9, 0, {A: 0.0}, 0.0, False, changelog=(entry,))
    write(
        tmp_path,
        [node("c0000", {A: 0.0}), made],
        train(A),
        attempts=[attempt, replace(attempt, changelog=())],
    )
    (told,) = read(tmp_path, "changelog")[1]["entries"][:1]
    assert told["reason"] == told["evidence"][1]
    assert 0.9 * MOST_TEXT < len(told["reason"]) <= MOST_TEXT
    first, second = read(tmp_path, "attempts")
    assert first["changelog"] == [told]
    assert second["changelog"] == []
    text = (tmp_path / "attempts.json").read_text()
    assert text == json.dumps([first, second], indent=1)


def read(folder, name):
    return json.loads((folder / f"{name}.json").read_text())
