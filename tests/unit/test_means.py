from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.means import mean
from pytest_evo.means import mean_of
from pytest_evo.means import weighted_mean
from pytest_evo.models import Case
from pytest_evo.models import Split


def test_weighted_mean_counts_weights_and_ignores_weightless_vectors() -> None:
    assert weighted_mean({"a": 1.0, "b": 0.0}, {"a": 3.0}) == 0.75
    assert weighted_mean({"a": 1.0}, {"a": 0.0}) is None
    assert weighted_mean({}) is None


def test_mean_of_cases_leaves_out_what_has_no_score() -> None:
    cases = [
        Case(name, Split.VAL, weight=weight) for name, weight in (("a", 3), ("b", 1))
    ]
    assert mean_of({"a": 1.0, "b": 0.0, "other": 0.0}, cases) == 0.75
    assert mean_of({"b": 0.5}, cases) == 0.5
    assert mean_of({"other": 1.0}, cases) is None


@given(st.lists(st.floats(0, 1), min_size=1), st.randoms())
def test_means_do_not_depend_on_the_order(values: list[float], rng) -> None:
    scores = {str(number): value for number, value in enumerate(values)}
    shuffled = list(scores.items())
    rng.shuffle(shuffled)
    assert weighted_mean(dict(shuffled)) == weighted_mean(scores) == mean(values)
