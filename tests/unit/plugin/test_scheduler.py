from __future__ import annotations

import pytest

from pytest_evo.errors import SuiteProblem
from pytest_evo.models import CaseMark
from pytest_evo.plugin.messages import Hello
from pytest_evo.plugin.scheduler import check_collections
from pytest_evo.plugin.scheduler import Scheduler


def hello(name, *cases, errors=(), problem=""):
    marks = tuple(CaseMark(case, "t.py", 1, "") for case in cases)
    return Hello(name, 1, "box", marks, errors=errors, problem=problem)


def test_same_cases_in_another_order_are_the_same():
    found = check_collections([hello("gw0", "a", "b"), hello("gw1", "b", "a")])
    assert found == {"a", "b"}


@pytest.mark.parametrize(
    ("hellos", "words"),
    [
        ([hello("gw0"), hello("gw1")], "no tests were collected"),
        ([hello("gw0", "a"), hello("gw1", "a", "b")], "only gw1: b"),
        ([hello("gw0", "a", errors=("t.py\nboom",))], "boom"),
        (
            [hello("gw0", *(f"c{n:02}" for n in range(30))), hello("gw1")],
            "only gw0: 20 more",
        ),
    ],
)
def test_unusable_collections_are_refused(hellos, words):
    with pytest.raises(SuiteProblem, match=words):
        check_collections(hellos)


def test_advice_on_collecting_is_for_what_pytest_itself_refuses():
    ours = "t.py::test_a: @pytest.mark.evo has no keyword 'spilt'"
    with pytest.raises(SuiteProblem) as caught:
        check_collections([hello("gw0", problem=ours)])
    assert str(caught.value) == ours
    with pytest.raises(SuiteProblem, match="--collect-only") as caught:
        check_collections([hello("gw0", errors=("boom", "boom"))])
    assert str(caught.value).count("boom") == 1


def test_collection_is_complete_when_all_have_sent_even_nothing():
    scheduler = Scheduler(2)
    for node in ("gw0", "gw1"):
        scheduler.add_node(node)
    scheduler.add_node_collection("gw0", [])
    assert not scheduler.collection_is_completed
    scheduler.add_node_collection("gw1", [])
    assert scheduler.collection_is_completed


def test_lost_node_names_no_crashed_test():
    scheduler = Scheduler(1)
    scheduler.add_node("gw0")
    assert scheduler.remove_node("gw0") is None
    with pytest.raises(KeyError):
        scheduler.remove_node("gw0")
