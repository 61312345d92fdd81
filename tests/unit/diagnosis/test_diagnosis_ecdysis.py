from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

from diagnosis_world import asked
from diagnosis_world import classed
from diagnosis_world import group
from diagnosis_world import group_answers
from diagnosis_world import READING
from diagnosis_world import scripted
from diagnosis_world import versions

from pytest_evo.chat import ChatRequest
from pytest_evo.diagnosis.ecdysis import AcrossCases
from pytest_evo.diagnosis.ecdysis import as_partition
from pytest_evo.diagnosis.ecdysis import UNGROUPED
from pytest_evo.diagnosis.readings import Group
from pytest_evo.errors import ModelFailed
from pytest_evo.models import Diagnosis
from pytest_evo.models import Node
from pytest_evo.protocols import Diagnosed
from pytest_evo.testing.diagnoser_contract import CASES
from pytest_evo.testing.diagnoser_contract import make_node

A, B, C = CASES


def diagnose(model: Any, *nodes: Node) -> Diagnosed:
    return asyncio.run(AcrossCases(model, versions()).diagnose(nodes))


def role(request: ChatRequest) -> str:
    found = re.search(r"^# Your role: (\w+)$", asked(request), re.M)
    return found[1] if found else "groups"


def with_groups(*groups: dict[str, Any], **roles: dict[str, Any]) -> Any:
    """A model that groups in this way and plays the roles as told."""

    def answer(request: ChatRequest) -> str:
        part = role(request)
        if part == "groups":
            return json.dumps({"groups": groups})
        data = json.loads(group_answers(request))
        return json.dumps({**data, **roles.get(part, {})})

    return scripted(answer)


def test_group_is_read_by_three_roles_one_after_the_other() -> None:
    model = scripted(group_answers)
    found = diagnose(model, make_node(0, (1, 0, 0)))
    assert [role(request) for request in model.requests] == [
        "groups",
        "cause",
        "objection",
        "specification",
    ]
    (diagnosis,) = found.diagnoses
    assert diagnosis.cases == (B, C)
    assert (diagnosis.kind, diagnosis.weak) == ("defect", False)
    assert diagnosis.observation == "answers come without naming any source"
    assert diagnosis.objection.startswith("stands: test_a reads the same prompt")
    assert diagnosis.change == READING["change"]
    assert found.usage.calls == 4
    objecting = asked(model.requests[2])
    assert f"`{A}` on c0000" in objecting  # a case of the others, which passes
    assert READING["cause"] in objecting


def test_defects_come_before_quirks() -> None:
    model = with_groups(
        group([A], kind="quirk", title="odd words"), group([B, C], title="no source")
    )
    found = diagnose(model, make_node(0, (0, 0, 0)))
    assert [(one.kind, one.cases) for one in found.diagnoses] == [
        ("defect", (B, C)),
        ("quirk", (A,)),
    ]


def test_amended_cause_replaces_the_first_one() -> None:
    better = "steps.py cuts the passages before the model sees their titles"
    model = with_groups(
        group([B, C]),
        objection={"verdict": "amended", "cause": better,
                   "counter_quotes": READING["quotes"]},
        specification={"file": "steps.py",
                       "change": "raise LIMIT in steps.py from 3 to 6 passages"},
    )  # fmt: skip
    (diagnosis,) = diagnose(model, make_node(0, (1, 0, 0))).diagnoses
    assert diagnosis.cause == better
    assert diagnosis.file == "steps.py"
    assert better in asked(model.requests[3])
    assert not diagnosis.weak


def test_objection_that_refutes_and_has_nothing_better_makes_it_weak() -> None:
    model = with_groups(
        group([B, C]), objection={"verdict": "refuted", "counter_quotes": []}
    )
    (diagnosis,) = diagnose(model, make_node(0, (1, 0, 0))).diagnoses
    assert diagnosis.weak
    assert any("and yet the same" in doubt for doubt in diagnosis.doubts)
    assert any("no quote" in doubt for doubt in diagnosis.doubts)


def test_grouping_that_forgets_and_invents_cases_is_asked_again_then_mended() -> None:
    model = with_groups(group([B, "t.py::invented"]), group([B], title="twice"))
    found = diagnose(model, make_node(0, (1, 0, 0)))
    again = model.requests[1].messages[-1].text
    assert "there is no failing case 't.py::invented'" in again
    assert f"the case '{C}' is in no group" in again
    assert f"the case '{B}' is in several groups" in again
    assert [one.cases for one in found.diagnoses] == [(B,), (C,)]
    assert all(one.weak for one in found.diagnoses)


def test_partition_gives_every_case_one_group() -> None:
    groups = [
        Group.model_validate(group([C, A], kind="quirk")),
        Group.model_validate(group([A, "other"])),
    ]
    parts = as_partition(groups, [A, B, C])
    assert [part.cases for part in parts] == [[A, C], [B]]
    assert parts[1].title == UNGROUPED
    assert sorted(case for part in parts for case in part.cases) == sorted(CASES)


def test_role_that_fails_costs_its_group_only() -> None:
    def answer(request: ChatRequest) -> str | Exception:
        if role(request) == "groups":
            return json.dumps({"groups": [group([B]), group([C], title="second")]})
        if role(request) == "cause" and "Group: second" in asked(request):
            return ModelFailed("503")
        return group_answers(request)

    found = diagnose(scripted(answer), make_node(0, (1, 0, 0)))
    assert [one.cases for one in found.diagnoses] == [(B,)]
    assert found.problems == ("second: scripted-model: 503",)
    assert found.usage.calls == 4


def test_objection_that_fails_leaves_the_cause_unattacked() -> None:
    def answer(request: ChatRequest) -> str | Exception:
        if role(request) == "objection":
            return ModelFailed("503")
        return group_answers(request)

    found = diagnose(scripted(answer), make_node(0, (1, 0, 0)))
    assert found.diagnoses[0].objection == ""
    assert found.problems == ("no source: scripted-model: 503",)


def test_grouping_that_fails_is_told_and_nothing_else_is_asked() -> None:
    model = scripted(lambda request: ModelFailed("503"))
    found = diagnose(model, make_node(0, (1, 0, 0)))
    assert found == Diagnosed((), problems=("scripted-model: 503",))
    assert len(model.requests) == 1


def test_earlier_diagnoses_of_the_group_are_classed_by_the_specification() -> None:
    first = Diagnosis((B,), "no source", file="prompt.md")
    parent = replace(make_node(0, (1, 0, 0)), diagnoses=(first,))
    model = scripted(group_answers)
    found = diagnose(model, parent, make_node(1, (1, 0, 0)))
    assert found.diagnoses[0].classes == {"c0000/1": "B"}

    def triggered(request: ChatRequest) -> str:
        data = json.loads(group_answers(request))
        if role(request) == "specification":
            data["earlier"] = classed(request, "A")
        return json.dumps(data)

    weak = diagnose(scripted(triggered), parent, make_node(1, (1, 0, 0)))
    assert "class A for c0000/1 is contradicted" in weak.diagnoses[0].doubts[0]
