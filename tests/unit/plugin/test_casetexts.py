"""What cases are made of, as the worker reads it."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from pytest_evo.plugin.casetexts import CaseTexts
from pytest_evo.plugin.casetexts import leaves
from pytest_evo.spots import split
from pytest_evo.spots import spots_of


@dataclass
class Row:
    question: str
    expected: list[str]


class Named(NamedTuple):
    question: str
    gold: str


def paths(pytester: pytest.Pytester, source: str) -> dict[str, str]:
    """The paths by a text that is looked for, of the only test in a module."""
    items = pytester.getitems(source)
    return {path: spots for item in items for path, spots in CaseTexts().of(item)}


def holds(rows: dict[str, str], path: str, text: str) -> bool:
    return set(spots_of(text)) <= set(split(rows.get(path, "")))


def test_leaves_are_named_by_keys_attributes_and_fields() -> None:
    value = {
        "rows": [Row("who", ["Ada Byron"]), Named("where", "London")],
        "other": SimpleNamespace(n=12345, yes=True, none=None),
    }
    assert {tuple(leaf) for leaf in leaves("case", value)} == {
        ("case.rows.question", "who"),
        ("case.rows.expected", "Ada Byron"),
        ("case.rows.question", "where"),
        ("case.rows.gold", "London"),
        ("case.other.n", "12345"),
    }


def test_values_that_hold_themselves_and_endless_ones_end() -> None:
    circle: list[object] = ["once"]
    circle.append(circle)
    assert next(leaves("a", circle)).text == "once"
    assert len(list(leaves("a", [str(n) for n in range(5_000)]))) < 1_001
    assert list(leaves("a", 10**5000)) == []


@dataclass(slots=True)
class Slotted:
    """A case whose attributes are slots."""

    expected: str


class Hostile(str):
    """Raises whatever is asked of it; so does an object that is not bound."""

    def __str__(self) -> str:
        raise RuntimeError("not bound")

    @property
    def __class__(self) -> type:
        raise RuntimeError("not bound")


class Unbound:
    """The same for an object that holds nothing plain."""

    @property
    def __dict__(self) -> dict[str, object]:
        raise RuntimeError("not bound")

    @property
    def __class__(self) -> type:
        raise RuntimeError("not bound")


def test_slots_are_read_and_no_code_of_a_value_is_run() -> None:
    value = [Slotted("Ada Byron"), Hostile("text"), Unbound(), str, pytest, print]
    assert [tuple(leaf) for leaf in leaves("a", value)] == [
        ("a", "text"),
        ("a.expected", "Ada Byron"),
    ]


def test_parameters_and_literals_are_read(pytester: pytest.Pytester) -> None:
    rows = paths(
        pytester,
        """
import pytest
@pytest.mark.parametrize("question, style", [("Who wrote Emma?", "short")])
def test_it(question, style):
    "This docstring is for people only."
    print("some longer text in the test")
    assert len(question) > 3
""",
    )
    assert holds(rows, "question", "Who wrote Emma?")
    assert holds(rows, "style", "short")
    assert holds(rows, "", "some longer text in the test")
    assert not holds(rows, "", "This docstring is for people only.")


@pytest.mark.parametrize(
    "check",
    [
        "assert ask(q) == text",
        "assert text == ask(q)",
        "assert text in ask(q)",
        "assert ask(q).lower() == text.lower()",
        "assert set(ask(q)) == set(text)",
        "print(ask(q) == text)",
    ],
)
def test_what_is_compared_is_an_answer_and_the_question_is_not(
    pytester: pytest.Pytester, check: str
) -> None:
    rows = paths(
        pytester,
        f"""
import pytest
def ask(q): return q
@pytest.mark.parametrize("q, text", [("Who wrote Emma?", "Jane Austen")])
def test_it(q, text):
    {check}
""",
    )
    assert holds(rows, "=text", "Jane Austen")
    assert holds(rows, "q", "Who wrote Emma?")


def test_parts_of_a_parameter_are_told_apart(pytester: pytest.Pytester) -> None:
    rows = paths(
        pytester,
        """
import pytest
@pytest.mark.parametrize("row", [{"q": "Who wrote Emma?", "a": ["Jane Austen"]}])
def test_it(row):
    assert str(row["q"]).strip() > "" and print(row["q"]) == row["a"][0]
""",
    )
    assert holds(rows, "=row.a", "Jane Austen")
    assert holds(rows, "row.q", "Who wrote Emma?")


def test_literals_that_are_compared_are_answers(pytester: pytest.Pytester) -> None:
    rows = paths(
        pytester,
        """
def test_it():
    assert str(1) == "Jane Austen"
    assert [1] == ["Mansfield", 1814]
""",
    )
    for text in ("Jane Austen", "Mansfield", "1814"):
        assert holds(rows, "=", text)


def test_nothing_of_a_case_travels_but_hashes(pytester: pytest.Pytester) -> None:
    items = pytester.getitems(
        """
import pytest
@pytest.mark.parametrize("q", ["secretword " * 5])
def test_it(q):
    assert "secretword" in q
"""
    )
    assert "secretword" not in repr(CaseTexts().of(items[0]))
