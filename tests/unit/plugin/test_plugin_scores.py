"""Which failures are ``evo_score``'s own: values that are no score."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pytest_evo.plugin.recording import refused_as_score
from pytest_evo.plugin.recording import Score


@pytest.fixture
def evo_score() -> Score:
    item = SimpleNamespace(stash=pytest.Stash(), user_properties=[])
    return Score(item)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [(40,), (-0.1,), (float("nan"),), ("0.5",), ("mrr", "high"), ("", 0.5), (b"1",)],
)
def test_what_is_no_score_is_told_from_other_failures(evo_score, given):
    with pytest.raises((TypeError, ValueError)) as caught:
        evo_score(*given)
    assert refused_as_score(caught.value)


def test_score_outside_its_range_is_told_with_what_to_type(evo_score):
    with pytest.raises(ValueError, match=r"^40 given .* like evo_score\(value / 100\)"):
        evo_score(40)


def test_errors_of_the_test_and_of_values_are_not_those_of_scores(evo_score):
    class Broken:
        def __float__(self) -> float:
            raise KeyError("answer")

    with pytest.raises(KeyError) as caught:
        evo_score(Broken())
    assert not refused_as_score(caught.value)
    with pytest.raises(ValueError, match="forty") as wrong:
        evo_score(int("forty"))
    assert not refused_as_score(wrong.value)
    assert not refused_as_score(ValueError("never raised"))
