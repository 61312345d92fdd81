from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.engine.draws import SeededDraws
from pytest_evo.engine.population import ParetoTopN
from pytest_evo.engine.validation import can_enter
from pytest_evo.engine.validation import Full
from pytest_evo.engine.validation import Staged
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import Member
from pytest_evo.models import Outcome
from pytest_evo.models import Split
from pytest_evo.testing.strategy_contracts import ValidationContract


class TestFull(ValidationContract):
    @pytest.fixture
    def policy(self):
        return Full()


class TestStaged(ValidationContract):
    @pytest.fixture
    def policy(self):
        return Staged()


def val(count, failing=0, files=1):
    return tuple(
        Case(
            f"t{at % files}.py::c{at}",
            Split.VAL,
            file=f"t{at % files}.py",
            outcome=Outcome.FAILED if at < failing else Outcome.PASSED,
        )
        for at in range(count)
    )


@settings(deadline=None)
@given(st.integers(4, 80), st.data())
def test_first_stage_is_a_quarter_with_its_share_of_failures(count, data):
    failing = data.draw(st.integers(0, count))
    first, rest = Staged().stages(
        val(count, failing), SeededDraws(data.draw(st.integers(0, 20)))
    )
    assert len(first) == max(1, round(count / 4))
    assert len(first) + len(rest) == count
    found = sum(case.outcome is Outcome.FAILED for case in first)
    assert abs(found - failing * len(first) / count) < 1.0001


def test_first_stage_spreads_over_files():
    first, _ = Staged().stages(val(40, files=5), SeededDraws(0))
    assert len({case.file for case in first}) == 5


def test_stages_depend_on_the_seed_alone():
    cases = val(40)
    assert Staged().stages(cases, SeededDraws(1)) == Staged().stages(
        cases, SeededDraws(1)
    )
    assert Staged().stages(cases, SeededDraws(1)) != Staged().stages(
        cases, SeededDraws(2)
    )


def test_few_val_cases_are_one_stage():
    assert [len(stage) for stage in Staged().stages(val(3), SeededDraws(0))] == [3]
    assert list(Staged().stages((), SeededDraws(0))) == []


@pytest.mark.parametrize("share", [0.0, 1.0, 2.0])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(ValueError, match="between 0 and 1"):
        Staged(share)


def member(name, scores):
    return Member(Candidate(name, name), scores, sum(scores.values()) / len(scores))


def test_a_child_that_can_only_be_dominated_cannot_enter():
    cases = val(4)
    ids = [case.id for case in cases]
    best = member("best", dict(zip(ids, [1.0, 1.0, 0.0, 1.0], strict=True)))
    child = Candidate("child", "child")
    hopeless = dict(zip(ids, [0.0, 1.0, 0.0], strict=False))
    hopeful = dict(zip(ids, [0.0, 0.9], strict=False))
    assert not can_enter([best], child, hopeless, cases, ParetoTopN(3))
    assert can_enter([best], child, hopeful, cases, ParetoTopN(3))
    assert not can_enter([best], child, hopeful, cases, ParetoTopN(1))


def test_a_child_of_which_nothing_is_known_can_enter():
    cases = val(2)
    perfect = member("best", {case.id: 1.0 for case in cases})
    assert can_enter([perfect], Candidate("n", "n"), {}, cases, ParetoTopN(1))


def test_weights_count_in_what_can_enter():
    cases = (
        Case("a", Split.VAL, weight=9.0),
        Case("b", Split.VAL, weight=1.0),
    )
    best = Member(Candidate("best", "best"), {"a": 1.0, "b": 0.0}, 0.9)
    child = Candidate("child", "child")
    assert not can_enter([best], child, {"a": 0.0}, cases, ParetoTopN(1))
