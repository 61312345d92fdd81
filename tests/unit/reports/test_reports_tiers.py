"""Edits that were bypassed, in the reports."""

from __future__ import annotations

import dataclasses
from pathlib import PurePath

import pytest
from report_runs import CASES
from report_runs import F
from report_runs import grown_run
from report_runs import P
from report_runs import rollout

from pytest_evo.events import CandidateRecorded
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Diagnosis
from pytest_evo.models import Effect
from pytest_evo.models import Kind
from pytest_evo.models import Status
from pytest_evo.reports.data import run_data
from pytest_evo.reports.model import RunReport
from pytest_evo.reports.summary import summary_markdown
from pytest_evo.reports.tiers import sinkings
from pytest_evo.reports.tiers import tier_lines
from pytest_evo.reports.tiers import tier_section

ONE, TWO = CASES[0].id, CASES[1].id
KINDS = {".md": Kind.PROSE, ".toml": Kind.CONFIG, ".py": Kind.SCRIPT}


def kind(path: str) -> Kind:
    return KINDS.get(PurePath(path).suffix, Kind.EXTENSION)


def entry(file: str, **effect) -> ChangelogEntry:
    known = {"cases": (ONE,), "before": 0.0, "after": 0.0, **effect}
    return ChangelogEntry(file, "why", "modified", effect=Effect("c0000", **known))


def ran(name: str, first=F, score=None) -> list[RolloutRecorded]:
    """Rollouts of a candidate; the second case always passes."""
    return [rollout(name, CASES[0], first, score), rollout(name, CASES[1], P)]


def chain(*steps: tuple[ChangelogEntry, ...], **changes) -> RunReport:
    """A rejected chain, each of its candidates made from the one before."""
    records = [CandidateRecorded("c0000", None, "t", Status.START)]
    rollouts = {"c0000": ran("c0000")}
    for step, changelog in enumerate(steps):
        name = f"c0001-{step}" if step else "c0001"
        base = records[-1].id
        records.append(
            CandidateRecorded(
                name, "c0000", name, Status.REJECTED, base, 1, step, changelog
            )
        )
        rollouts[name] = ran(name)
    values = {"candidates": tuple(records), "rollouts": rollouts, "kind": kind}
    return grown_run(**{**values, **changes})


def test_edit_that_was_read_and_moved_nothing_is_listed_with_what_came_next() -> None:
    run = chain((entry("a.md"),), (entry("a.py"),))
    first, second = sinkings(run)
    assert (first.candidate, first.file, first.kind) == ("c0001", "a.md", Kind.PROSE)
    assert first.cases == (ONE,)
    assert first.next == "c0001-1"
    assert first.moved == (Kind.SCRIPT,)
    assert first.sunk
    assert second.next is None
    assert not second.sunk


@pytest.mark.parametrize(
    ("after", "words", "sunk"),
    [
        (("x.toml",), "the next edit sank to config", True),
        (("x.md", "x.js"), "the next edit sank to prose, extension", True),
        (("other.md",), "the next edit stayed with prose", False),
    ],
)
def test_next_edit_is_told_by_its_kind(after, words, sunk) -> None:
    run = chain((entry("a.md"),), tuple(map(entry, after)))
    assert sinkings(run)[0].where == words
    assert sinkings(run)[0].sunk is sunk


def test_edit_that_rises_to_a_weaker_kind_is_told_so() -> None:
    run = chain((entry("a.py"),), (entry("a.md"),))
    assert sinkings(run)[0].where == "the next edit rose to prose"


@pytest.mark.parametrize(
    "effect",
    [
        {"better": (ONE,)},
        {"worse": (ONE,)},
        {"worse": (TWO,)},
        {"unsure": (ONE,)},
        {"cases": ()},
        {"cases": (TWO,)},
    ],
    ids=[
        "one got better",
        "one got worse",
        "another one got worse",
        "may not have been read",
        "nobody read it",
        "all passed",
    ],
)
def test_what_moved_something_or_was_not_read_is_not_bypassed(effect) -> None:
    assert sinkings(chain((entry("a.md", **effect),))) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((P, 0.5), (P, 0.5)),
        ((P, 0.5), (F, 0.5)),
        ((F, 0.5), (P, 0.5)),
        ((F, 0.5), (F, 0.25)),
        (None, (F, 0.5)),
    ],
    ids=["passes", "passed before", "passes now", "fell", "not run before"],
)
def test_only_a_case_that_failed_with_the_same_score_before_was_not_moved(
    before, after
) -> None:
    rollouts = {
        "c0000": ran("c0000", *before) if before else [],
        "c0001": ran("c0001", *after),
    }
    assert sinkings(chain((entry("a.md"),), rollouts=rollouts)) == []


def test_case_that_fails_with_the_same_partial_credit_was_not_moved() -> None:
    rollouts = {name: ran(name, F, 0.5) for name in ("c0000", "c0001")}
    (found,) = sinkings(chain((entry("a.md"),), rollouts=rollouts))
    assert found.cases == (ONE,)


def test_deleted_file_and_one_without_effect_are_not_bypassed() -> None:
    gone = dataclasses.replace(entry("a.md"), change="deleted")
    assert sinkings(chain((gone, ChangelogEntry("b.md", "why")))) == []


def test_diagnosis_of_class_i_names_the_edit_that_had_followed_it() -> None:
    better = {"better": (ONE,)}  # so that nothing is measured as bypassed
    first = Diagnosis((ONE,), "seen", file="a.md")
    second = Diagnosis((ONE,), "seen", classes={"c0000/1": "I", "c0000/9": "I"})
    run = chain(
        (entry("a.md", **better),),
        (entry("b.md", **better),),
        diagnoses={"c0000": (first,), "c0001-1": (second,)},
    )
    (found,) = sinkings(run)
    assert (found.candidate, found.file) == ("c0001", "a.md")
    assert found.readings == ("c0000/1",)
    assert found.cases == ()


def test_other_classes_name_no_edit() -> None:
    first = Diagnosis((ONE,), "seen", file="a.md")
    second = Diagnosis((ONE,), "seen", classes={"c0000/1": "B"})
    run = chain(
        (entry("a.md", better=(ONE,)),),
        diagnoses={"c0000": (first,), "c0001": (second,)},
    )
    assert sinkings(run) == []


def test_summary_terminal_and_data_show_them() -> None:
    run = chain((entry("a.md"),), (entry("a.py", better=(ONE,)),))
    summary = summary_markdown(run)
    row = (
        "- `c0001` `a.md` (prose), read by 1 failing case, moved none; `c0001-1`: "
        "the next edit sank to script"
    )
    assert row in summary.splitlines()
    assert [line.text for line in tier_lines(run)] == [
        "1 edit bypassed (class I):",
        "  c0001 a.md (prose), read by 1 failing case, moved none; "
        "c0001-1: the next edit sank to script",
    ]
    assert run_data(run)["bypassed"][0]["moved"] == (Kind.SCRIPT,)


def test_run_without_any_shows_nothing() -> None:
    run = grown_run()
    assert tier_section(run) == ""
    assert tier_lines(run) == []
    assert "Bypassed" not in summary_markdown(run)


def test_many_are_counted_and_hostile_names_stay_in_their_place() -> None:
    name = "a`|\n@all\x1b[31m.md"
    many = tuple(entry(f"{number}{name}") for number in range(14))
    run = chain(many)
    assert tier_section(run).endswith("- and 4 more")
    assert tier_lines(run)[-1].text == "  and 4 more"
    assert "\x1b" not in tier_section(run)
    assert all("\n" not in line.text for line in tier_lines(run))
