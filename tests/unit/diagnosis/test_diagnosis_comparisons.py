"""What pytest says of a failed comparison, without what was expected."""

from __future__ import annotations

import pytest

from pytest_evo.diagnosis.comparisons import report_without_right_sides
from pytest_evo.diagnosis.comparisons import without_right_side

WANTED = """
def wanted():
    return {wanted!r}

def asked(question):
    return {given!r}

def test_it():
    assert asked("a question") == wanted()
"""
LONG = "\n".join(f"secret line {n}" for n in range(4))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ("seen", "secret"),
        ("seen and more", "seen and secret"),
        ("line 1\nseen\n", LONG),
        (["seen", 1], ["secret", 1]),
        (["seen"], ["seen", "secret", "secret 2"]),
        ({"a": "seen"}, {"a": "secret"}),
        ({"a": "seen"}, {"a": "seen", "b": "secret"}),
        ({"seen"}, {"secret", "seen"}),
        (("seen",), ("secret",)),
    ],
    ids=["text", "diff", "lines", "list", "longer", "dict", "keys", "set", "tuple"],
)
@pytest.mark.parametrize("verbose", ["-q", "-vv"])
def test_nothing_of_the_right_side_is_left(
    pytester: pytest.Pytester, given: object, wanted: object, verbose: str
) -> None:
    pytester.makepyfile(WANTED.format(given=given, wanted=wanted))
    result = pytester.runpytest(verbose, "--color=no")
    report = "\n".join(
        line for line in result.outlines if line.startswith("E ") or line[:1] == ">"
    )
    assert "secret" in report
    cut = report_without_right_sides(report, "#")
    assert "secret" not in cut
    assert "seen" in cut
    assert "asked(" in cut


def test_message_of_a_failure_is_cut_like_its_report() -> None:
    message = "AssertionError: assert 'seen' == 'secret'\n  \n  - secret\n  + seen"
    assert without_right_side(message, "#") == (
        "AssertionError: assert 'seen' == #\n  \n  - #\n  + seen"
    )


@pytest.mark.parametrize(
    "text",
    [
        "assert 3 >= 4",
        "ValueError: a == b",
        "it said - nothing",
        "assert 'a' in 'abc'",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert without_right_side(text, "#") == text
    assert report_without_right_sides(f"E   {text}", "#") == f"E   {text}"


def test_lines_of_source_and_output_are_no_explanations() -> None:
    report = "    assert a == b\n>   assert a == 'c'\n- item"
    assert report_without_right_sides(report, "#") == report
