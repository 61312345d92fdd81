from __future__ import annotations

import hashlib
import threading
from datetime import datetime
from datetime import UTC
from pathlib import Path
from random import Random

import pytest

from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import JournalDamaged
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import CasesFrozen
from pytest_evo.events import DiagnosesMade
from pytest_evo.events import Event
from pytest_evo.events import IterationClosed
from pytest_evo.events import NoiseMeasured
from pytest_evo.events import ProposalMade
from pytest_evo.events import RunResumed
from pytest_evo.events import RunStopped
from pytest_evo.models import Case
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import Status
from pytest_evo.models import Usage
from pytest_evo.store.clock import RunClock
from pytest_evo.store.journal import FileJournal
from pytest_evo.store.rollouts import RolloutFiles
from pytest_evo.store.run_directory import create
from pytest_evo.store.run_directory import NewRun
from pytest_evo.store.run_directory import RunDirectory
from pytest_evo.store.run_info import Project
from pytest_evo.store.view import load_run
from pytest_evo.testing.journal_contract import rollout
from pytest_evo.testing.journal_contract import started

CASES = (
    Case("t::a", Split.VAL),
    Case("t::b", Split.VAL, weight=3.0),
    Case("t::c", Split.TRAIN),
)
START = CandidateRecorded("c0000", None, "ab" * 32, Status.START)
CHILD = CandidateRecorded("c0001", "c0000", "cd" * 32, Status.ACCEPTED, iteration=1)
CLOSED = IterationClosed(
    1, 0, "c0000", "c0001", 0, True, "better", population=("c0001", "c0000")
)


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    new = NewRun(Project(name="a", id="b"), "0.1.0", 0, {}, "p", "3.11", "9.2")
    return create(tmp_path, new, datetime(2026, 1, 1, tzinfo=UTC), Random(0))


def val(
    case: str, score: float | None, candidate: str = "c0001", **more: object
) -> Event:
    return rollout(
        candidate=candidate,
        case=case,
        split=Split.VAL,
        score=score,
        **{"purpose": Purpose.VALIDATION, **more},
    )


def written(run: RunDirectory, *events: Event, noted: tuple[Event, ...] = ()) -> None:
    journal = FileJournal(run.path, RunClock())
    journal.open("baseline").close(events)
    scope = journal.open("1")
    for event in noted:
        scope.note(event)
    journal.close()


def test_new_run_is_an_empty_view(run: RunDirectory) -> None:
    view = load_run(run.path)
    assert view.info == run.info
    assert view.cases == ()
    assert view.winner == "c0000"
    assert view.open_scopes == ()


def test_events_are_found_under_their_names(run: RunDirectory) -> None:
    noise = NoiseMeasured(("t::a",), ("t::b",), 0.1)
    written(
        run,
        CasesFrozen(CASES, (("t::z", "skipped"),)),
        noise,
        START,
        started(),
        val("t::a", 1.0),
        CHILD,
        CLOSED,
    )
    view = load_run(run.path)
    assert view.cases == CASES
    assert view.excluded == (("t::z", "skipped"),)
    assert view.cases_of(Split.TRAIN) == (CASES[2],)
    assert view.noise == noise
    assert view.candidates == {"c0000": START, "c0001": CHILD}
    assert view.requests == [started()]
    assert view.rollouts == {"c0001": [val("t::a", 1.0)]}
    assert view.iterations == [CLOSED]
    assert view.winner == "c0001"


def test_scores_are_means_over_repeats_of_what_was_scored(run: RunDirectory) -> None:
    written(
        run,
        CasesFrozen(CASES),
        START,
        CHILD,
        val("t::a", 1.0),
        val("t::a", 0.5, repeat=1),
        val("t::a", None, repeat=2, outcome=Outcome.TIMEOUT),
        val("t::a", 0.0, purpose=Purpose.PROBE),
        val("t::b", 0.0),
        rollout(case="t::c", score=1.0),
    )
    view = load_run(run.path)
    assert view.scores("c0001", Split.VAL) == {"t::a": 0.75, "t::b": 0.0}
    assert view.scores("c0001") == {"t::a": 0.75, "t::b": 0.0, "t::c": 1.0}
    assert view.mean("c0001", Split.VAL) == pytest.approx(0.75 / 4)
    assert view.mean("c0000", Split.VAL) is None
    assert view.scores("nobody") == {}


def test_means_are_of_candidates_scored_on_the_whole_split(run: RunDirectory) -> None:
    written(
        run,
        CasesFrozen(CASES),
        START,
        CHILD,
        val("t::a", 1.0, "c0000"),
        val("t::b", 1.0, "c0000"),
        val("t::a", 1.0, "c0001"),
    )
    assert load_run(run.path).means(Split.VAL) == {"c0000": 1.0}


def test_open_scopes_are_part_of_the_view(run: RunDirectory) -> None:
    written(run, CasesFrozen(CASES), noted=(started(), rollout(1)))
    view = load_run(run.path)
    assert view.open_scopes == ("1",)
    assert view.requests == [started()]
    assert view.spent() == {Purpose.CHILD: 1}


def test_left_over_notes_of_a_closed_scope_are_not_counted_twice(
    run: RunDirectory,
) -> None:
    written(run, CasesFrozen(CASES), noted=(rollout(1),))
    notes = run.path / "open" / "1.jsonl"
    content = notes.read_bytes()
    journal = FileJournal(run.path, RunClock())
    journal.open("1").close([rollout(1)])
    journal.close()
    notes.write_bytes(content)
    view = load_run(run.path)
    assert view.spent() == {Purpose.CHILD: 1}
    assert view.open_scopes == ()


def test_spending_is_added_up_by_purpose_and_role(run: RunDirectory) -> None:
    written(
        run,
        rollout(1, usage=Usage(1, 10, 0, 5, 0.5)),
        val("t::a", None, outcome=Outcome.LOST, usage=Usage(1, 1)),
        ProposalMade(1, 0, 0, "c0000", None, "no", usage=Usage(2, 100, usd=None)),
        DiagnosesMade(1, 0, "c0001", (), Usage(3)),
    )
    view = load_run(run.path)
    assert view.spent() == {Purpose.CHILD: 1, Purpose.VALIDATION: 1}
    usage = view.usage()
    assert usage["rollouts"] == Usage(2, 11, 0, 5, 0.5)
    assert usage["proposer"].usd is None
    assert usage["diagnoser"].calls == 3


def test_resumed_run_has_not_stopped(run: RunDirectory) -> None:
    stop = RunStopped("budget", "", "c0000", 1, 2, {})
    written(run, stop)
    assert load_run(run.path).stop == stop
    journal = FileJournal(run.path, RunClock())
    journal.append(RunResumed(0, 1.0))
    journal.close()
    view = load_run(run.path)
    assert view.stop is None
    assert view.resumes == [RunResumed(0, 1.0)]


def test_detail_and_tree_are_read_when_they_are_asked_for(
    run: RunDirectory, tmp_path: Path
) -> None:
    (tmp_path / "art").mkdir()
    (tmp_path / "art" / "a.txt").write_text("x")
    tree = snapshot(tmp_path / "art", run.blobs())
    run.trees().put(tree)
    detail = Detail(warnings=("w",))
    kept = RolloutFiles(run.path).keep(
        Rollout("c0000", tree.hash, "t::a", 0, Outcome.PASSED, 1.0, detail=detail)
    )
    start = CandidateRecorded("c0000", None, tree.hash, Status.START)
    written(run, start, rollout(trace=kept.trace), rollout(1, trace=None))
    view = load_run(run.path)
    first, second = view.rollouts["c0001"]
    assert view.detail(first) == detail
    assert view.detail(second) is None
    assert view.tree(tree.hash) == view.tree_of("c0000") == tree
    assert view.blobs().get(hashlib.sha256(b"x").hexdigest()) == b"x"


def test_view_can_be_read_while_a_run_writes(run: RunDirectory) -> None:
    journal = FileJournal(run.path, RunClock())
    done = threading.Event()

    def write() -> None:
        for number in range(60):
            scope = journal.open(str(number))
            scope.note(rollout(number))
            scope.close([rollout(number)])
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    counts = []
    while not done.is_set():
        counts.append(load_run(run.path).spent().get(Purpose.CHILD, 0))
    writer.join()
    journal.close()
    assert counts == sorted(counts), "nothing that was seen disappears"
    assert load_run(run.path).spent() == {Purpose.CHILD: 60}


def test_torn_tail_does_not_keep_a_run_from_being_read(run: RunDirectory) -> None:
    written(run, CasesFrozen(CASES))
    path = run.path / "journal.jsonl"
    with path.open("ab") as file:
        file.write(b'{"seq":3,"kind":"roll')
    size = path.stat().st_size
    assert load_run(run.path).cases == CASES
    assert path.stat().st_size == size, "reading writes nothing"


def test_damage_is_not_read_over(run: RunDirectory) -> None:
    written(run, CasesFrozen(CASES), START)
    path = run.path / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b"t::a", b"t::A", 1))
    with pytest.raises(JournalDamaged, match="record 1 "):
        load_run(run.path)


def test_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryProblem, match="no run directory"):
        load_run(tmp_path)
