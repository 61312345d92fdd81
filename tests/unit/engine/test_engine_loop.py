from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from engine_world import World
from hypothesis import given
from hypothesis import Phase
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo import models
from pytest_evo.engine.softstop import Interrupted
from pytest_evo.errors import BudgetProblem
from pytest_evo.errors import SuiteProblem
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import CasesFrozen
from pytest_evo.events import RunStopped
from pytest_evo.models import CaseMark
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.protocols import Request
from pytest_evo.store.journal import MemoryJournal
from pytest_evo.testing.doubles import Killed
from pytest_evo.testing.doubles import MemoryWorkshop

NO_SHRINK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Whole runs are too slow to shrink; the kill points that failed are printed."""


def test_run_finds_a_better_artifact_and_measures_it_on_test() -> None:
    world = World()
    outcome = world.run()
    assert outcome.winner.mean > 0
    assert outcome.final is not None
    assert outcome.final.claim.split is Split.TEST
    assert outcome.final.claim.difference > 0
    assert outcome.stop.reason == "budget: iterations"
    assert outcome.stop.complete


def test_rejected_child_is_refined_along_a_chain_from_its_own_files() -> None:
    world = World()
    world.run()
    deep = [row for row in world.iterations_closed if row.depth >= 2]
    assert deep
    records = {
        row.id: row for row in world.events if isinstance(row, CandidateRecorded)
    }
    number = deep[0].iteration
    first, second = records[f"c{number:04d}"], records[f"c{number:04d}-1"]
    assert second.base == first.id
    assert second.parent == first.parent == deep[0].parent
    assert first.status is Status.REJECTED


def test_proposer_sees_every_node_of_the_chain_and_only_train_cases() -> None:
    world = World()
    world.run()
    frozen = next(row for row in world.events if isinstance(row, CasesFrozen))
    train = {case.id for case in frozen.cases if case.split is Split.TRAIN}
    longest = max(world.proposer.requests, key=lambda row: len(row.nodes))
    assert len(longest.nodes) == longest.step + 1 >= 3
    for request in world.proposer.requests:
        assert set(request.batch) <= train
        assert set(request.start) <= train
        assert {row.case for node in request.nodes for row in node.rollouts} <= train
        assert {case for row in request.history for case in row.scores} <= train


def test_no_rollout_is_executed_twice() -> None:
    for slots in (1, 3):
        world = World(slots=slots, shuffle=3, width=4)
        world.run()
        assert len(world.evaluator.executed) == len(set(world.evaluator.executed))


def test_same_seed_gives_the_same_journal_whatever_the_timing_is() -> None:
    for slots, noise in ((1, 0.0), (3, 0.0), (3, 0.9)):
        journals = []
        for shuffle in (None, 1, 2):
            world = World(slots=slots, shuffle=shuffle, noise=noise, iterations=9)
            world.run()
            journals.append(world.events)
        assert journals[0] == journals[1] == journals[2]


def test_other_seed_gives_another_run() -> None:
    one, other = World(seed=1), World(seed=2)
    one.run()
    other.run()
    assert one.events != other.events


@settings(max_examples=15, deadline=None, phases=NO_SHRINK)
@given(
    kills=st.lists(st.integers(0, 120), min_size=1, max_size=4),
    slots=st.sampled_from([1, 2]),
)
def test_killed_run_ends_like_an_undisturbed_one(kills: list[int], slots: int) -> None:
    undisturbed = World(slots=slots, iterations=6)
    expected = undisturbed.run()
    journal = MemoryJournal()
    workshop = MemoryWorkshop()
    executed = []
    for kill in kills:
        workshop.forget_workspaces()
        world = World(
            journal=journal,
            workshop=workshop,
            slots=slots,
            iterations=6,
            kill_after=kill,
            shuffle=kill,
        )
        with contextlib.suppress(Killed):
            world.run()
        executed += world.evaluator.executed
    workshop.forget_workspaces()
    world = World(journal=journal, workshop=workshop, slots=slots, iterations=6)
    outcome = world.run()
    executed += world.evaluator.executed
    assert len(executed) == len(set(executed))
    assert outcome.winner == expected.winner
    assert outcome.population == expected.population
    assert outcome.final == expected.final
    lost = any(row.outcome is Outcome.LOST for row in world.recorded)
    assert lost or world.iterations_closed == undisturbed.iterations_closed


def test_finished_run_is_not_run_again() -> None:
    journal = MemoryJournal()
    World(journal=journal).run()
    again = World(journal=journal)
    outcome = again.run()
    assert again.evaluator.executed == []
    assert outcome.stop.complete
    assert sum(isinstance(row, RunStopped) for row in again.events) == 1


@settings(max_examples=25, deadline=None, phases=NO_SHRINK)
@given(
    rollouts=st.integers(130, 700),
    slots=st.sampled_from([1, 2, 4]),
    noise=st.sampled_from([0.0, 0.9]),
    shuffle=st.integers(0, 50),
)
def test_budget_is_never_exceeded_by_a_rollout(
    rollouts: int, slots: int, noise: float, shuffle: int
) -> None:
    world = World(
        rollouts=rollouts,
        iterations=None,
        slots=slots,
        noise=noise,
        shuffle=shuffle,
        width=4,
    )
    try:
        outcome = world.run()
    except BudgetProblem:
        assert len(world.evaluator.executed) <= rollouts
        return
    assert len(world.evaluator.executed) <= rollouts
    assert outcome.stop.rollouts == len(world.evaluator.executed)
    assert sum(outcome.stop.by_purpose.values()) == outcome.stop.rollouts


def test_budget_holds_although_workers_crash() -> None:
    def crash(request: object, case: str, repeat: int) -> Outcome | None:
        return Outcome.CRASHED if hash((case, repeat)) % 3 == 0 else None

    for rollouts in (150, 211, 300):
        world = World(rollouts=rollouts, iterations=None, slots=2, fault=crash)
        with contextlib.suppress(BudgetProblem, SuiteProblem):
            world.run()
        assert len(world.evaluator.executed) <= rollouts


def test_rollouts_under_a_budget_do_not_depend_on_timing() -> None:
    journals = []
    for shuffle in (None, 5, 6):
        world = World(rollouts=420, iterations=None, slots=3, shuffle=shuffle)
        world.run()
        journals.append(world.events)
    assert journals[0] == journals[1] == journals[2]


def test_budget_too_small_for_the_baseline_is_refused_before_anything_runs() -> None:
    world = World(rollouts=50)
    with pytest.raises(BudgetProblem, match="nothing was run"):
        world.run()
    assert world.evaluator.executed == []


def test_budget_that_buys_too_few_proposals_is_refused_with_the_missing_figure() -> (
    None
):
    world = World(rollouts=160, noise=0.9)  # noise is known after the baseline
    with pytest.raises(BudgetProblem, match="Raise --budget-rollouts by"):
        world.run()


def test_train_budget_ends_the_run_softly() -> None:
    world = World(train_rollouts=60, iterations=None)
    outcome = world.run()
    assert outcome.stop.reason == "budget: train rollouts"
    spent = sum(
        outcome.stop.by_purpose.get(name, 0) for name in ("parent", "child", "chain")
    )
    assert spent <= 60


def test_soft_stop_leaves_a_run_that_resumes_to_the_same_end() -> None:
    expected = World(iterations=8).run()
    journal = MemoryJournal()
    world = World(journal=journal, iterations=8)
    judge = world.evaluator._judge
    count = 0

    def stop_later(*args: object) -> object:
        nonlocal count
        count += 1
        if count == 150:
            world.loop.interrupt()
        return judge(*args)

    world.evaluator._judge = stop_later
    with pytest.raises(Interrupted):
        world.run()
    assert isinstance(world.events[-1], RunStopped)
    assert not world.events[-1].complete
    resumed = World(journal=journal, workshop=world.workshop, iterations=8)
    outcome = resumed.run()
    assert outcome.winner == expected.winner
    assert outcome.population == expected.population
    done = world.evaluator.executed + resumed.evaluator.executed
    assert len(done) == len(set(done))


def test_infrastructure_error_never_becomes_a_score() -> None:
    def broken(request: object, case: str, repeat: int) -> Outcome | None:
        purpose = request.purpose  # type: ignore[attr-defined]
        return Outcome.ERROR if purpose is Purpose.CHILD else None

    world = World(fault=broken, iterations=3, plan={"depth": 0})
    outcome = world.run()
    children = [row for row in world.recorded if row.purpose is Purpose.CHILD]
    assert children
    assert all(row.score is None for row in children)
    assert {row.attempt for row in children} == {0, 1}
    assert outcome.winner.candidate.id == "c0000"
    statuses = {
        row.status for row in world.events if isinstance(row, CandidateRecorded)
    }
    assert Status.INCOMPLETE in statuses


def test_crashed_rollout_is_retried_once_and_counts_again() -> None:
    seen = set()

    def once(request: object, case: str, repeat: int) -> Outcome | None:
        key = (request.tree, case, repeat)  # type: ignore[attr-defined]
        if case.endswith("[3]") and key not in seen:
            seen.add(key)
            return Outcome.CRASHED
        return None

    world = World(fault=once, iterations=2)
    outcome = world.run()
    crashed = [row for row in world.recorded if row.outcome is Outcome.CRASHED]
    assert crashed
    assert all(row.attempt == 0 and row.score is None for row in crashed)
    assert outcome.stop.rollouts == len(world.evaluator.executed)


def test_what_a_dead_worker_may_have_run_is_charged_and_run_again() -> None:
    calm = World(iterations=3)
    expected = calm.run()
    seen = set()

    def once(request: Request, case: str, repeat: int) -> Rollout | None:
        key = (request.tree, case, repeat)
        if key in seen or len(request.runs) == 1 or hash(key) % 4:
            return None
        seen.add(key)
        return Rollout("", "", case, repeat, Outcome.LOST, None)

    world = World(fault=once, iterations=3)
    outcome = world.run()
    lost = [row for row in world.recorded if row.outcome is Outcome.LOST]
    assert len(lost) == len(seen) > 0
    assert outcome.population == expected.population
    assert outcome.stop.rollouts == expected.stop.rollouts + len(lost)
    assert outcome.stop.rollouts == len(world.evaluator.executed)
    again = World(journal=world.journal, iterations=3)
    assert again.run().stop == outcome.stop


def test_budget_holds_although_workers_die() -> None:
    def dies(request: Request, case: str, repeat: int) -> Rollout | None:
        if len(request.runs) == 1 or hash((case, repeat)) % 3:
            return None
        return Rollout("", "", case, repeat, Outcome.LOST, None)

    for rollouts in (150, 211, 300):
        world = World(rollouts=rollouts, iterations=None, slots=2, fault=dies)
        with contextlib.suppress(BudgetProblem, SuiteProblem):
            outcome = world.run()
            assert len(world.recorded) == outcome.stop.rollouts
        assert len(world.evaluator.executed) <= rollouts


@settings(max_examples=15, deadline=None, phases=NO_SHRINK)
@given(
    kills=st.lists(st.integers(0, 200), min_size=1, max_size=6),
    rollouts=st.sampled_from([150, 211, 300]),
)
def test_budget_holds_although_the_controller_is_killed(
    kills: list[int], rollouts: int
) -> None:
    journal = MemoryJournal()
    workshop = MemoryWorkshop()
    executed = 0
    for kill in [*kills, None]:
        workshop.forget_workspaces()
        world = World(
            journal=journal,
            workshop=workshop,
            rollouts=rollouts,
            iterations=None,
            slots=2,
            kill_after=kill,
        )
        try:
            outcome = world.run()
        except Killed:
            executed += len(world.evaluator.executed)
            continue
        except BudgetProblem:
            executed += len(world.evaluator.executed)
            break
        executed += len(world.evaluator.executed)
        assert outcome.stop.rollouts <= rollouts
        assert outcome.stop.rollouts == len(world.recorded)
        break
    assert executed <= rollouts


def test_time_that_ends_in_the_baseline_is_told_with_the_way_on() -> None:
    world = World(seconds=0.0)
    with pytest.raises(BudgetProblem, match="--budget-time=MORE"):
        world.run()


def test_suite_that_no_case_can_score_is_refused() -> None:
    world = World(fault=lambda request, case, repeat: Outcome.ERROR)
    with pytest.raises(SuiteProblem, match="of 40 cases none passed or failed"):
        world.run()


def test_refused_proposals_cost_no_rollout_and_end_the_run() -> None:
    def same(files: dict[str, bytes]) -> dict[str, bytes]:
        return files

    world = World(edits=lambda request: same, iterations=None)
    outcome = world.run()
    assert "refused" in outcome.stop.reason
    assert outcome.stop.by_purpose.get("child", 0) == 0
    feedback = [row.feedback for row in world.proposer.requests]
    assert feedback[0] is None
    assert feedback[1] is not None
    assert "nothing changed" in feedback[1]


def test_duplicate_of_an_earlier_candidate_is_refused_before_any_rollout() -> None:
    def touch(files: dict[str, bytes]) -> dict[str, bytes]:
        return {**files, "touched": b"always the same"}

    world = World(edits=lambda request: touch, iterations=3, plan={"depth": 0})
    world.run()
    reasons = [row.reason for row in world.iterations_closed]
    assert "exactly the files of c0001" in reasons[1]


def test_exhausted_proposer_ends_the_run_softly_with_a_result() -> None:
    def rise(files: dict[str, bytes]) -> dict[str, bytes]:
        return {"level": str(int(files["level"]) + 9).encode()}

    world = World(edits=[rise, rise], iterations=None)
    outcome = world.run()
    assert outcome.stop.reason == "proposer exhausted"
    assert outcome.winner.mean > 0


def test_perfect_parent_skips_iterations_until_the_run_has_converged() -> None:
    def solve(files: dict[str, bytes]) -> dict[str, bytes]:
        return {"level": b"99"}

    world = World(edits=[solve] * 50, iterations=None)
    outcome = world.run()
    assert outcome.stop.reason.startswith("converged")
    assert outcome.winner.mean == 1.0


def test_artifact_that_no_case_reaches_stops_the_run() -> None:
    world = World()
    judge = world._judge

    def blind(files: dict[str, bytes], case: str, repeat: int) -> object:
        return replace(judge({"level": b"3"}, case, repeat), reach=Reach())

    world.evaluator._judge = blind
    with pytest.raises(SuiteProblem, match="no case reaches the artifact"):
        world.run()


def test_suite_that_fails_before_it_reaches_the_artifact_says_how() -> None:
    world = World()
    told = Detail((models.Phase("call", "failed", 0.0, "NameError: artefact"),))

    def broken(files: dict[str, bytes], case: str, repeat: int) -> Rollout:
        failed = world._judge({"level": b"0"}, case, repeat)
        assert isinstance(failed, Rollout)
        return replace(failed, reach=Reach(), detail=told)

    world.evaluator._judge = broken
    with pytest.raises(SuiteProblem, match=r"All of them fail.*\n.*NameError: artef"):
        world.run()


def test_noisy_suite_accepts_only_what_is_confirmed_on_fresh_rollouts() -> None:
    world = World(noise=0.85, rollouts=8_000, iterations=25, steps=4)
    outcome = world.run()
    purposes = outcome.stop.by_purpose
    assert purposes["confirmation"] > 0
    assert purposes["repeat"] > 0
    accepted = [row for row in world.iterations_closed if row.accepted]
    assert accepted
    for row in accepted:
        level = int(world.workshop.files(_tree(world, row.child))["level"])
        parent = int(world.workshop.files(_tree(world, row.parent))["level"])
        assert level > parent


def _tree(world: World, candidate: str | None) -> str:
    records = {
        row.id: row for row in world.events if isinstance(row, CandidateRecorded)
    }
    assert candidate is not None
    return records[candidate].tree


def test_exclusive_group_has_one_rollout_in_flight() -> None:
    marks = [
        CaseMark(f"t.py::t[{index}]", "t.py", 1, "f", exclusive="db")
        for index in range(40)
    ]
    world = World(marks=marks, slots=2, width=4, iterations=3, shuffle=1)
    world.run()
    assert world.evaluator.most_running == 1


def test_validation_stops_where_the_child_cannot_enter_any_more() -> None:
    world = World(iterations=25, rollouts=6_000, steps=20)
    world.run()
    reasons = [row.reason for row in world.iterations_closed]
    validated = [row for row in world.recorded if row.purpose is Purpose.VALIDATION]
    assert validated
    stopped = [row for row in reasons if "cannot enter the population" in row]
    full = sum(1 for row in world.iterations_closed if row.accepted) * 12
    assert len(validated) <= full + 12 * len(stopped)


def test_candidate_that_validation_kept_out_is_unproven_not_accepted() -> None:
    train, val = [Split.TRAIN] * 20, [Split.VAL] * 20

    def only_the_start_passes_val(
        request: Request, case: str, repeat: int
    ) -> Rollout | None:
        if case not in {mark.id for mark in marks if mark.split is Split.VAL}:
            return None
        good = request.candidate == START
        outcome = Outcome.PASSED if good else Outcome.FAILED
        return Rollout("?", "?", case, repeat, outcome, float(good))

    marks = [
        CaseMark(f"t.py::t[{index}]", "t.py", 1, "print", split=split)
        for index, split in enumerate(train + val)
    ]
    splits = {mark.id: mark.split for mark in marks}
    world = World(
        marks=marks,
        fault=only_the_start_passes_val,
        iterations=6,
        plan={"splits": splits},
    )
    world.run()
    status = {
        row.id: row.status for row in world.events if isinstance(row, CandidateRecorded)
    }
    kept_out = [
        row.child
        for row in world.iterations_closed
        if "cannot enter the population" in row.reason
    ]
    assert kept_out
    assert {status[child] for child in kept_out if child} == {Status.UNPROVEN}
    assert Status.ACCEPTED not in status.values()


def test_run_that_is_refused_after_its_baseline_says_so_in_the_journal() -> None:
    world = World(rollouts=160, noise=0.9)  # noise is known after the baseline
    with pytest.raises(BudgetProblem):
        world.run()
    assert world.evaluator.executed
    stop = world.events[-1]
    assert isinstance(stop, RunStopped)
    assert (stop.reason, stop.complete) == ("refused", False)
