from __future__ import annotations

from pytest_evo.engine.effects import with_effects
from pytest_evo.models import Candidate
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Effect
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Reach
from pytest_evo.models import Rollout

A, B, C = "t.py::a", "t.py::b", "t.py::c"


def ran(case: str, score: float | None, *files: str, exact: bool = True) -> Rollout:
    outcome = Outcome.FAILED if score is not None else Outcome.CRASHED
    return Rollout("x", "x", case, 0, outcome, score, reach=Reach(files, exact))


def effects(
    before: list[Rollout], after: list[Rollout], **changes: str
) -> dict[str, Effect]:
    entries = tuple(
        ChangelogEntry(file.replace("_", "."), "why", change)
        for file, change in changes.items()
    )
    base = Node(Candidate("c0000", "b"), tuple(before))
    child = Candidate("c0001", "t", "c0000", "c0000", changelog=entries)
    done = with_effects(child, after, base)
    assert [entry.reason for entry in done.changelog] == ["why"] * len(entries)
    return {
        entry.file: entry.effect for entry in done.changelog if entry.effect is not None
    }


def test_effect_is_measured_on_the_cases_that_reach_the_file() -> None:
    found = effects(
        [ran(A, 0.0, "p.md"), ran(B, 1.0, "p.md"), ran(C, 0.0, "q.md")],
        [ran(A, 1.0, "p.md"), ran(B, 0.5, "p.md"), ran(C, 1.0, "q.md")],
        p_md="modified",
        q_md="modified",
    )
    assert found["p.md"] == Effect("c0000", (A, B), (), 0.5, 0.75, (A,), (B,))
    assert found["q.md"] == Effect("c0000", (C,), (), 0.0, 1.0, (C,), ())


def test_edit_that_nobody_reached_has_no_effect() -> None:
    found = effects([ran(A, 0.0)], [ran(A, 1.0, "q.md")], p_md="modified")
    assert found["p.md"] == Effect("c0000")


def test_rollout_that_could_have_read_it_unseen_counts_and_is_said() -> None:
    found = effects(
        [ran(A, 0.0), ran(B, 0.0)],
        [ran(A, 1.0, exact=False), ran(B, 1.0, "p.md", exact=False)],
        p_md="modified",
    )
    assert found["p.md"].cases == (A, B)
    assert found["p.md"].unsure == (A,)


def test_file_that_comes_or_goes_could_touch_every_case() -> None:
    found = effects(
        [ran(A, 0.0, "old.md"), ran(B, 0.0)],
        [ran(A, 1.0), ran(B, 0.0, "new.md")],
        old_md="deleted",
        new_md="added",
    )
    assert (found["old.md"].cases, found["old.md"].unsure) == ((A, B), (B,))
    assert (found["new.md"].cases, found["new.md"].unsure) == ((A, B), (A,))


def test_case_without_a_score_on_one_side_is_left_out_of_the_means() -> None:
    found = effects(
        [ran(A, 0.0, "p.md"), ran(B, None, "p.md")],
        [ran(A, 0.0, "p.md"), ran(B, 1.0, "p.md")],
        p_md="modified",
    )
    assert found["p.md"] == Effect("c0000", (A, B), (), 0.0, 0.0)
    none = effects([ran(A, None, "p.md")], [ran(A, 1.0, "p.md")], p_md="modified")
    assert none["p.md"] == Effect("c0000", (A,))
