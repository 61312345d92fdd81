"""What the gate's planner is told, from settings, marks and a base."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.trees import make_tree
from pytest_evo.errors import BaselineProblem
from pytest_evo.errors import SettingsProblem
from pytest_evo.gate.baseline import Baseline
from pytest_evo.gate.baseline import BaselineCase
from pytest_evo.gate.baseline import file_digests
from pytest_evo.gate.baseline import short_fingerprint
from pytest_evo.gate.values import Removed
from pytest_evo.gate.values import Renamed
from pytest_evo.models import CaseMark
from pytest_evo.models import Outcome
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry
from pytest_evo.plugin.gating.bases import Base
from pytest_evo.plugin.gating.planning import known_cases
from pytest_evo.plugin.gating.planning import make_gate_plan
from pytest_evo.plugin.gating.planning import make_policy
from pytest_evo.plugin.gating.planning import Suite
from pytest_evo.plugin.gating.rules import changed_rules
from pytest_evo.plugin.gating.rules import quarantine_of
from pytest_evo.settings import load_settings
from pytest_evo.settings import Settings


def tree(**files: str) -> Tree:
    return make_tree(
        TreeEntry(name, "file", 0o644, text * 64, 1) for name, text in files.items()
    )


def mark(case: str, **more: object) -> CaseMark:
    return CaseMark(case, "t.py", 1, f"f-{case}", body=f"b-{case}", **more)  # type: ignore[arg-type]


def suite(*marks: CaseMark) -> Suite:
    return Suite(marks, {one.id: one.fingerprint for one in marks}, Path("/nowhere"))


def seen(case: str, outcome: Outcome = Outcome.PASSED, **more: object) -> BaselineCase:
    passed = outcome is Outcome.PASSED
    row = BaselineCase(
        id=case,
        fingerprint=short_fingerprint(f"f-{case}"),
        body=f"b-{case}",
        outcome=outcome,
        runs=3,
        passes=3 * passed,
        mean=float(passed),
        variance=0.0,
        noisy=False,
        reach=("a",),
    )
    return replace(row, **more)  # type: ignore[arg-type]


def baseline(*cases: BaselineCase, **more: object) -> Baseline:
    old = tree(a="0", b="0")
    return Baseline(
        artifact="art",
        tree=old.hash,
        files=file_digests(old),
        bytes=2,
        cases={case.id: case for case in cases},
        made=date.today(),
        **more,  # type: ignore[arg-type]
    )


def from_file(*cases: BaselineCase, **more: object) -> Base:
    return Base("baseline", MemoryBlobs(), known=baseline(*cases, **more))


def test_stored_counts_stand_for_the_base() -> None:
    base = from_file(seen("x"), seen("y", Outcome.FAILED), seen("gone"))
    plan = make_gate_plan(
        suite(mark("x"), mark("y"), mark("new")),
        Settings(),
        base,
        tree(a="1", b="0"),
        known_cases(base.known) if base.known else None,
    )
    x, y, new = plan.cases
    assert x.stored is not None
    assert (x.stored.n, x.stored.passes, x.deterministic) == (3, 3, True)
    assert y.stored is not None
    assert y.stored.passes == 0
    assert new.added
    assert plan.change.removed == (Removed("gone", True),)
    assert plan.change.added == ("new",)
    assert plan.change.files == ("a",)
    assert (plan.change.base_bytes, plan.change.head_bytes) == (2, 2)


def test_a_renamed_case_has_what_was_stored_under_its_old_name() -> None:
    base = from_file(seen("old"))
    new = replace(mark("new"), body="b-old")
    plan = make_gate_plan(
        suite(new),
        Settings(),
        base,
        tree(a="1"),
        known_cases(base.known),  # type: ignore[arg-type]
    )
    assert plan.change.renamed == (Renamed("old", "new"),)
    assert plan.cases[0].stored is not None


def test_a_changed_test_is_compared_unless_its_old_version_may_go() -> None:
    base = from_file(replace(seen("x"), fingerprint="another"))
    arguments = (suite(mark("x")), base, tree(a="1", b="0"))
    plan = make_gate_plan(arguments[0], Settings(), *arguments[1:], None)
    assert plan.cases[0].stored is not None
    assert plan.cases[0].deterministic is None
    assert "not the tests that the baseline measured" in plan.notes[0]
    settings = Settings(accept_removed=True)
    plan = make_gate_plan(arguments[0], settings, *arguments[1:], None)
    assert plan.cases[0].added


def test_cases_that_read_no_changed_file_are_left_out_unless_all_are_wanted() -> None:
    base = from_file(seen("x"), seen("y", reach=("b",)), seen("z", reach=None))
    cases = suite(mark("x"), mark("y"), mark("z"))
    head = tree(a="0", b="1")
    plan = make_gate_plan(cases, Settings(), base, head, None)
    assert plan.unreached == {"x"}
    plan = make_gate_plan(cases, Settings(gate_all=True), base, head, None)
    assert plan.unreached == frozenset()
    plan = make_gate_plan(cases, Settings(), base, tree(a="0", b="0", c="1"), None)
    assert plan.unreached == frozenset()  # a new file may be looked for by any


def test_a_baseline_at_a_ref_of_an_older_artifact_saves_nothing() -> None:
    known = baseline(seen("x", reach=("b",)))
    base = Base("git:main", MemoryBlobs(), tree=tree(a="7", b="0"), known=known)
    plan = make_gate_plan(suite(mark("x")), Settings(), base, tree(a="1", b="0"), None)
    assert plan.unreached == frozenset()
    assert "older artifact" in plan.notes[0]
    assert plan.cases[0].stored is None  # the base is run


def test_another_suite_and_another_judge_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    base = from_file(seen("x"))
    with pytest.raises(BaselineProblem, match="another suite"):
        make_gate_plan(suite(mark("y")), Settings(), base, tree(a="1"), None)
    monkeypatch.setenv("JUDGE", "new")
    settings = Settings(fingerprint_env=("JUDGE",))
    with pytest.raises(BaselineProblem, match="other values of JUDGE"):
        make_gate_plan(suite(mark("x")), settings, base, tree(a="1"), None)


def test_an_old_baseline_is_told() -> None:
    base = from_file(seen("x"))
    assert base.known is not None
    base = replace(base, known=replace(base.known, made=date(2020, 1, 31)))
    plan = make_gate_plan(suite(mark("x")), Settings(), base, tree(a="1"), None)
    assert any("days old" in note for note in plan.notes)


# -- rules -------------------------------------------------------------------------

ENTRY = {"case": "t.py::*slow*", "reason": "issue 12", "until": date(2999, 1, 31)}


def test_policy_is_what_the_settings_say() -> None:
    settings = Settings.model_validate(
        {
            "gate_policy": "strict",
            "gate_margin": 0.1,
            "gate_max_errors": 0.2,
            "budget_rollouts": 9,
            "limit": [{"metric": "tokens", "max_ratio": 1.2}],
        }
    )
    policy = make_policy(settings, "ab" * 32)
    assert (policy.strict, policy.margin, policy.max_error_rate) == (True, 0.1, 0.2)
    assert policy.rollouts == 9
    assert policy.limits[0].max_ratio == 1.2
    assert policy.today == date.today()


def test_quarantine_of_the_base_holds_and_not_that_of_the_change(
    tmp_path: Path,
) -> None:
    (tmp_path / "x").mkdir()
    settings = Settings.model_validate({"quarantine": [ENTRY]})
    base = Base("git:main", MemoryBlobs(), tree=tree(a="0"), repository=object())  # type: ignore[arg-type]
    cases = suite(mark("t.py::slow[1]"), mark("t.py::quick"))
    plan = make_gate_plan(cases, settings, base, tree(a="1"), None)
    assert [case.quarantine for case in plan.cases] == [None, None]
    assert any("do not hold before it is merged" in note for note in plan.notes)
    base = replace(base, settings={"quarantine": [ENTRY, {"case": 3}]})
    plan = make_gate_plan(cases, settings, base, tree(a="1"), None)
    slow, quick = plan.cases
    assert slow.quarantine is not None
    assert slow.quarantine.expires == date(2999, 1, 31)
    assert quick.quarantine is None
    assert any("cannot be read" in note for note in plan.notes)


def test_a_node_id_with_brackets_is_meant_as_it_is() -> None:
    rows = Settings.model_validate(
        {"quarantine": [{**ENTRY, "case": "t.py::test[a]"}]}
    ).quarantine
    assert quarantine_of("t.py::test[a]", rows) is not None
    assert quarantine_of("t.py::test[b]", rows) is None


def test_rules_that_a_change_sets_for_itself_are_told() -> None:
    base = Base("git:main", MemoryBlobs(), repository=object())  # type: ignore[arg-type]
    base = replace(base, settings={"artifact": "art", "gate_margin": 0.02})
    assert changed_rules(Settings(gate_margin=0.02), base) == []
    (note,) = changed_rules(Settings(gate_margin=0.5), base)
    assert "gate_margin" in note


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ('case = "x"\nreason = "y"', "until"),
        ('case = "x"\nreason = "y"\nuntil = "soon"', "until"),
        ('case = "x"\nuntil = 2027-01-31', "reason"),
        ('case = ""\nreason = "y"\nuntil = 2027-01-31', "case"),
    ],
)
def test_a_quarantine_has_a_case_a_reason_and_a_day(
    tmp_path: Path, entry: str, said: str
) -> None:
    text = f"[[tool.pytest_evo.quarantine]]\n{entry}\n"
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsProblem, match=said):
        load_settings(tmp_path, {})
