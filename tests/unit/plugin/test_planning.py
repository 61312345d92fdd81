from __future__ import annotations

import pytest

from pytest_evo.engine.budget import Limits
from pytest_evo.engine.parts import Limit
from pytest_evo.engine.parts import Plan
from pytest_evo.errors import SuiteProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import CaseMark
from pytest_evo.models import Split
from pytest_evo.plugin import planning
from pytest_evo.settings import Settings
from pytest_evo.settings import SplitSettings

MARKS = [CaseMark(f"tests/t_{n % 2}.py::t[{n}]", "t", 1, "print") for n in range(50)]


def test_cases_setting_narrows_what_was_collected() -> None:
    settings = Settings(cases=("tests/t_1.py*",))
    chosen, how = planning.choose_cases(MARKS, "all", settings)
    assert len(chosen) == 25
    assert "25 of 50 match" in how


@pytest.mark.parametrize(
    ("pattern", "covered"),
    [
        ("tests/evals", True),
        ("tests/evals/", True),
        ("tests/*", True),
        ("tests/evals/test_a.py", True),
        ("tests/evals/test_a.py::test_it", True),
        ("tests/evals/test_a.py::test_it[x]", True),
        ("tests/evals/test_a", False),
        ("evals", False),
        ("tests/evals/test_a.py::test", False),
    ],
)
def test_cases_are_named_by_glob_id_file_or_folder(pattern: str, covered: bool) -> None:
    marks = [
        CaseMark("tests/evals/test_a.py::test_it[x]", "tests/evals/test_a.py", 1, ""),
        CaseMark("other.py::test_b", "other.py", 1, ""),
    ]
    settings = Settings(cases=(pattern, "other.py"))
    chosen, _ = planning.choose_cases(marks, "all", settings)
    assert (marks[0] in chosen) is covered
    assert marks[1] in chosen


def test_cases_setting_that_matches_nothing_is_refused() -> None:
    with pytest.raises(SuiteProblem, match="matches nothing of 50 collected tests"):
        planning.choose_cases(MARKS, "all", Settings(cases=("nothing",)))


def test_environment_of_the_fingerprint_changes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = Settings(fingerprint_env=("JUDGE_MODEL",))
    monkeypatch.setenv("JUDGE_MODEL", "one")
    one, _ = planning.choose_cases(MARKS, "all", settings)
    monkeypatch.setenv("JUDGE_MODEL", "two")
    two, _ = planning.choose_cases(MARKS, "all", settings)
    assert one[0].fingerprint != two[0].fingerprint != MARKS[0].fingerprint


def test_marker_wins_over_the_globs_of_the_settings() -> None:
    marks = [CaseMark("a.py::t", "a.py", 1, "", split=Split.TEST), *MARKS]
    settings = Settings(split=SplitSettings(val=("*",)))
    splits, how = planning.explicit_splits(marks, settings)
    assert splits["a.py::t"] is Split.TEST
    assert splits[MARKS[0].id] is Split.VAL
    assert how == "1 by marker or hook, 50 by the setting split"


@pytest.mark.parametrize(
    ("workers", "in_process", "slots"),
    [(2, False, 1), (16, False, 2), (64, False, 4), (64, True, 1)],
)
def test_slots_follow_from_workers_and_batch(
    workers: int, in_process: bool, slots: int
) -> None:
    assert planning.choose_slots(Settings(), workers, in_process) == slots


def test_slots_given_by_hand_stand() -> None:
    assert planning.choose_slots(Settings(slots=3), 1, True) == 3


def test_settings_of_the_loop_reach_the_plan() -> None:
    settings = Settings.model_validate(
        {
            "objective": "climb",
            "slots": 2,
            "chain_depth": 1,
            "batch": 5,
            "repeats": 3,
            "noise": "repeats",
            "seed": 9,
            "split": {"fractions": [0.7, 0.3]},
            "limit": [
                {"metric": "tokens", "max_ratio": 1.2},
                {"metric": "bytes", "max_ratio": 2},
            ],
        }
    )
    schema, splits = ArtifactSchema("a"), {"a.py::t": Split.TEST}
    assert planning.make_plan(settings, schema, "tree", splits) == Plan(
        schema=schema,
        objective="climb",
        start="tree",
        slots=2,
        depth=1,
        batch=5,
        repeats=3,
        noise="repeats",
        fractions=(0.7, 0.3, 0.0),
        seed=9,
        limits=(Limit("tokens", 1.2), Limit("bytes", 2.0)),
        splits=splits,
    )


def test_every_budget_reaches_its_limit() -> None:
    settings = Settings(
        budget_rollouts=1,
        budget_train_rollouts=2,
        budget_iterations=3,
        budget_tokens=4,
        budget_time=5.0,
        budget_usd=6.0,
    )
    plan = planning.make_plan(settings, ArtifactSchema("a"), "tree", {})
    limits, default = planning.make_limits(settings, MARKS, plan)
    assert limits == Limits(
        rollouts=1, train_rollouts=2, iterations=3, tokens=4, seconds=5.0, usd=6.0
    )
    assert not default


def test_default_budget_covers_baseline_and_final_measurement() -> None:
    plan = planning.make_plan(Settings(), ArtifactSchema("a"), "tree", {})
    limits, default = planning.make_limits(Settings(), MARKS, plan)
    assert default
    assert limits.rollouts == 50 + 40 + 15 + 500
    given = Settings(budget_iterations=3)
    assert planning.make_limits(given, MARKS, plan) == (Limits(iterations=3), False)
