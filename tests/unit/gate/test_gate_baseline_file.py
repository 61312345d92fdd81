from __future__ import annotations

import json
from dataclasses import replace
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.errors import BaselineProblem
from pytest_evo.gate.baseline import Baseline
from pytest_evo.gate.baseline import baseline_text
from pytest_evo.gate.baseline import BaselineCase
from pytest_evo.gate.baseline import file_digests
from pytest_evo.gate.baseline import read_baseline
from pytest_evo.models import Metric
from pytest_evo.models import Outcome
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

names = st.lists(
    st.text(
        st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=9
    ),
    unique=True,
    max_size=4,
).map(lambda found: tuple(sorted(found)))


@st.composite
def baselines(draw: st.DrawFn) -> Baseline:
    rows = {}
    for case in draw(names):
        project = draw(names)
        rows[case] = BaselineCase(
            id=case,
            fingerprint=draw(st.text("0123456789abcdef", max_size=24)),
            body=draw(st.text("0123456789abcdef", max_size=24)),
            outcome=draw(st.sampled_from([Outcome.PASSED, Outcome.FAILED])),
            runs=draw(st.integers(1, 9)),
            passes=draw(st.integers(0, 9)),
            metrics=draw(st.sampled_from([(), (Metric("recall", 0.5, True),)])),
            mean=draw(st.sampled_from([0.0, 0.25, 1.0])),
            variance=draw(st.sampled_from([0.0, 0.1875])),
            noisy=draw(st.booleans()),
            seconds=draw(st.sampled_from([0.0, 1.5])),
            tokens=draw(st.sampled_from([0.0, 12.5])),
            usd=draw(st.sampled_from([None, 0.0, 0.25])),
            reach=draw(st.none() | names),
            project=project,
            project_digest="d" * len(project),
        )
    return Baseline(
        artifact="art",
        tree="t" * 64,
        files={"a.txt": "1" * 24},
        bytes=12,
        cases=rows,
        made=date(2026, 1, 31),
        commit="c" * 40,
        versions={"python": "3.12", "environment": ""},
    )


@given(baselines())
def test_baseline_comes_back_as_it_was_written(baseline: Baseline) -> None:
    text = baseline_text(baseline)
    assert read_baseline(text, "evo-baseline.json") == baseline
    assert baseline_text(read_baseline(text, "x")) == text


@given(baselines(), st.randoms())
def test_baseline_does_not_depend_on_the_order_of_cases(
    baseline: Baseline, chance: object
) -> None:
    order = list(baseline.cases)
    chance.shuffle(order)  # type: ignore[attr-defined]
    shuffled = replace(baseline, cases={case: baseline.cases[case] for case in order})
    assert baseline_text(shuffled) == baseline_text(baseline)


def sample() -> Baseline:
    case = BaselineCase("t.py::a", "f", "b", Outcome.PASSED, 1, 1, 1.0, 0.0, False)
    cases = {name: replace(case, id=name) for name in ("t.py::a", "t.py::b")}
    return Baseline("art", "t", {}, 0, cases, date(2026, 1, 31))


def test_one_case_is_one_line() -> None:
    before = baseline_text(sample()).splitlines()
    new = replace(sample().cases["t.py::b"], mean=0.5)
    after = baseline_text(replace(sample(), cases={**sample().cases, new.id: new}))
    changed = [a for a, b in zip(before, after.splitlines(), strict=True) if a != b]
    assert len(changed) == 1
    assert '"t.py::b"' in changed[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data.update(pytest_evo_baseline=2), "version 1"),
        (lambda data: data.pop("cases"), "cases"),
        (lambda data: data.update(more=1), "more"),
        (lambda data: data["cases"]["t.py::a"].update(mean=1.5), "mean"),
        (lambda data: data["cases"]["t.py::a"].update(runs=0), "runs"),
        (lambda data: data["cases"]["t.py::a"].update(reach=7), "no set of files"),
        (lambda data: data["cases"]["t.py::a"].update(project=-1), "project"),
        (lambda data: data.update(project=[[]]), "project"),
    ],
)
def test_damaged_baselines_are_refused_with_what_to_type(change, said) -> None:
    data = json.loads(baseline_text(sample()))
    change(data)
    with pytest.raises(BaselineProblem, match=said) as caught:
        read_baseline(json.dumps(data), "evo-baseline.json")
    assert "pytest --evo-baseline-update" in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "[" * 100_000])
def test_what_is_no_baseline_is_refused(text: str) -> None:
    with pytest.raises(BaselineProblem):
        read_baseline(text, "x")


def test_digests_tell_contents_execute_bits_and_links_apart() -> None:
    tree = Tree(
        "t",
        (
            TreeEntry("a", "file", 0o644, "a" * 64, 1),
            TreeEntry("b", "file", 0o755, "a" * 64, 1),
            TreeEntry("c", "link", 0o777, target="a"),
            TreeEntry("d", "dir", 0o755),
        ),
    )
    found = file_digests(tree)
    assert set(found) == {"a", "b", "c"}
    assert len(set(found.values())) == 3
