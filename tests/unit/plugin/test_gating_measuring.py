"""Both arms over a scripted evaluator: what is sent together, what counts as what."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from collections.abc import Callable
from dataclasses import replace

import pytest

from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Stage
from pytest_evo.models import CaseId
from pytest_evo.models import COPY_CHANGED
from pytest_evo.models import Outcome
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.plugin.gating.measuring import Measurement
from pytest_evo.plugin.gating.measuring import StaleRead
from pytest_evo.protocols import Request

TREES = {Arm.BASE: "b" * 64, Arm.HEAD: "h" * 64}
Answer = Callable[[Request, CaseId, int], Rollout]


class ScriptedPlan:
    """Asks for these pairs and remembers what came back."""

    def __init__(self, cases: int, arms: tuple[Arm, ...] = tuple(Arm)) -> None:
        self.left = [
            Ask(arm, f"t::{n}", 0, Stage.FIRST) for n in range(cases) for arm in arms
        ]
        self.seen: list[Observation] = []

    def next(self, limit: int = 64) -> tuple[Ask, ...]:
        asks, self.left = tuple(self.left[:limit]), self.left[limit:]
        return asks

    def record(self, observation: Observation) -> None:
        self.seen.append(observation)


class ScriptedEvaluator:
    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.requests: list[Request] = []
        self.flying = 0
        self.most = 0

    async def submit(self, request: Request) -> AsyncIterator[Rollout]:
        self.requests.append(request)
        self.flying += 1
        self.most = max(self.most, self.flying)
        await asyncio.sleep(0)
        for case, repeat in request.runs:
            yield self._answer(request, case, repeat)
        self.flying -= 1

    async def cancel(self, request_id: str) -> None:
        raise AssertionError(request_id)

    def capacity(self) -> int:
        return 2


def passing(request: Request, case: CaseId, repeat: int) -> Rollout:
    return Rollout(
        candidate=request.candidate,
        tree=request.tree,
        case=case,
        repeat=repeat,
        outcome=Outcome.PASSED,
        score=1.0,
        reach=Reach(("a.txt",)),
    )


def measure(
    plan: ScriptedPlan,
    answer: Answer,
    trees: dict[Arm, str] | None = None,
    **more: object,
) -> tuple[ScriptedEvaluator, dict[tuple[Arm, CaseId], Observation]]:
    evaluator = ScriptedEvaluator(answer)
    more.setdefault("in_place", True)
    measurement = Measurement(plan, evaluator, trees or TREES, **more)  # type: ignore[arg-type]
    asyncio.run(measurement.run(len(plan.left)))
    return evaluator, {(row.arm, row.case): row for row in plan.seen}


def test_everything_that_is_asked_is_recorded_once() -> None:
    plan = ScriptedPlan(50)
    evaluator, found = measure(plan, passing)
    assert len(plan.seen) == len(found) == 100
    assert evaluator.most <= 5  # capacity, two in reserve, and the other half of a pair
    for request in evaluator.requests:
        arm = Arm.BASE if request.candidate == "base" else Arm.HEAD
        assert request.tree == TREES[arm]
    names = [request.candidate for request in evaluator.requests]
    assert names[:4].count("base") == 2  # side by side from the beginning


def test_what_never_began_is_sent_again_by_itself() -> None:
    def answer(request: Request, case: CaseId, repeat: int) -> Rollout:
        began = len(request.runs) == 1 and case != "t::0"
        return replace(passing(request, case, repeat), started=began)

    plan = ScriptedPlan(40)
    _, found = measure(plan, answer)
    assert len(plan.seen) == 80
    assert found[Arm.HEAD, "t::0"].outcome is Outcome.CRASHED
    assert found[Arm.HEAD, "t::0"].score is None
    assert found[Arm.HEAD, "t::1"].outcome is Outcome.PASSED


def test_a_rule_that_only_the_head_breaks_is_a_failure() -> None:
    def answer(request: Request, case: CaseId, repeat: int) -> Rollout:
        told = passing(request, case, repeat)
        both = case == "t::0"
        if both or (request.candidate == "head" and case == "t::1"):
            told = replace(told, violation="changed json.loads")
        if case == "t::2":
            told = replace(told, violation=f"{COPY_CHANGED}cache.txt")
        return told

    _, found = measure(ScriptedPlan(4), answer)
    assert found[Arm.HEAD, "t::0"].outcome is Outcome.PASSED
    assert found[Arm.HEAD, "t::1"].outcome is Outcome.FAILED
    assert found[Arm.HEAD, "t::1"].score == 0.0
    assert found[Arm.HEAD, "t::1"].message == "changed json.loads"
    assert found[Arm.HEAD, "t::2"].outcome is Outcome.PASSED


def test_a_head_without_a_base_waits_for_nobody() -> None:
    def answer(request: Request, case: CaseId, repeat: int) -> Rollout:
        return replace(passing(request, case, repeat), violation="changed json.loads")

    plan = ScriptedPlan(3, (Arm.HEAD,))
    evaluator, found = measure(plan, answer, {Arm.HEAD: TREES[Arm.HEAD]})
    assert {row.outcome for row in found.values()} == {Outcome.FAILED}
    assert {request.candidate for request in evaluator.requests} == {"c0000"}


@pytest.mark.parametrize(
    ("reach", "surprise"),
    [
        (Reach(("a.txt",)), False),
        (Reach(("b.txt",)), True),
        (Reach((), exact=False), True),
    ],
)
def test_a_case_that_reads_what_it_was_not_known_to_is_a_surprise(
    reach: Reach, surprise: bool
) -> None:
    def answer(request: Request, case: CaseId, repeat: int) -> Rollout:
        return replace(passing(request, case, repeat), reach=reach)

    _, found = measure(ScriptedPlan(2), answer, unreached={"t::0"}, changed={"b.txt"})
    assert found[Arm.HEAD, "t::0"].surprise is surprise
    assert found[Arm.HEAD, "t::1"].surprise is False


def test_a_stale_read_ends_it_unless_the_version_is_in_place() -> None:
    def answer(request: Request, case: CaseId, repeat: int) -> Rollout:
        told = passing(request, case, repeat)
        return replace(told, reach=Reach(("a.txt",), stale=("a.txt",)))

    measure(ScriptedPlan(2), answer)
    with pytest.raises(StaleRead):
        measure(ScriptedPlan(2), answer, in_place=False)


def test_what_a_candidate_cannot_collect_scores_zero_and_infrastructure_nothing() -> (
    None
):
    outcomes = {
        "t::0": Outcome.MISSING,
        "t::1": Outcome.TIMEOUT,
        "t::2": Outcome.SKIPPED,
    }

    def answer(request: Request, case: CaseId, repeat: int) -> Rollout:
        told = passing(request, case, repeat)
        return replace(told, outcome=outcomes.get(case, Outcome.PASSED), score=None)

    _, found = measure(ScriptedPlan(3), answer)
    scores = {case: found[Arm.HEAD, case].score for case in outcomes}
    assert scores == {"t::0": 0.0, "t::1": None, "t::2": None}
