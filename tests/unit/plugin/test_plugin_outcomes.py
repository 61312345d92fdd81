from __future__ import annotations

import json

import pytest

from pytest_evo.models import Detail
from pytest_evo.models import Metric
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import TraceStep
from pytest_evo.models import Usage
from pytest_evo.plugin.outcomes import score_of
from pytest_evo.plugin.outcomes import Unscorable
from pytest_evo.plugin.rawrollout import RawRollout
from pytest_evo.plugin.recording import checked_score
from pytest_evo.plugin.recording import Notes


def notes(**scores: float) -> Notes:
    audited = {
        name: (value, name.startswith("audit")) for name, value in scores.items()
    }
    return Notes(scores=audited)


@pytest.mark.parametrize(
    ("outcome", "given", "score_from", "expected"),
    [
        (Outcome.PASSED, {}, None, 1.0),
        (Outcome.FAILED, {}, None, 0.0),
        (Outcome.FAILED, {"score": 0.7}, None, 0.7),
        (Outcome.PASSED, {"score": 0.7, "a": 0.1, "b": 0.2}, None, 0.7),
        (Outcome.PASSED, {"a": 0.1, "audit": 0.9}, None, 0.1),
        (Outcome.PASSED, {"audit": 0.2}, None, 1.0),
        (Outcome.PASSED, {"a": 0.1, "b": 0.2}, "b", 0.2),
        (Outcome.PASSED, {}, "b", 1.0),
        (Outcome.FAILED, {"a": 0.1}, "b", 0.0),
        (Outcome.SKIPPED, {"score": 0.7}, None, None),
        (Outcome.ERROR, {"score": 0.7}, None, None),
    ],
)
def test_raw_score_follows_the_rule(outcome, given, score_from, expected):
    assert score_of(outcome, notes(**given), score_from) == expected


@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.FAILED])
def test_several_scores_without_a_choice_are_unscorable(outcome):
    with pytest.raises(Unscorable, match='set score_from = "a"'):
        score_of(outcome, notes(a=0.1, b=0.2), None)


def test_a_passed_test_without_the_chosen_score_is_unscorable():
    with pytest.raises(Unscorable, match=r"score_from is 'b'.*only 'a'"):
        score_of(Outcome.PASSED, notes(a=0.1), "b")


@pytest.mark.parametrize("value", [0, 1, True, 0.5, 1 + 1e-12, -1e-12])
def test_scores_in_range_are_taken(value):
    assert 0 <= checked_score("x", value) <= 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.01, 1.01, 10**400])
def test_scores_out_of_range_are_refused(value):
    with pytest.raises((ValueError, TypeError), match="score for 'x'"):
        checked_score("x", value)


@pytest.mark.parametrize("value", [None, "0.5", b"1", [], object(), 1j])
def test_scores_that_are_no_number_are_refused(value):
    with pytest.raises(TypeError, match="is no number"):
        checked_score("x", value)


def test_raw_rollout_survives_json():
    raw = RawRollout(
        Outcome.FAILED,
        0.25,
        seconds=1.5,
        metrics=(Metric("recall", 0.25), Metric("honesty", 1.0, audit=True)),
        usage=Usage(calls=2, input_tokens=3, usd=None),
        detail=Detail(
            phases=(
                Phase(
                    "call",
                    "failed",
                    0.1,
                    message="\ud800\x00",
                    sections=(("Captured stdout call", "x"),),
                    properties=(("evo.score", "0.25"),),
                    xfail="",
                    file="t.py",
                    line=3,
                ),
            ),
            steps=(TraceStep("s", {"a": [1, None]}),),
            warnings=("w",),
            fixtures={"index": 0.5},
            serialized=({"nodeid": "t.py::x"},),
        ),
        problem="p",
    )
    assert RawRollout.from_plain(json.loads(json.dumps(raw.to_plain()))) == raw


@pytest.mark.parametrize(
    "change",
    [
        {"score": 1.5},
        {"score": float("nan")},
        {"score": "x"},
        {"outcome": "great"},
        {"metrics": [["a"]]},
        {"phases": [{}]},
        {"usage": {"gold": 1}},
        {"usage": None},
    ],
)
def test_raw_rollout_refuses_other_shapes(change):
    data = {**RawRollout(Outcome.PASSED, 1.0).to_plain(), **change}
    with pytest.raises(ValueError, match=r"."):
        RawRollout.from_plain(data)
