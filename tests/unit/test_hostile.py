from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.hostile import cut
from pytest_evo.hostile import fenced
from pytest_evo.hostile import one_line
from pytest_evo.hostile import share
from pytest_evo.hostile import visible

TEXTS = st.text(max_size=3_000) | st.lists(
    st.text(alphabet="ab \n`", max_size=90), max_size=60
).map("\n".join)


@given(TEXTS, st.integers(min_value=-3, max_value=1_500))
def test_cut_text_never_exceeds_its_budget_and_keeps_both_ends(
    text: str, budget: int
) -> None:
    short = cut(text, budget)
    assert len(short) <= max(0, budget)
    if len(text) <= budget:
        assert short == text
    elif budget >= 8:
        assert short[0] == text[0]
        assert short[-1] == text[-1]


@given(st.integers(min_value=400, max_value=5_000))
def test_cut_text_keeps_much_of_what_the_budget_allows(budget: int) -> None:
    text = "\n".join(f"line {number}" for number in range(5_000))
    short = cut(text, budget)
    assert len(short) > budget * 0.6
    assert short.startswith("line 0\n")
    assert short.endswith("line 4999")
    assert "\n[... the middle is left out ...]\n" in short
    kept = [line for line in short.splitlines() if not line.startswith("[...")]
    assert all(re.fullmatch(r"line \d+", line) for line in kept if line)


@given(
    st.lists(st.integers(min_value=0, max_value=500), max_size=12),
    st.integers(min_value=-5, max_value=2_000),
)
def test_shares_fit_sizes_and_total_and_waste_nothing(
    sizes: list[int], total: int
) -> None:
    shares = share(sizes, total)
    assert all(0 <= one <= size for one, size in zip(shares, sizes, strict=True))
    assert sum(shares) <= max(0, total)
    if sum(sizes) <= total:
        assert shares == sizes
    elif total >= 0 and sizes:
        assert sum(shares) == total


def test_shares_give_small_ones_all_and_the_others_the_same() -> None:
    assert share([10, 1_000, 900, 5], 215) == [10, 100, 100, 5]


@given(TEXTS, st.none() | st.integers(min_value=0, max_value=300))
def test_fence_cannot_be_closed_from_inside(text: str, budget: int | None) -> None:
    first, *inside, last = fenced(text, budget).split("\n")
    assert first == f"{last}text"
    assert set(last) == {"`"}
    assert not any(last in line for line in inside)


@given(st.text(max_size=500))
def test_visible_text_hides_nothing(text: str) -> None:
    plain = visible(text)
    for char in plain.replace("\n", "").replace("\t", ""):
        assert unicodedata.category(char) not in {"Cc", "Cs", "Zl", "Zp"}
        assert unicodedata.bidirectional(char) not in {"RLO", "LRO", "RLE", "RLI"}
    plain.encode("utf-8")
    assert "\n" not in one_line(text)


@given(TEXTS, st.integers(min_value=0, max_value=1_500))
def test_line_stays_one_where_its_middle_is_left_out(text: str, budget: int) -> None:
    line = one_line(text, budget)
    assert len(line) <= budget
    assert len(line.splitlines()) <= 1


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb", "a\\u200bb"),
        ("a\x00b\x08c", "a\\x00b\\x08c"),
        ("tag\U000e0041", "tag\\U000e0041"),
        ("lone \ud800", "lone \\ud800"),
        ("two\r\nlines\tand a tab", "two\nlines\tand a tab"),
        ("\x1b]0;title\x07x", "x"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, seen: str) -> None:
    assert visible(text) == seen
