from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from gate_world import always
from gate_world import cases_of
from gate_world import chances
from gate_world import drive
from gate_world import seen
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.gate.decision import decide
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import CaseStatus
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate.values import Limit
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import ReasonKind
from pytest_evo.gate.values import Removed
from pytest_evo.gate.values import Scope
from pytest_evo.gate.values import Stage
from pytest_evo.gate.values import Stored
from pytest_evo.models import Metric
from pytest_evo.models import Outcome

FAILED = Outcome.FAILED


def _pair(case: str, base: float, head: float, **more: object) -> list[Observation]:
    """A first pair that passed on both sides with these scores."""
    scores = {Arm.BASE: base, Arm.HEAD: head}
    return [
        seen(Ask(arm, case, 0, Stage.FIRST), Outcome.PASSED, scores[arm], **more)
        for arm in Arm
    ]


def _kinds(decision) -> set[ReasonKind]:
    return {reason.kind for reason in decision.reasons}


# -- deciding again ----------------------------------------------------------------


@given(st.integers(0, 10_000), st.sampled_from([0.9, 0.6, 0.2]), st.booleans())
@settings(max_examples=30, deadline=None)
def test_decision_is_made_again_from_what_was_recorded(seed, head, network):
    world = chances(lambda c: 0.9, lambda c: head, seed, network=network)
    policy = GatePolicy(seed=seed)
    first, planner = drive(cases_of(25), world, policy, flying=5, order=Random(seed))
    again = decide(
        planner.observations, planner.cases, policy, Change(), stopped=first.stopped
    )
    assert again == first


@given(st.integers(0, 1000))
@settings(max_examples=20, deadline=None)
def test_decision_does_not_hang_on_the_order_of_observations(seed):
    world = chances(lambda c: 0.9, lambda c: 0.7, seed, network=True)
    first, planner = drive(cases_of(25), world)
    shuffled = list(planner.observations)
    Random(seed).shuffle(shuffled)
    again = decide(shuffled, planner.cases, GatePolicy(), stopped=first.stopped)
    assert again == first


def test_rollout_of_an_unknown_case_is_refused():
    with pytest.raises(ValueError, match="'stranger', which is no case"):
        decide(_pair("stranger", 1.0, 1.0), cases_of(2), GatePolicy())


def test_strict_policy_makes_an_open_verdict_an_exit_status():
    world = always(head={"test_001": FAILED}, network=True)
    loose, planner = drive(cases_of(6), world, GatePolicy(rollouts=12))
    assert (loose.verdict, loose.exit_code) == (GateVerdict.INCONCLUSIVE, 0)
    strict = decide(planner.observations, planner.cases, GatePolicy(strict=True))
    assert (strict.verdict, strict.exit_code) == (GateVerdict.INCONCLUSIVE, 16)


# -- removed cases, limits ---------------------------------------------------------


def test_removed_case_that_passed_needs_to_be_accepted():
    change = Change(removed=(Removed("gone", passed=True),))
    red, _ = drive(cases_of(3), always(), change=change)
    assert red.verdict is GateVerdict.REGRESSED
    assert "--evo-accept-removed" in red.reasons[0].text
    green, _ = drive(cases_of(3), always(), GatePolicy(accept_removed=True), change)
    assert green.verdict is GateVerdict.PASSED


def test_removed_case_that_failed_is_no_regression():
    change = Change(removed=(Removed("gone", passed=False),))
    assert drive(cases_of(3), always(), change=change)[0].verdict is GateVerdict.PASSED


def _usage(metric: str, head: float):
    def world(ask: Ask) -> Observation:
        value = (100.0 + len(ask.case)) * (head if ask.arm is Arm.HEAD else 1.0)
        used = round(value) if metric == "tokens" else value
        return seen(ask, **{metric: used})

    return world


@pytest.mark.parametrize("metric", ["tokens", "seconds", "usd"])
def test_limit_on_usage_holds(metric):
    policy = GatePolicy(limits=(Limit(metric, 1.2),))
    within, _ = drive(cases_of(8), _usage(metric, 1.15), policy)
    assert within.verdict is GateVerdict.PASSED
    assert within.limits[0].ratio == pytest.approx(1.15, abs=0.01)
    beyond, _ = drive(cases_of(8), _usage(metric, 1.3), policy)
    assert beyond.verdict is GateVerdict.REGRESSED
    assert _kinds(beyond) == {ReasonKind.LIMIT}


def test_limit_on_bytes_is_exact_at_its_edge():
    policy = GatePolicy(limits=(Limit("bytes", 1.2),))
    for size, verdict in [(1200, GateVerdict.PASSED), (1201, GateVerdict.REGRESSED)]:
        change = Change(base_bytes=1000, head_bytes=size)
        assert drive(cases_of(3), always(), policy, change)[0].verdict is verdict


def test_limit_needs_more_than_one_slow_case():
    def world(ask: Ask) -> Observation:
        slow = ask.case == "test_001" and ask.arm is Arm.HEAD
        return seen(ask, seconds=9.0 if slow else 1.0)

    decision, _ = drive(
        cases_of(10), world, GatePolicy(limits=(Limit("seconds", 1.2),))
    )
    assert decision.limits[0].ratio > 1.2
    assert not decision.limits[0].exceeded
    assert decision.verdict is GateVerdict.PASSED


@pytest.mark.parametrize("metric", ["tokens", "seconds", "usd"])
def test_limit_holds_against_a_stored_base(metric):
    known = Stored(3, 3, 1.0, **{metric: 100.0})
    cases = cases_of(8, deterministic=True, stored=known)
    policy = GatePolicy(limits=(Limit(metric, 1.2),))
    for head, verdict in [(1.0, GateVerdict.PASSED), (1.4, GateVerdict.REGRESSED)]:
        decision, _ = drive(cases, _usage(metric, head), policy, base_arm=False)
        assert decision.verdict is verdict


def test_limit_of_which_nothing_is_known_is_said():
    policy = GatePolicy(limits=(Limit("usd", 1.2), Limit("bytes", 1.2)))
    decision, _ = drive(cases_of(3), always(usd=None), policy)
    assert decision.verdict is GateVerdict.PASSED
    assert [w.split(":")[0] for w in decision.warnings] == [
        "limit on usd",
        "limit on bytes",
    ]


def test_usage_out_of_nothing_exceeds_any_limit():
    def world(ask: Ask) -> Observation:
        return seen(ask, tokens=50 if ask.arm is Arm.HEAD else 0)

    policy = GatePolicy(limits=(Limit("tokens", 1.2),))
    assert drive(cases_of(3), world, policy)[0].verdict is GateVerdict.REGRESSED


# -- means, groups, metrics --------------------------------------------------------


def test_exact_loss_of_the_mean_regresses_without_a_flip():
    cases = cases_of(10, deterministic=True)
    lower = [o for case in cases for o in _pair(case.id, 0.9, 0.88)]
    decision = decide(lower, cases, GatePolicy())
    assert decision.verdict is GateVerdict.REGRESSED
    assert "exactly" in decision.reasons[0].text


@pytest.mark.parametrize(
    ("head", "verdict"),
    [(0.8949, GateVerdict.REGRESSED), (0.8951, GateVerdict.PASSED)],
)
def test_minimal_effect_holds_at_its_edge(head, verdict):
    cases = cases_of(10, deterministic=True)
    lower = [o for case in cases for o in _pair(case.id, 0.9, head)]
    assert decide(lower, cases, GatePolicy()).verdict is verdict


def test_small_loss_of_many_noisy_scores_is_found():
    rng = Random(1)
    cases = cases_of(60, deterministic=False)
    seen_ = []
    for case in cases:
        base = rng.uniform(0.4, 0.9)
        seen_ += _pair(case.id, base, base - rng.gauss(0.05, 0.05))
    decision = decide(seen_, cases, GatePolicy())
    assert ReasonKind.MEAN in _kinds(decision)
    assert decision.overall is not None
    assert decision.overall.high < 0


def test_group_that_falls_alone_is_named():
    cases = [
        GateCase(f"{group}_{i:02d}", group=group, deterministic=False)
        for group in ("math", "prose", "tools")
        for i in range(30)
    ]
    rng = Random(2)
    seen_ = []
    for case in cases:
        drop = 0.2 if case.group == "math" else -0.1
        seen_ += _pair(case.id, 0.7, 0.7 - drop + rng.gauss(0, 0.05))
    decision = decide(seen_, cases, GatePolicy())
    assert _kinds(decision) == {ReasonKind.GROUP}
    assert "'math'" in decision.reasons[0].text
    groups = [e for e in decision.effects if e.scope is Scope.GROUP]
    assert [effect.name for effect in groups] == ["math", "prose", "tools"]
    assert groups[0].p_adjusted == pytest.approx(3 * groups[0].p)


def test_single_group_is_not_tested_twice():
    cases = cases_of(5, group="all")
    effects = drive(cases, always())[0].effects
    assert [effect.scope for effect in effects] == [Scope.OVERALL]


def _with_metric(name: str, base: float, head: float, audit: bool = False):
    def world(ask: Ask) -> Observation:
        value = head if ask.arm is Arm.HEAD else base
        return seen(ask, metrics=(Metric(name, value, audit),))

    return world


def test_metric_that_falls_regresses():
    world = _with_metric("recall", 0.8, 0.6)
    decision, _ = drive(cases_of(10, deterministic=True), world)
    assert _kinds(decision) == {ReasonKind.METRIC}
    assert "'recall'" in decision.reasons[0].text


def test_audit_metric_that_falls_is_a_warning_only():
    world = _with_metric("tone", 0.8, 0.6, audit=True)
    decision, _ = drive(cases_of(10, deterministic=True), world)
    assert decision.verdict is GateVerdict.PASSED
    assert "'tone' fell by 20.0 points" in decision.warnings[0]


def test_weights_decide_what_the_mean_is():
    cases = [
        GateCase("heavy", weight=9.0, deterministic=True),
        GateCase("light", weight=1.0, deterministic=True),
    ]
    seen_ = [*_pair("heavy", 0.8, 0.8), *_pair("light", 0.9, 0.8)]
    effect = decide(seen_, cases, GatePolicy()).overall
    assert effect is not None
    assert effect.difference == pytest.approx(-0.01)
    assert effect.low == effect.high == pytest.approx(-0.01)


# -- rows --------------------------------------------------------------------------


def test_rows_come_worst_first():
    world = always(
        head={"test_001": FAILED, "test_002": Outcome.SKIPPED, "test_003": FAILED},
        base={"test_003": FAILED, "test_004": FAILED},
    )
    cases = [replace(c, must_pass=c.id == "test_001") for c in cases_of(7)]
    decision, _ = drive([replace(c, deterministic=True) for c in cases], world)
    assert [(row.id, str(row.status)) for row in decision.rows][:4] == [
        ("test_001", "must pass, fails"),
        ("test_002", "skipped now"),
        ("test_003", "fails as before"),
        ("test_000", "same"),
    ]
    assert decision.rows[-1].id == "test_004"


def test_failure_message_is_noted():
    def world(ask: Ask) -> Observation:
        bad = ask.case == "test_001" and ask.arm is Arm.HEAD
        return seen(ask, FAILED, message="expected 3 got 4") if bad else seen(ask)

    decision, _ = drive(cases_of(3, deterministic=True), world)
    assert decision.rows[0].note == "expected 3 got 4"


def test_spent_counts_every_attempt():
    def world(ask: Ask) -> Observation:
        lost = ask.attempt == 0 and ask.case == "test_001"
        outcome = Outcome.TIMEOUT if lost else Outcome.PASSED
        return seen(ask, outcome, tokens=5, seconds=0.5, usd=0.01)

    spent = drive(cases_of(3, deterministic=True), world)[0].spent
    assert (spent.rollouts, spent.base, spent.head, spent.tokens) == (8, 4, 4, 40)
    assert spent.seconds == pytest.approx(4.0)
    assert spent.usd == pytest.approx(0.08)


# -- tolerance ---------------------------------------------------------------------


def _fell(count: int, policy: GatePolicy, **more: object):
    """A gate over ten cases that repeat exactly, of which the first ``count`` fell."""
    cases = cases_of(10, deterministic=True, **more)
    head = {case.id: FAILED for case in cases[:count]}
    return drive(cases, always(head), policy)[0]


@pytest.mark.parametrize(
    ("tolerance", "verdict"),
    [
        (0.0, GateVerdict.REGRESSED),
        (0.19, GateVerdict.REGRESSED),
        (0.2, GateVerdict.PASSED),
        (0.9, GateVerdict.PASSED),
    ],
)
def test_share_of_cases_that_may_fall_is_kept_exactly(tolerance, verdict):
    decision = _fell(2, GatePolicy(tolerance=tolerance))
    assert decision.verdict is verdict, decision.reasons
    told = [text for text in decision.warnings if "tolerated" in text]
    assert bool(told) == (verdict is GateVerdict.PASSED)
    assert all("test_000, test_001" in text for text in told)
    rows = [row.id for row in decision.rows if row.status is CaseStatus.TOLERATED]
    assert rows == (["test_000", "test_001"] if told else [])


@pytest.mark.parametrize("count", range(1, 10))
def test_every_edge_of_the_tolerance_passes_and_one_more_case_does_not(count):
    policy = GatePolicy(tolerance=count / 10)
    assert _fell(count, policy).verdict is GateVerdict.PASSED
    assert _fell(count + 1, policy).verdict is GateVerdict.REGRESSED


def test_tolerance_goes_by_weight():
    cases = [replace(case, weight=3.0) for case in cases_of(1, deterministic=True)]
    cases += cases_of(8, deterministic=True)[1:]
    world = always({"test_000": FAILED})
    for tolerance, verdict in (
        (0.3, GateVerdict.PASSED),
        (0.29, GateVerdict.REGRESSED),
    ):
        decision, _ = drive(cases, world, GatePolicy(tolerance=tolerance))
        assert decision.verdict is verdict, decision.reasons


def test_must_pass_case_is_never_tolerated():
    decision = _fell(1, GatePolicy(tolerance=0.5), must_pass=True)
    assert decision.verdict is GateVerdict.REGRESSED
    assert _kinds(decision) == {ReasonKind.MUST_PASS}
    assert not decision.warnings


def test_many_cases_within_the_tolerance_do_not_stop_the_gate_early():
    cases = cases_of(60, deterministic=True)
    head = {case.id: FAILED for case in cases[:24]}
    decision, _ = drive(cases, always(head), GatePolicy(tolerance=0.4))
    assert decision.verdict is GateVerdict.PASSED, decision.reasons
    assert not decision.stopped
    decision, _ = drive(cases, always(head), GatePolicy(tolerance=0.3))
    assert decision.verdict is GateVerdict.REGRESSED


@given(
    st.integers(0, 10_000),
    st.sampled_from([0.9, 0.7, 0.4]),
    st.sampled_from([0.02, 0.1, 0.4]),
)
@example(1041, 0.4, 0.02)  # 0.0019 by draws, where 0.0021 is exact
@settings(max_examples=30, deadline=None)
def test_tolerance_never_makes_a_gate_stricter(seed, head, tolerance):
    world = chances(lambda c: 0.9, lambda c: head, seed)
    policy = GatePolicy(seed=seed)
    plain, planner = drive(cases_of(25), world, policy)
    lenient = decide(
        planner.observations, planner.cases, replace(policy, tolerance=tolerance)
    )
    if lenient.verdict is GateVerdict.REGRESSED:
        assert plain.verdict is GateVerdict.REGRESSED
    if plain.verdict is GateVerdict.PASSED:
        assert lenient.verdict is GateVerdict.PASSED


def test_loss_within_the_tolerance_is_not_judged_before_all_cases_are_measured():
    cases = cases_of(100, deterministic=True)
    policy = GatePolicy(tolerance=0.1)
    whole, planner = drive(cases, always(), policy)
    order = list(dict.fromkeys(o.case for o in planner.observations))
    head = dict.fromkeys(order[:3], FAILED)
    whole, planner = drive(cases, always(head), policy)
    assert whole.verdict is GateVerdict.PASSED
    first = [o for o in planner.observations if o.case in order[:20]]
    part = decide(first, planner.cases, policy, stopped="the time limit was reached")
    assert part.verdict is GateVerdict.INCOMPLETE, part.reasons


@pytest.mark.parametrize("seed", range(10))
def test_noisy_loss_of_the_tolerance_itself_is_seldom_red(seed):
    draws = Random(seed)

    def world(ask: Ask) -> Observation:
        score = 0.5 + draws.uniform(-0.1, 0.1) - 0.1 * (ask.arm is Arm.HEAD)
        return seen(ask, Outcome.PASSED, score)

    policy = GatePolicy(tolerance=0.1, seed=seed)
    decision, _ = drive(cases_of(60), world, policy)
    assert decision.verdict is not GateVerdict.REGRESSED, decision.reasons
    strict, _ = drive(cases_of(60), world, GatePolicy(seed=seed))
    assert strict.verdict is GateVerdict.REGRESSED


# -- tests that cannot be collected ------------------------------------------------


def test_what_the_artifact_keeps_from_being_collected_is_a_regression():
    cases = cases_of(3)
    change = Change(uncollected=("test_000", "test_001"), collection_error="no module")
    for policy in (GatePolicy(), GatePolicy(accept_removed=True, tolerance=0.9)):
        decision = decide([], cases, policy, change)
        assert decision.verdict is GateVerdict.REGRESSED
        assert _kinds(decision) == {ReasonKind.COLLECTION}
        assert "2 cases cannot be collected" in decision.reasons[0].text
        assert "no module" in decision.reasons[0].text
        by_id = {row.id: row.status for row in decision.rows}
        assert by_id["test_001"] is CaseStatus.UNCOLLECTED
        assert by_id["test_002"] is CaseStatus.NOT_RUN
