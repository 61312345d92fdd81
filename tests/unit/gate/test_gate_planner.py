from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import date
from random import Random

import pytest
from gate_world import always
from gate_world import cases_of
from gate_world import chances
from gate_world import drive
from gate_world import seen
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.gate.evidence import plan_order
from pytest_evo.gate.planner import Planner
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import CaseStatus
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate.values import Quarantine
from pytest_evo.gate.values import ReasonKind
from pytest_evo.gate.values import Stage
from pytest_evo.gate.values import Stored
from pytest_evo.models import Outcome

FAILED = Outcome.FAILED


def _stages(planner: Planner) -> Counter[Stage]:
    return Counter(o.stage for o in planner.observations)


# -- order and bookkeeping ---------------------------------------------------------


def test_first_pass_asks_both_arms_side_by_side():
    planner = Planner(cases_of(5), GatePolicy())
    asks = planner.next(10)
    pairs = list(zip(asks[::2], asks[1::2], strict=True))
    assert all(one.case == two.case and one.arm != two.arm for one, two in pairs)
    assert len({one.case for one, _ in pairs}) == 5
    assert {ask.stage for ask in asks} == {Stage.FIRST}


def test_order_is_that_of_the_seed_not_of_the_cases():
    asked = [
        [ask.case for ask in Planner(cases, GatePolicy(seed=seed)).next(100)]
        for cases, seed in [
            (cases_of(20), 1),
            (cases_of(20)[::-1], 1),
            (cases_of(20), 2),
        ]
    ]
    assert asked[0] == asked[1]
    assert asked[0] != asked[2]


def test_arms_take_turns_in_going_first():
    asks = Planner(cases_of(60), GatePolicy()).next(120)
    leading = Counter(ask.arm for ask in asks[::2])
    assert min(leading.values()) > 15


def test_pair_is_never_torn():
    planner = Planner(cases_of(3), GatePolicy())
    assert len(planner.next(1)) == 2


def test_next_waits_for_what_decides():
    planner = Planner(cases_of(1, deterministic=True), GatePolicy())
    asks = planner.next()
    assert planner.next() == ()
    assert not planner.finished
    for ask in asks:
        planner.record(seen(ask))
    assert planner.finished


def test_rollout_that_nobody_asked_for_is_refused():
    planner = Planner(cases_of(1), GatePolicy())
    (ask, _) = planner.next()
    planner.record(seen(ask))
    with pytest.raises(ValueError, match="nobody asked for repeat 0"):
        planner.record(seen(ask))
    with pytest.raises(ValueError, match="attempt 3"):
        planner.record(seen(replace(ask, attempt=3)))


def test_two_cases_of_one_name_are_refused():
    with pytest.raises(ValueError, match="same id"):
        Planner([GateCase("a"), GateCase("a")], GatePolicy())


def test_suite_without_cases_passes_at_once():
    decision, planner = drive([], always())
    assert decision.verdict is GateVerdict.PASSED
    assert decision.reasons[0].kind is ReasonKind.NOTHING
    assert planner.asked == 0


@given(st.integers(0, 1000), st.integers(1, 12))
@settings(max_examples=25, deadline=None)
def test_verdict_does_not_hang_on_who_is_faster(seed, flying):
    world = chances(lambda c: 0.8, lambda c: 0.6, seed, network=True)
    alone, _ = drive(cases_of(15), world, GatePolicy(seed=seed))
    many, _ = drive(
        cases_of(15), world, GatePolicy(seed=seed), flying=flying, order=Random(seed)
    )
    assert many.verdict is alone.verdict
    if not alone.stopped:
        assert {row.id: row for row in many.rows} == {row.id: row for row in alone.rows}


# -- deterministic cases -----------------------------------------------------------


@pytest.mark.parametrize("declared", [True, None])
def test_flip_of_a_deterministic_case_regresses(declared):
    cases = cases_of(20, deterministic=declared)
    decision, _ = drive(cases, always(head={"test_007": FAILED}))
    assert decision.verdict is GateVerdict.REGRESSED
    assert decision.reasons[0].kind is ReasonKind.FLIP
    assert decision.reasons[0].cases == ("test_007",)
    assert decision.rows[0].id == "test_007"
    assert decision.rows[0].status is CaseStatus.FLIPPED


def test_declared_deterministic_cases_run_once_on_each_side():
    cases = cases_of(200, deterministic=True)
    decision, planner = drive(cases, always(head={"test_123": FAILED}), flying=8)
    assert decision.verdict is GateVerdict.REGRESSED
    assert set(Counter(o.case for o in planner.observations).values()) == {2}


def test_observed_deterministic_cases_are_sampled_where_they_flip():
    _, planner = drive(cases_of(30), always(head={"test_004": FAILED}))
    sampled = {o.case for o in planner.observations if o.stage is Stage.SAMPLE}
    assert sampled == {"test_004"}
    assert planner.asked == 60 + 6


def test_deterministic_suite_without_flips_passes_exactly():
    decision, planner = drive(cases_of(4), always())
    assert decision.verdict is GateVerdict.PASSED
    assert decision.reasons[0].kind is ReasonKind.EXACT
    assert planner.asked == 8 + 4 * 2 * 4


def test_declared_deterministic_suite_without_flips_runs_nothing_again():
    decision, planner = drive(cases_of(4, deterministic=True), always())
    assert decision.reasons[0].kind is ReasonKind.EXACT
    assert planner.asked == 8


def test_twenty_cases_are_sampled_where_nothing_flipped():
    def world(ask: Ask):
        lower = ask.arm is Arm.HEAD and ask.case == "test_003"
        return seen(ask, score=0.9 if lower else 1.0)

    _, planner = drive(cases_of(200), world)
    sampled = Counter(o.case for o in planner.observations if o.stage is Stage.SAMPLE)
    assert len(sampled) == 20
    assert "test_003" in sampled  # it changed, if only a little
    assert set(sampled.values()) == {4}


def test_coin_that_happened_not_to_fall_is_no_exact_pass():
    def world(ask: Ask):
        coin = ask.case == "test_002" and (ask.repeat + (ask.arm is Arm.HEAD)) % 2
        return seen(ask, FAILED if ask.repeat and coin else Outcome.PASSED)

    decision, _ = drive(cases_of(6), world)
    assert decision.verdict is GateVerdict.INCONCLUSIVE
    assert not any(row.deterministic for row in decision.rows)


def test_what_looks_worse_is_paid_before_samples():
    local = [GateCase(f"local_{i}") for i in range(20)]
    far = [GateCase(f"far_{i:02d}") for i in range(20)]

    def world(ask: Ask):
        bad = ask.arm is Arm.HEAD and ask.case in ("far_00", "far_01", "far_02")
        outcome = FAILED if bad else Outcome.PASSED
        return seen(ask, outcome, network=ask.case.startswith("far"))

    for policy in (GatePolicy(), GatePolicy(rollouts=180)):
        decision, planner = drive([*local, *far], world, policy)
        assert decision.verdict is GateVerdict.REGRESSED
        assert _stages(planner)[Stage.SAMPLE] == 0


@pytest.mark.parametrize("lost", [1, 9])
def test_samples_that_infrastructure_took_leave_an_exact_pass(lost):
    def world(ask: Ask):
        taken = ask.case == "test_003" and ask.arm is Arm.BASE and ask.repeat <= lost
        failed = ask.stage is Stage.SAMPLE and taken
        return seen(ask, Outcome.ERROR if failed else Outcome.PASSED)

    decision, _ = drive(cases_of(20), world)
    assert decision.reasons[0].kind is ReasonKind.EXACT


@pytest.mark.parametrize("count", [6, 11, 30])
def test_case_that_used_the_network_in_a_sample_is_noisy_by_itself(count):
    victim = plan_order(cases_of(count), GatePolicy())[0].id

    def world(ask: Ask):
        network = ask.case == victim and ask.stage is Stage.SAMPLE
        return seen(ask, network=network)

    decision, _ = drive(cases_of(count), world)
    noisy = [row.id for row in decision.rows if not row.deterministic]
    assert noisy == [victim]


def test_spot_checks_are_looked_at_once():
    far = [GateCase(f"far_{i:02d}", reached=False) for i in range(20)]

    def world(ask: Ask):
        return seen(ask, surprise=ask.case.startswith("far") and ask.repeat > 0)

    decision, planner = drive([*cases_of(10), *far], world)
    assert decision.verdict is GateVerdict.PASSED
    sampled = {o.case for o in planner.observations if o.stage is Stage.SAMPLE}
    assert not any(case.startswith("far") for case in sampled)


def test_late_surprise_runs_the_cases_that_were_spared():
    cases = [
        *cases_of(10),
        *(GateCase(f"far_{i:02d}", reached=False) for i in range(20)),
    ]
    spots = {case.id for case in plan_order(cases, GatePolicy())[:5]}

    def world(ask: Ask):
        spot = ask.case in spots
        worse = spot and ask.stage is Stage.FIRST and ask.arm is Arm.HEAD
        late = spot and ask.stage is Stage.CONFIRMATION
        outcome = FAILED if worse else Outcome.PASSED
        return seen(ask, outcome, network=spot, surprise=late)

    decision, planner = drive(cases, world)
    assert len({o.case for o in planner.observations}) == 30
    assert decision.verdict is not GateVerdict.INCOMPLETE


@pytest.mark.parametrize("runs", [1, 3, 10])
def test_stored_base_that_agrees_with_all_samples_passes_exactly(runs):
    stored = Stored(n=runs, passes=runs, mean=1.0)
    decision, _ = drive(cases_of(8, stored=stored), always(), base_arm=False)
    assert decision.reasons[0].kind is ReasonKind.EXACT


def test_rollout_that_hung_in_a_call_does_not_end_a_gate_with_a_money_budget():
    def world(ask: Ask):
        hung = ask.case == "test_002" and ask.arm is Arm.HEAD
        outcome = Outcome.TIMEOUT if hung else Outcome.PASSED
        return seen(ask, outcome, network=True, usd=None if hung else 0.01)

    decision, planner = drive(cases_of(30), world, GatePolicy(usd=50.0))
    assert not decision.stopped
    assert len({o.case for o in planner.observations}) == 30


def test_suite_that_may_not_be_sampled_says_what_would_settle_it():
    decision, _ = drive(cases_of(6), always(), GatePolicy(rollouts=12))
    assert decision.verdict is GateVerdict.INCONCLUSIVE
    assert "deterministic=True" in decision.settle


def test_repeats_that_disagree_make_all_undeclared_cases_noisy():
    def world(ask: Ask):
        wobbles = ask.case == "test_001" and ask.repeat % 2
        fails = ask.arm is Arm.HEAD and ask.case in ("test_000", "test_001")
        return seen(ask, FAILED if fails and not wobbles else Outcome.PASSED)

    decision, planner = drive(cases_of(10), world)
    assert not any(row.deterministic for row in decision.rows)
    assert _stages(planner)[Stage.CONFIRMATION] > 0


def test_network_makes_a_case_noisy_however_it_looks():
    world = always(head={"test_001": FAILED}, network=True)
    decision, planner = drive(cases_of(10), world)
    row = next(row for row in decision.rows if row.id == "test_001")
    assert not row.deterministic
    assert row.status is CaseStatus.CONFIRMED
    assert _stages(planner)[Stage.SAMPLE] == 0
    assert decision.verdict is GateVerdict.REGRESSED


def test_equal_totals_do_not_hide_a_flip():
    world = always(head={"test_002": FAILED}, base={"test_009": FAILED})
    decision, _ = drive(cases_of(10, deterministic=True), world)
    assert decision.verdict is GateVerdict.REGRESSED
    assert {row.id: row.status for row in decision.rows}["test_009"] is CaseStatus.FIXED
    assert decision.overall is not None
    assert decision.overall.difference == pytest.approx(0)


# -- noisy cases -------------------------------------------------------------------


def test_steady_regression_between_coins_is_found():
    cases = [GateCase("coin_a"), GateCase("coin_b"), GateCase("steady")]
    for seed in range(20):
        world = chances(
            lambda c: 1.0 if c == "steady" else 0.5,
            lambda c: 0.0 if c == "steady" else 0.5,
            seed,
        )
        decision, planner = drive(cases, world, GatePolicy(seed=seed))
        assert decision.verdict is GateVerdict.REGRESSED
        assert planner.asked <= planner.budget


def test_coins_seldom_regress():
    cases = [GateCase("coin_a"), GateCase("coin_b"), GateCase("steady")]
    red = 0
    for seed in range(300):
        world = chances(
            lambda c: 1.0 if c == "steady" else 0.5,
            lambda c: 1.0 if c == "steady" else 0.5,
            seed,
        )
        red += drive(cases, world, GatePolicy(seed=seed))[0].exit_code == 1
    assert red <= 10  # 2 % of 300 are 6


def test_flips_are_confirmed_by_fresh_rollouts_of_both_arms():
    def world(ask: Ask):  # fails the first time only
        bad = ask.case == "test_005" and ask.arm is Arm.HEAD and ask.repeat == 0
        return seen(ask, FAILED if bad else Outcome.PASSED, network=True)

    decision, planner = drive(cases_of(40), world, GatePolicy(more_rounds=0))
    fresh = [o for o in planner.observations if o.stage is Stage.CONFIRMATION]
    assert Counter(o.arm for o in fresh) == {Arm.BASE: 4, Arm.HEAD: 4}
    assert decision.verdict is not GateVerdict.REGRESSED
    assert decision.rows[0].status is CaseStatus.SUSPECT


def test_second_round_looks_only_at_who_is_still_worse():
    def world(ask: Ask):
        head = ask.arm is Arm.HEAD
        steady = ask.case == "test_001" and head
        once = ask.case == "test_002" and head and ask.repeat == 0
        return seen(ask, FAILED if steady or once else Outcome.PASSED, network=True)

    _, planner = drive(cases_of(10), world, GatePolicy(confirm=(4, 8)))
    runs = Counter(
        o.case for o in planner.observations if o.stage is Stage.CONFIRMATION
    )
    assert runs == {"test_001": 24, "test_002": 8}


def test_scarce_confirmations_go_to_the_worst():
    def world(ask: Ask):  # four that wobble, and one that is broken for good
        head, index = ask.arm is Arm.HEAD, int(ask.case[-3:])
        wobbles = index < 4 and ask.repeat in (0, 2)
        bad = head and (wobbles or index == 4)
        return seen(ask, FAILED if bad else Outcome.PASSED, network=True)

    policy = GatePolicy(rollouts=40 + 5 * 8 + 24, minimal_effect=1.0)
    decision, planner = drive(cases_of(20), world, policy)
    runs = Counter(
        o.case for o in planner.observations if o.stage is Stage.CONFIRMATION
    )
    assert runs["test_004"] == 32
    assert decision.verdict is GateVerdict.REGRESSED


def test_must_pass_case_counts_alone_without_holm():
    def world(ask: Ask):  # eight steady suspects and one that fails half of the time
        index = int(ask.case[-3:])
        fails = index < 9 and ask.repeat == 0
        shaky = index == 8 and ask.repeat % 2 == 0
        bad = ask.arm is Arm.HEAD and (fails or shaky)
        return seen(ask, FAILED if bad else Outcome.PASSED, network=True)

    free = cases_of(300)
    strict = [replace(c, must_pass=c.id == "test_008") for c in free]
    policy = GatePolicy(more_rounds=0, minimal_effect=0.2)
    without, _ = drive(free, world, policy)
    with_mark, _ = drive(strict, world, policy)
    assert ReasonKind.MUST_PASS not in {r.kind for r in without.reasons}
    assert with_mark.verdict is GateVerdict.REGRESSED
    assert with_mark.rows[0].id == "test_008"
    assert with_mark.rows[0].status is CaseStatus.MUST_PASS


def test_verdict_that_cannot_change_spends_no_confirmations():
    cases = [GateCase("exact", deterministic=True), *cases_of(20)]
    world = always(head={"exact": FAILED, "test_003": FAILED}, network=True)
    decision, planner = drive(cases, world)
    assert decision.verdict is GateVerdict.REGRESSED
    assert _stages(planner)[Stage.CONFIRMATION] == 0


def test_broken_head_is_stopped_early():
    world = chances(lambda c: 1.0, lambda c: float(int(c[-3:]) % 2), network=True)
    decision, planner = drive(cases_of(300), world, flying=8)
    assert decision.verdict is GateVerdict.REGRESSED
    assert ReasonKind.PLAIN in {reason.kind for reason in decision.reasons}
    assert "plainly worse" in decision.stopped
    assert planner.asked < 150


def test_broken_head_of_a_small_suite_is_named_whole():
    broken = {f"test_{index:03d}": FAILED for index in range(6)}
    decision, _ = drive(cases_of(9, deterministic=True), always(head=broken))
    assert set(decision.reasons[0].cases) == set(broken)
    assert not decision.stopped


def _one_up_one_down(ask: Ask):
    """At first one case is worse and one is better; afterwards all pass."""
    arm = {"test_001": Arm.HEAD, "test_002": Arm.BASE}.get(ask.case)
    bad = ask.repeat == 0 and ask.arm is arm
    return seen(ask, FAILED if bad else Outcome.PASSED, network=True)


def test_more_rounds_follow_while_they_can_settle_it():
    decision, planner = drive(cases_of(60), _one_up_one_down, GatePolicy(rollouts=700))
    assert _stages(planner)[Stage.MORE] == 240
    assert decision.verdict is GateVerdict.PASSED
    none = GatePolicy(rollouts=700, more_rounds=0)
    decision, _ = drive(cases_of(60), _one_up_one_down, none)
    assert decision.verdict is GateVerdict.INCONCLUSIVE
    assert "more runs of each of the 60 noisy cases" in decision.settle


def test_more_rounds_that_could_not_settle_it_are_not_run():
    decision, planner = drive(cases_of(12), _one_up_one_down)
    assert decision.verdict is GateVerdict.INCONCLUSIVE
    assert _stages(planner)[Stage.MORE] == 0


# -- budgets -----------------------------------------------------------------------


@given(st.integers(0, 120), st.integers(1, 9), st.integers(0, 50))
@settings(max_examples=40, deadline=None)
def test_budget_is_never_exceeded(rollouts, flying, seed):
    world = chances(lambda c: 0.7, lambda c: 0.5, seed, network=True)
    _, planner = drive(
        cases_of(20),
        world,
        GatePolicy(rollouts=rollouts, seed=seed),
        flying=flying,
        order=Random(seed),
    )
    assert len(planner.observations) == planner.asked <= rollouts


def test_budget_below_the_first_pass_leaves_the_verdict_incomplete():
    decision, planner = drive(cases_of(20), always(), GatePolicy(rollouts=21))
    assert decision.verdict is GateVerdict.INCOMPLETE
    assert decision.exit_code == 17
    assert planner.asked == 20
    assert "budget of 21 rollouts" in decision.stopped
    assert "10 cases of 20 were not run" in decision.reasons[0].text


def test_budget_without_room_to_confirm_leaves_the_verdict_open():
    world = always(head={"test_001": FAILED}, network=True)
    decision, _ = drive(cases_of(300), world, GatePolicy(rollouts=601))
    assert decision.verdict is GateVerdict.INCONCLUSIVE
    assert decision.reasons[0].kind is ReasonKind.BUDGET
    assert decision.reasons[0].cases == ("test_001",)


def test_spent_tokens_stop_the_gate():
    world = always(tokens=10)
    decision, planner = drive(cases_of(20), world, GatePolicy(tokens=100))
    assert planner.asked == 10
    assert "tokens" in decision.stopped


def test_spent_money_stops_the_gate():
    _, planner = drive(cases_of(20), always(usd=0.5), GatePolicy(usd=2.0))
    assert planner.asked == 4


def test_stop_from_outside_lets_what_flies_arrive():
    planner = Planner(cases_of(5), GatePolicy())
    asks = planner.next(4)
    planner.stop("time is up")
    assert planner.next() == ()
    assert not planner.finished
    for ask in asks:
        planner.record(seen(ask))
    assert planner.finished
    assert planner.decision().stopped == "time is up"


# -- infrastructure ----------------------------------------------------------------


def test_lost_rollout_is_tried_again_and_both_attempts_count():
    def world(ask: Ask):
        lost = ask.case == "test_001" and ask.arm is Arm.HEAD and ask.attempt == 0
        return seen(ask, Outcome.ERROR if lost else Outcome.PASSED)

    decision, planner = drive(cases_of(10, deterministic=True), world)
    assert planner.asked == 21
    assert decision.verdict is GateVerdict.PASSED
    assert decision.excluded == ()


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.TIMEOUT, Outcome.CRASHED])
def test_error_on_one_side_excludes_the_pair(outcome):
    decision, _ = drive(cases_of(40), always(head={"test_001": outcome}))
    assert decision.verdict is GateVerdict.PASSED
    assert [(e.id, e.arm) for e in decision.excluded] == [("test_001", Arm.HEAD)]
    assert decision.overall is not None
    assert decision.overall.cases == 39


@pytest.mark.parametrize("side", ["head", "base"])
def test_many_errors_are_incomplete_never_regressed(side):
    down = {f"test_{index:03d}": Outcome.ERROR for index in range(3)}
    told = {side: down}
    if side == "head":
        told["head"] = {**down, "test_005": FAILED}
    decision, _ = drive(cases_of(10), always(**told))
    assert decision.verdict is GateVerdict.INCOMPLETE
    assert decision.reasons[0].kind is ReasonKind.ERRORS
    assert set(decision.reasons[0].cases) == set(down)
    assert {row.id for row in decision.rows if row.status is CaseStatus.ERROR} == set(
        down
    )


def test_outage_stops_the_gate():
    world = always(head={f"test_{index:03d}": Outcome.ERROR for index in range(200)})
    decision, planner = drive(cases_of(200), world)
    assert decision.verdict is GateVerdict.INCOMPLETE
    assert planner.asked < 50


def test_must_pass_case_that_cannot_be_measured_is_incomplete():
    cases = [*cases_of(50), GateCase("critical", must_pass=True)]
    decision, _ = drive(cases, always(head={"critical": Outcome.TIMEOUT}))
    assert decision.verdict is GateVerdict.INCOMPLETE


# -- what the suite does -----------------------------------------------------------


@pytest.mark.parametrize("network", [True, False])
def test_case_that_is_skipped_now_counts_as_worse(network):
    world = always(head={"test_003": Outcome.SKIPPED}, network=network)
    decision, planner = drive(cases_of(30), world)
    assert decision.verdict is GateVerdict.REGRESSED
    assert decision.reasons[0].kind is ReasonKind.SKIPPED
    assert decision.rows[0].status is CaseStatus.SKIPPED
    assert _stages(planner)[Stage.SAMPLE] > 0
    accepted, _ = drive(cases_of(30), world, GatePolicy(accept_removed=True))
    assert ReasonKind.SKIPPED not in {reason.kind for reason in accepted.reasons}
    assert accepted.verdict is not GateVerdict.REGRESSED


def test_case_that_was_skipped_before_is_not_compared():
    world = always(base={"test_003": Outcome.SKIPPED}, head={"test_003": FAILED})
    decision, _ = drive(cases_of(5, deterministic=True), world)
    assert decision.verdict is GateVerdict.PASSED
    row = next(row for row in decision.rows if row.id == "test_003")
    assert row.status is CaseStatus.NOT_COMPARED


def test_missing_case_counts_as_worse():
    decision, _ = drive(cases_of(5), always(head={"test_003": Outcome.MISSING}))
    assert decision.verdict is GateVerdict.REGRESSED


def test_added_case_runs_on_the_head_only_and_is_shown():
    cases = [*cases_of(3), GateCase("new", added=True)]
    decision, planner = drive(cases, always(head={"new": FAILED}))
    assert [o.arm for o in planner.observations if o.case == "new"] == [Arm.HEAD]
    assert decision.verdict is GateVerdict.PASSED
    row = next(row for row in decision.rows if row.id == "new")
    assert (row.status, row.head) == (CaseStatus.ADDED, 0.0)


@pytest.mark.parametrize(
    ("today", "verdict"),
    [
        (date(2026, 3, 1), GateVerdict.PASSED),
        (date(2026, 3, 2), GateVerdict.REGRESSED),
    ],
)
def test_quarantine_counts_again_once_it_has_expired(today, verdict):
    entry = Quarantine("flaky upstream", date(2026, 3, 1))
    cases = [*cases_of(3, deterministic=True), GateCase("q", quarantine=entry)]
    decision, _ = drive(cases, always(head={"q": FAILED}), GatePolicy(today=today))
    assert decision.verdict is verdict
    row = next(row for row in decision.rows if row.id == "q")
    assert "flaky upstream" in row.note


# -- only what the change can reach ------------------------------------------------


def test_unreached_cases_are_spot_checked_only():
    far_cases = (
        GateCase(f"far_{i}", reached=False, deterministic=True) for i in range(50)
    )
    cases = [*cases_of(5, deterministic=True), *far_cases]
    decision, planner = drive(cases, always())
    far = {o.case for o in planner.observations if o.case.startswith("far")}
    assert len(far) == 5
    assert decision.verdict is GateVerdict.PASSED
    idle = [row for row in decision.rows if row.status is CaseStatus.UNREACHED]
    assert len(idle) == 45
    assert planner.asked == 20


def test_surprise_in_a_spot_check_turns_the_saving_off():
    cases = [*cases_of(5), *(GateCase(f"far_{i}", reached=False) for i in range(50))]
    spot = next(a.case for a in Planner(cases, GatePolicy()).next(2))

    def world(ask: Ask):
        return seen(ask, surprise=ask.case == spot)

    decision, planner = drive(cases, world)
    assert len({o.case for o in planner.observations}) == 55
    assert spot in decision.saving_off


def test_flip_in_a_spot_check_turns_the_saving_off_unless_the_case_is_noisy():
    far = [GateCase(f"far_{i}", reached=False) for i in range(50)]
    spot = next(a.case for a in Planner(far, GatePolicy()).next(2))
    for network, runs in [(False, 50), (True, 5)]:
        world = always(head={spot: FAILED}, network=network)
        decision, planner = drive(far, world)
        assert len({o.case for o in planner.observations}) == runs
        assert bool(decision.saving_off) is not network
        assert decision.verdict is GateVerdict.REGRESSED


# -- a stored baseline -------------------------------------------------------------


def _stored(count: int, n: int, passes: int | None = None, **more: object):
    passes = n if passes is None else passes
    mean = passes / n
    spread = n * mean * (1 - mean) / (n - 1) if n > 1 else 0.0
    return cases_of(count, stored=Stored(n, passes, mean, spread), **more)


def test_stored_baseline_runs_the_head_only():
    decision, planner = drive(
        _stored(10, 1, deterministic=True), always(), base_arm=False
    )
    assert {o.arm for o in planner.observations} == {Arm.HEAD}
    assert planner.asked == 10
    assert decision.verdict is GateVerdict.PASSED


def test_flip_against_a_stored_deterministic_case_regresses():
    cases = _stored(10, 3, deterministic=True)
    decision, _ = drive(cases, always(head={"test_001": FAILED}), base_arm=False)
    assert decision.verdict is GateVerdict.REGRESSED


def test_one_stored_run_cannot_convict_a_noisy_case():
    world = always(head={"test_001": FAILED}, network=True)
    decision, _ = drive(_stored(10, 1), world, base_arm=False)
    assert decision.verdict is GateVerdict.INCONCLUSIVE


def test_ten_stored_runs_convict_a_broken_noisy_case():
    world = always(head={"test_001": FAILED}, network=True)
    decision, planner = drive(_stored(10, 10), world, base_arm=False)
    assert decision.verdict is GateVerdict.REGRESSED
    assert decision.rows[0].status is CaseStatus.CONFIRMED
    assert {o.arm for o in planner.observations} == {Arm.HEAD}


def test_stored_baseline_with_a_base_arm_confirms_on_both_sides():
    world = always(head={"test_001": FAILED}, network=True)
    decision, planner = drive(_stored(10, 1), world)
    arms = {o.arm for o in planner.observations if o.stage is Stage.CONFIRMATION}
    assert arms == {Arm.BASE, Arm.HEAD}
    assert decision.verdict is GateVerdict.REGRESSED


def test_case_without_stored_counts_is_added():
    cases = [*_stored(3, 2, deterministic=True), GateCase("new")]
    decision, planner = drive(cases, always(head={"new": FAILED}), base_arm=False)
    assert decision.verdict is GateVerdict.PASSED
    row = next(row for row in decision.rows if row.id == "new")
    assert row.status is CaseStatus.ADDED
    assert planner.cases[-1].added


def test_skip_against_a_stored_pass_counts_as_worse():
    cases = _stored(10, 3)
    world = always(head={"test_001": Outcome.SKIPPED})
    decision, _ = drive(cases, world, base_arm=False)
    assert decision.verdict is GateVerdict.REGRESSED


def test_budget_of_money_stops_where_nobody_knows_a_price():
    decision, planner = drive(cases_of(20), always(usd=None), GatePolicy(usd=2.0))
    assert "nobody knows" in decision.stopped
    assert len(planner.observations) < 20
    assert decision.verdict is GateVerdict.INCOMPLETE


# -- cases that are spared count as unchanged ----------------------------------------


def _spared(**more: object) -> list[GateCase]:
    stored = Stored(n=3, passes=3, mean=1.0, deterministic=True)
    spared = (
        GateCase(f"far_{i:02d}", reached=False, stored=stored, **more)
        for i in range(30)
    )
    return [*cases_of(10, stored=stored, **more), *spared]


def test_tolerance_is_a_share_of_all_cases_and_not_of_those_that_run():
    world = always(head={f"test_{i:03d}": FAILED for i in range(8)})
    policy = GatePolicy(tolerance=0.2)
    decision, planner = drive(_spared(), world, policy, base_arm=False)
    assert decision.verdict is GateVerdict.PASSED, decision.reasons
    assert decision.overall is not None
    assert decision.overall.cases == 40
    assert decision.overall.difference == pytest.approx(-8 / 40)
    assert decision.overall.base == 1.0
    stricter = replace(policy, tolerance=0.19)
    assert drive(_spared(), world, stricter, base_arm=False)[0].verdict is (
        GateVerdict.REGRESSED
    )
    assert {o.case for o in planner.observations if o.case.startswith("far")}


def test_unchanged_artifact_passes_when_spot_checks_find_nothing():
    stored = Stored(n=3, passes=2, mean=2 / 3, variance=1 / 3)
    cases = [GateCase(f"far_{i:02d}", reached=False, stored=stored) for i in range(40)]
    world = chances(lambda c: 0.7, lambda c: 0.7, 3, network=True)
    decision, planner = drive(cases, world, base_arm=False)
    assert decision.verdict is GateVerdict.PASSED
    assert decision.reasons[0].kind is ReasonKind.NOTHING
    assert "5 spot checks" in decision.reasons[0].text
    assert _stages(planner)[Stage.MORE] == 0


def test_group_of_spared_cases_leaves_the_others_their_own_mean():
    cases = [replace(c, group="far" if not c.reached else "near") for c in _spared()]
    world = always(head={f"test_{i:03d}": FAILED for i in range(8)})
    decision, _ = drive(cases, world, base_arm=False)
    groups = {effect.name: effect for effect in decision.effects if effect.name}
    assert groups["near"].difference == pytest.approx(-0.8)
    assert groups["far"].cases == 30
    assert groups["far"].difference == 0


@pytest.mark.parametrize(("runs", "broken"), [(3, 4), (10, 1)])
def test_several_broken_cases_are_found_with_few_stored_runs(runs, broken):
    stored = Stored(n=runs, passes=runs, mean=1.0)
    head = {f"test_{i:03d}": FAILED for i in range(broken)}
    world = always(head, network=True)
    decision, _ = drive(cases_of(40, stored=stored), world, base_arm=False)
    assert decision.verdict is GateVerdict.REGRESSED, decision.reasons


def test_few_stored_runs_that_convict_nobody_are_named_as_the_way_out():
    stored = Stored(n=3, passes=3, mean=1.0)
    world = always(head={"test_001": FAILED}, network=True)
    decision, _ = drive(cases_of(40, stored=stored), world, base_arm=False)
    assert decision.verdict is GateVerdict.INCONCLUSIVE
    assert "--evo-repeats=10" in decision.settle
    assert "git:REF" in decision.settle


def test_labels_of_rows_say_what_their_figures_say():
    world = chances(lambda c: 0.6, lambda c: 0.6, 5, network=True)
    decision, _ = drive(cases_of(30), world)
    for row in decision.rows:
        if row.status in (CaseStatus.HIGHER, CaseStatus.FIXED):
            assert row.head > row.base
        if row.status is CaseStatus.LOWER:
            assert row.head < row.base
        if row.status in (CaseStatus.SAME, CaseStatus.FAILING):
            assert row.head == row.base
