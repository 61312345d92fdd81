from __future__ import annotations

import re
import xml.etree.ElementTree as ET

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.reports.text import cap
from pytest_evo.reports.text import clean
from pytest_evo.reports.text import code
from pytest_evo.reports.text import fence
from pytest_evo.reports.text import one_line
from pytest_evo.reports.text import plain
from pytest_evo.reports.text import scrub
from pytest_evo.reports.text import short_id
from pytest_evo.reports.text import visible

# all code points, lone surrogates among them
ANY_TEXT = st.text(st.characters(codec=None, categories=None))


@given(ANY_TEXT)
@example("\x00\x1b[31mred\x1b[0m\ufffe\ud800\x9b1m\r\nx\ry]]>&<")
def test_scrubbed_text_comes_back_from_xml_unchanged(text):
    element = ET.Element("a", {"b": scrub(text)})
    element.text = scrub(text)
    back = ET.fromstring(ET.tostring(element, encoding="utf-8"))
    assert (back.text or "") == scrub(text)
    assert back.get("b") == scrub(text)


@given(ANY_TEXT)
def test_scrub_is_idempotent_and_keeps_plain_text(text):
    once = scrub(text)
    assert scrub(once) == once
    if text.isascii() and text.isprintable():
        assert once == text


def test_scrub_drops_colours_and_links_but_not_what_follows_a_broken_one():
    assert scrub("\x1b[1;31mred\x1b[0m") == "red"
    assert scrub("\x1b]8;;http://x\x07link\x1b]8;;\x1b\\") == "link"
    assert scrub("\x1b]0;never ended\nnext line") == "\ufffd]0;never ended\nnext line"


def test_cap_keeps_head_and_tail_and_counts_the_rest():
    text = "a" * 100 + "z" * 100
    capped = cap(text, 40)
    assert capped.startswith("a" * 30 + "\n")
    assert capped.endswith("\n" + "z" * 10)
    assert "160 characters left out" in capped
    assert cap(text, 200) == text


def test_clean_of_a_huge_text_is_bounded():
    assert len(clean("\x1b[31mx" * 1_000_000, 1_000)) < 1_100


def test_one_line_folds_and_shortens():
    assert one_line("a\n\n  b\tc", 50) == "a b c"
    assert one_line("x" * 60, 50) == "x" * 47 + "..."


@given(st.lists(ANY_TEXT, unique=True, min_size=2, max_size=2))
def test_short_ids_of_different_names_differ(names):
    assert short_id(names[0]) != short_id(names[1])


@given(ANY_TEXT)
def test_short_ids_are_short(name):
    assert len(short_id(name * 50)) <= 250


@given(ANY_TEXT)
def test_visible_text_has_nothing_a_terminal_acts_on(text):
    assert visible(text).isprintable() or all(
        c.isprintable() or c.isspace() or ord(c) > 0x2FF or c == "\xa0"
        for c in visible(text)
    )
    assert not re.search(
        "[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", visible(text)
    )
    assert visible(text, ascii_only=True).isascii()


@given(ANY_TEXT)
@example("```\n@everyone\n````")
def test_fence_cannot_be_left(text):
    lines = fence(text, "diff", 1_000).split("\n")
    ticks = lines[0].removesuffix("diff")
    assert lines[-1] == ticks
    assert set(ticks) == {"`"}
    assert len(ticks) >= 3
    assert not any(ticks in line for line in lines[1:-1])


@given(ANY_TEXT)
@example("a\\|b|c`d``")
def test_code_in_a_table_cell_stays_in_its_cell(text):
    span = code(text, cell=True)
    assert "\n" not in span
    assert not re.search(r"(?<!\\)(?:\\\\)*\|", span)
    ticks = re.match("`+", span).group()
    assert span.endswith(ticks)
    assert ticks not in span[len(ticks) : -len(ticks)]


def test_plain_text_is_no_markup_and_mentions_nobody():
    assert plain("*a* <b> @me [x](y) #1") == (
        "\\*a\\* &lt;b\\> @\u200bme \\[x\\]\\(y\\) \\#1"
    )
