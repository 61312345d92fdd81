from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from diagnosis_world import reading
from diagnosis_world import scripted
from diagnosis_world import versions
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.diagnosis.brief import failures_text
from pytest_evo.diagnosis.failures import by_kinds
from pytest_evo.diagnosis.failures import failure_kind
from pytest_evo.diagnosis.failures import failure_line
from pytest_evo.diagnosis.mara import CaseByCase
from pytest_evo.diagnosis.mara import MOST_CASES
from pytest_evo.diagnosis.traces import make_traces
from pytest_evo.evidence import Trace
from pytest_evo.models import Candidate
from pytest_evo.models import Detail
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Rollout

KINDS = ("the answer is empty", "no source", "too long", "wrong unit", "not JSON")


def trace(case: str, failure: str) -> Trace:
    return Trace("c0000", case, 0, Outcome.FAILED, 0.0, failure)


def report(number: int) -> str:
    """A long report of one of five kinds, its assertion in the middle."""
    kind = KINDS[0 if number < 200 else number % 5]
    before = "".join(f"    line {row} of the source\n" for row in range(60))
    after = "".join(f"local_{row} = {row * number}\n" for row in range(60))
    return f"{before}E       AssertionError: case {number}: {kind}\n{after}"


def many(count: int = 240) -> Node:
    rollouts = tuple(
        Rollout(
            "c0000",
            "tree-0",
            f"t.py::test_a[{number}]",
            0,
            Outcome.FAILED,
            0.0,
            detail=Detail(
                (
                    Phase(
                        "call",
                        "failed",
                        0.1,
                        f"AssertionError: case {number}: "
                        f"{KINDS[0 if number < 200 else number % 5]}",
                        report(number),
                    ),
                )
            ),
        )
        for number in range(count)
    )
    return Node(Candidate("c0000", "tree-0"), rollouts)


@pytest.mark.parametrize(
    ("failure", "line"),
    [
        (report(7), "AssertionError: case 7: the answer is empty"),
        ("E   assert 1 == 2\nE    +  where 1 = f()\n\nt.py:3: AssertionError",
         "assert 1 == 2"),
        ("Timeout: it hung\n\n", "Timeout: it hung"),
        ("", "failed"),
    ],
)  # fmt: skip
def test_line_says_most_of_a_failure(failure: str, line: str) -> None:
    assert failure_line(trace("a", failure)) == line


def test_kind_does_not_depend_on_values() -> None:
    one = failure_kind(trace("a", "E   assert 'Rome' == 'Paris'  # 0x7f01 in 12 s"))
    two = failure_kind(trace("b", "E   assert 'Oslo' == 'Bern'  # 0x7e44 in 7 s"))
    assert one == two
    assert failure_kind(trace("c", "E   KeyError: 'x'")) != one


@given(st.lists(st.sampled_from("abcd"), max_size=30), st.integers(0, 30))
def test_every_beginning_has_as_many_kinds_as_it_can(names: str, size: int) -> None:
    traces = [trace(str(n), f"E   kind {name}") for n, name in enumerate(names)]
    ordered = by_kinds(traces)
    assert sorted(t.case for t in ordered) == sorted(t.case for t in traces)
    head = {failure_line(t) for t in ordered[:size]}
    assert len(head) == min(size, len(set(names)), len(ordered))


def test_many_failures_fit_one_prompt_with_all_kinds_and_none_without_its_line() -> (
    None
):
    traces = make_traces([many()])
    text = failures_text(traces, 30_000)
    assert len(text) < 33_000
    shown = text.split("more failures, whose traces are left out")[0]
    for kind in KINDS:
        assert f": {kind}\n" in shown
    sections = shown.split("### `t.py::test_a[")[1:]
    assert len(sections) > 10
    for section in sections:
        number = section.partition("]")[0]
        assert f"AssertionError: case {number}: " in section
    left_out = text[text.rindex("###") :]
    assert int(left_out.split()[1]) == 240 - len(sections)
    assert "AssertionError: case " in left_out


@given(st.integers(0, 40), st.integers(500, 20_000))
def test_failures_never_take_much_more_than_their_budget(
    count: int, budget: int
) -> None:
    text = failures_text(make_traces([many(count)]), budget)
    assert len(text) <= budget + 1_200


def test_cases_of_all_kinds_are_read_where_there_are_too_many() -> None:
    model = scripted(reading(quotes=[]))
    node = replace(many(), mean=0.0)
    found = asyncio.run(CaseByCase(model, versions()).diagnose([node]))
    assert len(found.diagnoses) == MOST_CASES
    numbers = [int(one.cases[0].split("[")[1][:-1]) for one in found.diagnoses]
    assert numbers == sorted(numbers)
    assert {KINDS[0 if n < 200 else n % 5] for n in numbers} == set(KINDS)
    assert found.problems == ("216 more failing cases were not read: too many",)
