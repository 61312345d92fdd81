from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Rollout
from pytest_evo.plugin.reached import reached_digests
from pytest_evo.plugin.reached import ReachedFiles
from pytest_evo.plugin.reached import slow_fixtures
from pytest_evo.testing.doubles import MemoryRollouts


def kept(store: MemoryRollouts, case: str, detail: Detail) -> Rollout:
    rollout = Rollout("c0000", "t", case, 0, Outcome.PASSED, 1.0, 1.0, detail=detail)
    return store.keep(rollout)


def test_digest_follows_the_content_of_project_files(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("1")
    one = ReachedFiles(tmp_path).digest(["helper.py", "pyproject.toml"])
    (tmp_path / "helper.py").write_text("2")
    two = ReachedFiles(tmp_path).digest(["helper.py"])
    (tmp_path / "helper.py").unlink()
    three = ReachedFiles(tmp_path).digest(["helper.py"])
    assert len({one, two, three}) == 3
    assert ReachedFiles(tmp_path).digest(["pyproject.toml"]) == ""


def test_only_cases_that_read_something_have_a_digest(tmp_path: Path) -> None:
    (tmp_path / "data.json").write_text("{}")
    store = MemoryRollouts()
    rows = [
        kept(store, "a", Detail(project_files=("data.json",))),
        kept(store, "b", Detail()),
    ]
    assert set(reached_digests(rows, store, tmp_path)) == {"a"}


def test_fixture_over_a_tenth_of_the_time_is_named() -> None:
    store = MemoryRollouts()
    spent = {"index": 0.3, "quick": 0.09, "evo_artifact": 0.3, "n": 0.3}
    rows = [kept(store, case, Detail(fixtures=spent)) for case in "ab"]
    assert slow_fixtures(rows, store, {"index", "quick"}) == {"index": 0.3}


def test_fixture_of_a_few_milliseconds_is_not_worth_naming() -> None:
    store = MemoryRollouts()
    rows = [
        replace(kept(store, case, Detail(fixtures={"index": 0.04})), seconds=0.05)
        for case in "ab"
    ]
    assert slow_fixtures(rows, store, {"index"}) == {}
