from __future__ import annotations

from dataclasses import dataclass

from pytest_evo.diagnosis.memo import by_identity
from pytest_evo.diagnosis.redacting import redacted
from pytest_evo.models import Attempt
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Diagnosis
from pytest_evo.models import Effect


class Maker:
    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def __call__(self, value: list[int]) -> int:
        self.asked.append(value)
        return len(self.asked)


def test_same_object_is_made_something_of_once_and_an_equal_one_again() -> None:
    make = Maker()
    of = by_identity(make)
    one, other = [1], [1]
    assert [of(one), of(one), of(other), of(one)] == [1, 1, 2, 1]
    assert make.asked == [one, other]


def test_object_not_asked_for_longest_is_forgotten_first() -> None:
    make = Maker()
    of = by_identity(make, most=2)
    one, two, three = [1], [2], [3]
    for value in (one, two, one, three, one, two):
        of(value)
    assert make.asked == [one, two, three, two]


def test_new_object_in_the_place_of_a_freed_one_is_not_taken_for_it() -> None:
    of = by_identity(lambda value: value[0], most=1)
    assert [of([number]) for number in range(50)] == list(range(50))


# -- redacting ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inner:
    text: str = ""


ENTRY = ChangelogEntry(
    "p.md", "use key", "modified", ("saw it",), effect=Effect("c0", ("t.py::a",))
)
DIAGNOSIS = Diagnosis(("t.py::a",), "as seen", methods={"m": "key"})


def test_value_without_secrets_is_given_back_itself() -> None:
    for value in (ENTRY, (ENTRY, ENTRY), DIAGNOSIS, (Inner("a"), None, 1.5, True), ""):
        assert redacted(value, lambda text: text.replace("no such", "-")) is value


def test_value_with_secrets_keeps_all_else() -> None:
    def redact(text: str) -> str:
        return text.replace("key", "-")

    entry, other = redacted((ENTRY, Inner("same")), redact)
    assert entry.reason == "use -"
    assert entry.effect is ENTRY.effect
    assert other == Inner("same")
    assert redacted(DIAGNOSIS, redact).methods == {"m": "-"}
    assert ENTRY.reason == "use key"
    attempt = Attempt("c1", "c0", 1, 0, {"t.py::a": 0.5}, 0.0, False)
    assert redacted(attempt, redact) is attempt
