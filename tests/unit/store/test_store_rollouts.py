from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.models import Detail
from pytest_evo.models import Metric
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import TraceStep
from pytest_evo.models import Usage
from pytest_evo.store.rollouts import case_slug
from pytest_evo.store.rollouts import RolloutFiles

DETAIL = Detail(
    phases=(Phase("call", "failed", 0.1, "boom", "E  größer", (("out", "\x1b[1m"),)),),
    steps=(TraceStep("search", {"k1": 1.5, "hits": [1, None, "a"]}),),
    warnings=("careful",),
    fixtures={"index": 0.25},
    serialized=({"nodeid": "t::x", "keywords": {"evo": 1}},),
)
ROLLOUT = Rollout(
    candidate="c0001-2",
    tree="ab" * 32,
    case="tests/deep/test_a.py::TestB::test_x[a/b|c:d]",
    repeat=3,
    outcome=Outcome.FAILED,
    score=0.25,
    seconds=1.5,
    attempt=1,
    metrics=(Metric("m", 1.0),),
    usage=Usage(1),
    reach=Reach(("a.py",)),
    violation="wrote",
    worker="gw1",
    detail=DETAIL,
    started=True,
)


def test_detail_comes_back_and_leaves_the_rollout(tmp_path: Path) -> None:
    files = RolloutFiles(tmp_path)
    kept = files.keep(ROLLOUT)
    assert kept.detail is None
    assert kept.trace is not None
    assert RolloutFiles(tmp_path).detail(kept.trace) == DETAIL
    for name in Rollout.__dataclass_fields__:
        if name not in {"detail", "trace"}:
            assert getattr(kept, name) == getattr(ROLLOUT, name), name


def test_name_says_candidate_case_repeat_and_attempt(tmp_path: Path) -> None:
    trace = RolloutFiles(tmp_path).keep(ROLLOUT).trace
    assert trace is not None
    assert re.fullmatch(
        r"candidates/c0001-2/rollouts/[A-Za-z0-9_.-]+\.3-1\.json", trace
    )
    assert (tmp_path / trace).is_file()
    assert len(list((tmp_path / trace).parent.iterdir())) == 1


def test_rollout_without_detail_is_left_as_it_is(tmp_path: Path) -> None:
    bare = Rollout("c", "t", "t::x", 0, Outcome.LOST, None)
    assert RolloutFiles(tmp_path).keep(bare) is bare
    assert list(tmp_path.iterdir()) == []


@given(st.text(max_size=200))
def test_slug_is_a_short_plain_file_name(case: str) -> None:
    slug = case_slug(case)
    assert re.fullmatch(r"[A-Za-z0-9_.-]{1,80}", slug)
    assert slug not in {".", ".."}


@given(st.text(max_size=30), st.text(max_size=30))
def test_two_cases_never_share_a_slug(left: str, right: str) -> None:
    assert (case_slug(left).lower() == case_slug(right).lower()) == (left == right)


def test_slug_can_be_read() -> None:
    slug = case_slug("tests/test_a.py::test_x[Where is it?]")
    assert slug.startswith("test_a.py-test_x-Where-is-it-")


@pytest.mark.parametrize("content", [b"", b'{"phases":[', b"[]", b'{"x":1}', None])
def test_destroyed_detail_reads_as_one_that_says_so(
    tmp_path: Path, content: bytes | None
) -> None:
    files = RolloutFiles(tmp_path)
    trace = files.keep(ROLLOUT).trace
    assert trace is not None
    if content is None:
        (tmp_path / trace).unlink()
    else:
        (tmp_path / trace).write_bytes(content)
    (warning,) = files.detail(trace).warnings
    assert warning.startswith(f"{trace} cannot be read")


@pytest.mark.parametrize("trace", ["", "run.json", "../x", "candidates/../../x"])
def test_trace_outside_the_run_is_refused(tmp_path: Path, trace: str) -> None:
    with pytest.raises(ValueError, match="does not name a detail"):
        RolloutFiles(tmp_path).detail(trace)


def test_unwritable_place_is_a_problem_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "candidates").write_text("a file", encoding="utf-8")
    with pytest.raises(RunDirectoryProblem, match="cannot write"):
        RolloutFiles(tmp_path).keep(ROLLOUT)


def test_surrogates_in_output_are_written_as_escapes(tmp_path: Path) -> None:
    files = RolloutFiles(tmp_path)
    detail = Detail(phases=(Phase("call", "passed", 0.0, longrepr="\udcff"),))
    rollout = Rollout("c", "t", "t::x", 0, Outcome.PASSED, 1.0, detail=detail)
    trace = files.keep(rollout).trace
    assert trace is not None
    assert files.detail(trace).phases[0].longrepr == "\\udcff"
