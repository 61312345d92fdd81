from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage

CENTS = st.integers(0, 1_000).map(float)
USAGES = st.one_of(
    st.builds(Usage, calls=st.integers(1, 9), usd=CENTS),
    st.builds(
        Usage,
        calls=st.integers(5, 9),
        usd=st.none(),
        unpriced=st.integers(1, 5),
        known_usd=CENTS,
        estimated_usd=st.none() | CENTS,
    ),
    st.builds(Usage, calls=st.integers(0, 9), usd=st.none()),
    st.just(NO_USAGE),
)


@given(USAGES, USAGES)
def test_sum_of_usages_loses_neither_known_nor_unknown_prices(
    one: Usage, other: Usage
) -> None:
    both = one + other
    assert both == other + one
    assert both.unpriced == one.unpriced + other.unpriced
    assert (both.usd is None) is (one.usd is None or other.usd is None)
    assert both.paid_usd == one.paid_usd + other.paid_usd
    blind = None in (one.estimated_usd, other.estimated_usd)
    assert (both.estimated_usd is None) is blind
    if not blind:
        assert both.counted_usd == one.counted_usd + other.counted_usd


@given(USAGES)
def test_usage_without_itself_is_nothing(one: Usage) -> None:
    assert one - one == NO_USAGE


def test_unknown_price_is_that_of_all_calls_where_no_more_is_said() -> None:
    assert Usage(calls=3, usd=None).unpriced == 3
    assert Usage(usd=None).unpriced == 1
    assert Usage(calls=3, usd=None).estimated_usd is None
