"""What is taken out of evidence: answers of train cases, texts of held-out ones."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from pytest_evo.diagnosis.hiding import ANSWER
from pytest_evo.diagnosis.hiding import HELD_OUT
from pytest_evo.diagnosis.hiding import Hiding
from pytest_evo.diagnosis.hiding import HidingDiagnoser
from pytest_evo.models import Attempt
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import CaseMark
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Detail
from pytest_evo.models import Diagnosis
from pytest_evo.models import Effect
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import TraceStep
from pytest_evo.protocols import Diagnosed
from pytest_evo.spots import spots_of

NAMES = ("expected", "answer")
ASKED = "t.py::test_asked[Where is the tower-Paris on Seine]"
TOLD = f"t.py::test_asked[Where is the tower-{ANSWER}]"


def mark(case: str, **texts: str) -> CaseMark:
    rows = tuple((path, "".join(spots_of(text))) for path, text in texts.items())
    return CaseMark(case, "t.py", 1, "", texts=rows)


def make(*marks: CaseMark, held_out: Sequence[str] = (), answers: bool = True):
    cases = [
        Case(one.id, Split.VAL if one.id in held_out else Split.TRAIN) for one in marks
    ]
    return Hiding(marks, cases, NAMES, answers=answers)


@pytest.fixture
def hiding() -> Hiding:
    return make(
        mark(ASKED, question="Where is the tower", expected="Paris on Seine"),
        mark("t.py::test_other[Rome]", question="x", expected="Rome"),
        mark("t.py::test_val[1]", question="Which hill is the highest of all"),
        held_out=["t.py::test_val[1]"],
    )


def node(case: str, text: str, name: str = "c0000") -> Node:
    detail = Detail(
        phases=(Phase("call", "failed", 0.1, text, text, (("stdout", text),)),),
        steps=(TraceStep("step", {"said": [text, {"at": 3.25}]}),),
        warnings=(text,),
        serialized=({"longrepr": text},),
    )
    rollout = Rollout(name, "tree", case, 0, Outcome.FAILED, 0.0, detail=detail)
    return Node(Candidate(name, "tree"), (rollout,), mean=0.0)


# -- texts -----------------------------------------------------------------------------


def test_answer_of_the_case_is_hidden_and_its_question_is_not(hiding: Hiding) -> None:
    text = "asked 'Where is the tower': assert 'London' == 'Paris on Seine'"
    hidden = hiding.text(ASKED, text)
    assert hidden == f"asked 'Where is the tower': assert 'London' == '{ANSWER}'"


def test_answers_of_other_train_cases_stay(hiding: Hiding) -> None:
    assert hiding.text(ASKED, "Rome") == "Rome"


def test_answers_are_shown_where_that_is_set() -> None:
    hiding = make(mark(ASKED, expected="Paris on Seine"), answers=False)
    assert hiding.text(ASKED, "Paris on Seine") == "Paris on Seine"
    assert hiding.case(ASKED) == ASKED


@pytest.mark.parametrize(
    "path", ["expected", "case.expected", "case.Expected.city", "the_answer", "=other"]
)
def test_answers_are_known_by_their_names(path: str) -> None:
    hiding = make(mark("t.py::test_a", **{path: "Paris on Seine"}))
    assert hiding.text("t.py::test_a", "Paris on Seine") == ANSWER


@pytest.mark.parametrize("path", ["question", "unexpected", "answering"])
def test_other_parameters_are_no_answers(path: str) -> None:
    hiding = make(mark("t.py::test_a", **{path: "Paris on Seine"}))
    assert hiding.text("t.py::test_a", "Paris on Seine") == "Paris on Seine"


def test_texts_and_ids_of_held_out_cases_are_hidden(hiding: Hiding) -> None:
    text = "found t.py::test_val[1] 'Which hill is the highest of all'"
    assert hiding.text(ASKED, text) == f"found {HELD_OUT}] '{HELD_OUT}'"


def test_what_train_cases_say_too_is_not_held_out() -> None:
    same = "Answer in one short sentence"
    hiding = make(
        mark("t.py::test_a[1]", style=same),
        mark("t.py::test_b[1]", style=same),
        held_out=["t.py::test_b[1]"],
    )
    assert hiding.text("t.py::test_a[1]", same) == same


def test_id_of_a_train_case_that_goes_on_is_not_hidden() -> None:
    hiding = make(
        mark("t.py::test_a"), mark("t.py::test_a[1]"), held_out=["t.py::test_a"]
    )
    assert hiding.text("t.py::test_a[1]", "t.py::test_a[1]") == "t.py::test_a[1]"


def test_detail_holds_nothing_of_it_anywhere(hiding: Hiding) -> None:
    shown = hiding.nodes([node(ASKED, "it is PARIS on Seine")])[0].rollouts[0]
    assert "Seine" not in repr(shown)
    assert shown.detail is not None
    assert shown.detail.steps[0].data == {"said": [f"it is {ANSWER}", {"at": 3.25}]}


def test_numbers_in_steps_are_hidden_too() -> None:
    hiding = make(mark("t.py::test_a", expected="3.25"))
    shown = hiding.nodes([node("t.py::test_a", "x")])[0].rollouts[0]
    assert "3.25" not in repr(shown)


# -- names -----------------------------------------------------------------------------


def test_id_is_called_without_its_answer(hiding: Hiding) -> None:
    assert hiding.case(ASKED) == TOLD
    assert hiding.case("unknown") == "unknown"


def test_cases_that_differ_in_their_answers_only_keep_names_of_their_own() -> None:
    ids = ["t.py::test_a[one of these]", "t.py::test_a[two of these]"]
    hiding = make(*(mark(case, expected=case[13:-1]) for case in ids))
    told = [hiding.case(case) for case in ids]
    assert told == [f"t.py::test_a[{ANSWER}]", f"t.py::test_a[{ANSWER}]#2"]
    diagnosis = hiding.real(Diagnosis(tuple(told), "seen"))
    assert diagnosis.cases == tuple(ids)


def test_id_with_escaped_characters_is_called_without_its_answer() -> None:
    case = r"t.py::test_a[ask-Z\xfcrich]"
    hiding = make(mark(case, expected="Zürich"))
    assert hiding.case(case) == f"t.py::test_a[ask-{ANSWER}]"


def test_changelogs_diagnoses_and_attempts_use_the_same_name(hiding: Hiding) -> None:
    entry = ChangelogEntry("a.md", "x", effect=Effect("c0000", (ASKED,)))
    one = node(ASKED, "text")
    changed = Candidate("c0001", "tree", changelog=(entry,))
    whole = Node(changed, one.rollouts, (Diagnosis((ASKED,), "seen"),))
    attempt = Attempt("c1", "c0", 1, 0, {ASKED: 0.5}, None, False, changelog=(entry,))
    told = repr((hiding.nodes([whole]), hiding.attempts([attempt])))
    assert ASKED not in told
    assert told.count(TOLD) == 5


class Reader:
    """Notes what it is shown, and says that each case failed."""

    def __init__(self) -> None:
        self.seen = ""

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        self.seen = repr(nodes)
        cases = tuple(one.case for one in nodes[-1].rollouts)
        return Diagnosed((Diagnosis(cases, "it failed"),))


def test_diagnoser_sees_no_answer_and_its_cases_keep_their_ids(hiding: Hiding) -> None:
    reader = Reader()
    hidden = HidingDiagnoser(reader, lambda: hiding)
    made = asyncio.run(hidden.diagnose([node(ASKED, "not Paris on Seine")]))
    assert "Seine" not in reader.seen
    assert made.diagnoses[0].cases == (ASKED,)


def test_answer_that_nobody_knew_is_cut_where_it_was_compared(hiding: Hiding) -> None:
    told = "assert 'London' == 'from a file'"
    shown = hiding.nodes([node(ASKED, told)])[0].rollouts[0].detail
    assert shown is not None
    assert shown.phases[0].message == f"assert 'London' == {ANSWER}"
    known = hiding.nodes([node(ASKED, "assert 'Paris on Seine' == 'London'")])
    detail = known[0].rollouts[0].detail
    assert detail is not None
    assert detail.phases[0].message == f"assert '{ANSWER}' == 'London'"
