from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.engine.splitting import deal
from pytest_evo.errors import SuiteProblem
from pytest_evo.models import CaseMark
from pytest_evo.models import Outcome
from pytest_evo.models import Split


def marks(count: int, group: dict[int, str] | None = None) -> list[CaseMark]:
    return [
        CaseMark(
            f"t{n % 3}.py::t[{n}]", f"t{n % 3}.py", 1, "", group=(group or {}).get(n)
        )
        for n in range(count)
    ]


def outcomes(cases: list[CaseMark]) -> dict[str, Outcome]:
    return {
        case.id: Outcome.PASSED if number % 4 else Outcome.FAILED
        for number, case in enumerate(cases)
    }


@given(count=st.integers(40, 200), seed=st.integers(0, 5))
def test_forty_cases_or_more_are_dealt_40_30_30(count: int, seed: int) -> None:
    cases = marks(count)
    sizes = Counter(deal(cases, outcomes(cases), {}, None, seed).values())
    assert abs(sizes[Split.TRAIN] - 0.4 * count) <= 1
    assert abs(sizes[Split.VAL] - 0.3 * count) <= 1
    assert abs(sizes[Split.TEST] - 0.3 * count) <= 1


@given(count=st.integers(2, 39), seed=st.integers(0, 5))
def test_fewer_cases_are_dealt_half_and_half(count: int, seed: int) -> None:
    cases = marks(count)
    sizes = Counter(deal(cases, outcomes(cases), {}, None, seed).values())
    assert sizes[Split.TEST] == 0
    assert abs(sizes[Split.TRAIN] - sizes[Split.VAL]) <= 1


def test_single_case_is_counted_as_one_where_it_leaves_a_split_empty() -> None:
    cases = marks(1)
    with pytest.raises(SuiteProblem, match=r"^of 1 case none is val: "):
        deal(cases, outcomes(cases), {cases[0].id: Split.TRAIN}, None, 0)


def test_failing_cases_are_spread_over_all_splits() -> None:
    cases = marks(120)
    ends = outcomes(cases)
    splits = deal(cases, ends, {}, None, 0)
    failing = Counter(
        splits[case] for case, end in ends.items() if end is Outcome.FAILED
    )
    assert min(failing.values()) >= 7
    assert sum(failing.values()) == 30


@given(
    count=st.integers(10, 80),
    groups=st.dictionaries(st.integers(0, 79), st.sampled_from("abc")),
    seed=st.integers(0, 3),
)
def test_group_is_kept_together(count: int, groups: dict[int, str], seed: int) -> None:
    cases = marks(count, groups)
    try:
        splits = deal(cases, outcomes(cases), {}, None, seed)
    except SuiteProblem:
        assert len(set(groups.values())) > 0
        return
    for name in "abc":
        mine = {splits[case.id] for case in cases if case.group == name}
        assert len(mine) <= 1


def test_seed_decides_the_deal_and_order_of_cases_does_not() -> None:
    cases = marks(50)
    ends = outcomes(cases)
    one = deal(cases, ends, {}, None, 1)
    assert deal(list(reversed(cases)), ends, {}, None, 1) == one
    assert deal(cases, ends, {}, None, 2) != one


def test_naming_val_alone_makes_the_rest_train() -> None:
    cases = marks(50)
    named = {cases[0].id: Split.VAL, cases[1].id: Split.VAL}
    splits = deal(cases, outcomes(cases), named, None, 0)
    assert Counter(splits.values()) == {Split.VAL: 2, Split.TRAIN: 48}


def test_naming_test_alone_deals_the_rest_into_train_and_val() -> None:
    cases = marks(42)
    named = {case.id: Split.TEST for case in cases[:10]}
    sizes = Counter(deal(cases, outcomes(cases), named, None, 0).values())
    assert sizes[Split.TEST] == 10
    assert sizes[Split.TRAIN] + sizes[Split.VAL] == 32
    assert min(sizes.values()) > 0


def test_suite_without_val_is_refused_with_what_to_do() -> None:
    cases = marks(5)
    named = {case.id: Split.TRAIN for case in cases}
    with pytest.raises(SuiteProblem, match=r'evo\(split="val"\)'):
        deal(cases, outcomes(cases), named, None, 0)


def test_torn_group_is_refused() -> None:
    cases = marks(6, {0: "a", 1: "a"})
    named = {cases[0].id: Split.TRAIN, cases[1].id: Split.VAL}
    with pytest.raises(SuiteProblem, match="torn apart"):
        deal(cases, outcomes(cases), named, None, 0)
