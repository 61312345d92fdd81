from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from datetime import timedelta
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.errors import JournalDamaged
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.events import Event
from pytest_evo.events import RunResumed
from pytest_evo.models import Outcome
from pytest_evo.store import disk
from pytest_evo.store.clock import RunClock
from pytest_evo.store.journal import FileJournal
from pytest_evo.store.journal import resume_clock
from pytest_evo.store.journal import worked
from pytest_evo.store.recovery import sound_lines
from pytest_evo.store.recovery import sound_notes
from pytest_evo.store.repair import repair_journal
from pytest_evo.testing.journal_contract import rollout
from pytest_evo.testing.journal_contract import started

BEGAN = datetime(2026, 11, 29, 15, 30, tzinfo=UTC)


class Hand:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.moment = BEGAN

    def now(self) -> datetime:
        return self.moment

    def move(self, seconds: float) -> None:
        self.moment += timedelta(seconds=seconds)


@contextmanager
def journal_in(
    run_dir: Path, clock: Hand | RunClock | None = None
) -> Iterator[FileJournal]:
    journal = FileJournal(run_dir, clock or RunClock())
    try:
        yield journal
    finally:
        journal.close()


def filled(run_dir: Path, blocks: int = 3, size: int = 3) -> list[list[Event]]:
    """A journal of several closed scopes; gives their events."""
    written: list[list[Event]] = []
    with journal_in(run_dir) as journal:
        for block in range(blocks):
            scope = journal.open(str(block))
            events: list[Event] = [rollout(10 * block + i) for i in range(size)]
            for event in events:
                scope.note(event)
            scope.close(events)
            written.append(events)
    return written


def lines_of(run_dir: Path) -> list[dict[str, Any]]:
    text = (run_dir / "journal.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def replayed(run_dir: Path) -> list[Event]:
    with journal_in(run_dir) as journal:
        return list(journal.replay())


# -- what is on the disk ---------------------------------------------------------


def test_lines_are_numbered_and_scopes_end_with_their_marker(tmp_path: Path) -> None:
    filled(tmp_path, blocks=2, size=2)
    lines = lines_of(tmp_path)
    assert [line["seq"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["kind"] for line in lines] == ["rollout", "rollout", "closed"] * 2
    assert [line["scope"] for line in lines] == ["0"] * 3 + ["1"] * 3
    assert lines[2]["records"] == 2


def test_closing_removes_the_notes(tmp_path: Path) -> None:
    with journal_in(tmp_path) as journal:
        scope = journal.open("1")
        scope.note(rollout())
        assert journal.left_open() == ("1",)
        assert [p.name for p in (tmp_path / "open").iterdir()] == ["1.jsonl"]
        scope.close([rollout()])
        assert journal.left_open() == ()
        assert [p.read_bytes() for p in (tmp_path / "open").iterdir()] == [b""]
    assert list((tmp_path / "open").iterdir()) == []


def test_notes_of_one_scope_never_show_in_the_next(tmp_path: Path) -> None:
    with journal_in(tmp_path) as journal:
        for number in range(3):
            scope = journal.open(str(number))
            scope.note(rollout(number), commit=True)
            if number < 2:
                scope.close([rollout(number)])
    with journal_in(tmp_path) as journal:
        assert journal.left_open() == ("2",)
        assert list(journal.open("2").found) == [rollout(2)]
        assert [p.name for p in (tmp_path / "open").iterdir()] == ["2.jsonl"]


def test_empty_file_that_a_killed_session_kept_is_removed(tmp_path: Path) -> None:
    killed = FileJournal(tmp_path, RunClock())
    scope = killed.open("1")
    scope.note(rollout())
    scope.close([rollout()])
    assert len(list((tmp_path / "open").iterdir())) == 1
    with journal_in(tmp_path):
        assert list((tmp_path / "open").iterdir()) == []


def test_cleared_folder_of_notes_stops_no_scope(tmp_path: Path) -> None:
    with journal_in(tmp_path) as journal:
        for number in range(3):
            scope = journal.open(str(number))
            scope.note(rollout(number), commit=True)
            scope.close([rollout(number)])
            for path in (tmp_path / "open").iterdir():
                path.unlink()
    assert replayed(tmp_path) == [rollout(number) for number in range(3)]


def test_event_keeps_the_moment_at_which_it_was_noted(tmp_path: Path) -> None:
    clock = Hand()
    with journal_in(tmp_path, clock) as journal:
        scope = journal.open("1")
        event = rollout()
        scope.note(event)
        clock.move(60)
        scope.close([event, started()])
    lines = lines_of(tmp_path)
    assert [line["at"][11:19] for line in lines] == ["15:30:00", "15:31:00", "15:31:00"]


def test_equal_runs_write_equal_bytes_but_for_time_and_worker(tmp_path: Path) -> None:
    texts = []
    for name, seconds in (("a", 0.5), ("b", 0.75)):
        run_dir = tmp_path / name
        run_dir.mkdir()
        clock = Hand()
        with journal_in(run_dir, clock) as journal:
            first, second = journal.open("1"), journal.open("2")
            events = [rollout(i, seconds=seconds, worker=name) for i in range(4)]
            order = events if name == "a" else events[::-1]
            for event in order:  # timing differs, the canonical order does not
                clock.move(seconds)
                (first if name == "a" else second).note(event)
            first.close(events[:2])
            second.close(events[2:])
        text = (run_dir / "journal.jsonl").read_text(encoding="utf-8")
        texts.append(re.sub(r'"(at|seconds|worker|check)":("[^"]*"|[0-9.]+)', "", text))
    assert texts[0] == texts[1]


def test_replay_streams_in_flat_memory(tmp_path: Path) -> None:
    filled(tmp_path, blocks=300, size=10)
    script = (
        "import sys, resource, pathlib\n"
        "from pytest_evo.store.journal import FileJournal\n"
        "from pytest_evo.store.clock import RunClock\n"
        "journal = FileJournal(pathlib.Path(sys.argv[1]), RunClock())\n"
        "assert sum(1 for _ in journal.replay()) == 3000\n"
        "seen = journal.replay()\n"
        "for _ in range(100): next(seen)\n"
        "import tracemalloc; tracemalloc.start()\n"
        "left = sum(1 for _ in seen)\n"
        "print(left, tracemalloc.get_traced_memory()[1])\n"
    )
    out = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    left, peak = map(int, out.stdout.split())
    assert left == 2900
    assert peak < 100_000 < (tmp_path / "journal.jsonl").stat().st_size


# -- kills and torn tails --------------------------------------------------------


@given(st.data())
@settings(deadline=None)
def test_any_cut_recovers_a_prefix_of_what_was_closed(data: st.DataObject) -> None:
    steps = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from(["note", "commit", "close", "append"]),
                st.integers(0, 2),
            ),
            max_size=25,
        )
    )
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        states: list[list[Event]] = [[]]
        noted: dict[str, list[Event]] = {}
        with journal_in(run_dir) as journal:
            for number, (step, which) in enumerate(steps):
                scope, event = str(which), rollout(number)
                if step == "append":
                    journal.append(event)
                    states.append([*states[-1], event])
                    continue
                opened = journal.open(scope)
                if step == "close":
                    opened.close([*opened.found, event])
                    states.append([*states[-1], *noted.pop(scope, []), event])
                else:
                    opened.note(event, commit=step == "commit")
                    noted.setdefault(scope, []).append(event)
        path = run_dir / "journal.jsonl"
        size = path.stat().st_size
        cut = data.draw(st.integers(0, size))
        os.truncate(path, cut)
        for notes in sorted((run_dir / "open").iterdir()):
            os.truncate(notes, data.draw(st.integers(0, notes.stat().st_size)))

        with journal_in(run_dir) as journal:
            found = list(journal.replay())
            assert found in states
            if cut == size:
                assert found == states[-1]
                for scope, events in noted.items():
                    kept = list(journal.open(scope).found)
                    assert kept == events[: len(kept)]
            journal.append(rollout(99))
        assert replayed(run_dir) == [*found, rollout(99)]


@given(st.data())
@settings(deadline=None)
def test_any_changed_byte_before_the_tail_is_detected(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder)
        blocks = filled(run_dir)
        path = run_dir / "journal.jsonl"
        content = bytearray(path.read_bytes())
        last = content.rstrip(b"\n").rfind(b"\n")
        place = data.draw(st.integers(0, last))
        byte = data.draw(st.integers(0, 255).filter(lambda b: b != content[place]))
        content[place] = byte
        path.write_bytes(bytes(content))
        number = bytes(content[:place]).count(b"\n") + 1
        with pytest.raises(JournalDamaged, match=f"record {number} of .*repair"):
            FileJournal(run_dir, RunClock())
        assert path.read_bytes() == bytes(content), "a refused journal is not touched"

        repair_journal(run_dir)
        kept = replayed(run_dir)
        whole = [block for block in blocks if kept[: len(kept)]]
        assert kept == [e for block in whole[: (number - 1) // 4] for e in block]


@pytest.mark.parametrize(
    "tail",
    [
        b'{"seq":5,"ki',
        b'{"note": "caf\xc3',
        b"\0" * 4096,
        b"\n",
        b'{"seq":5,"ki\n\n',
        b"\xff\xfe\n",
    ],
    ids=["half", "half-utf8", "nul", "blank", "ended-half", "rubbish"],
)
def test_torn_tail_is_dropped_and_said(tmp_path: Path, tail: bytes) -> None:
    blocks = filled(tmp_path, blocks=1)
    path = tmp_path / "journal.jsonl"
    with path.open("ab") as file:
        file.write(tail)
    with journal_in(tmp_path) as journal:
        assert list(journal.replay()) == blocks[0]
        assert journal.recovered is not None
        assert f"{len(tail)} bytes" in journal.recovered
        journal.append(started())
    with journal_in(tmp_path) as journal:
        assert list(journal.replay()) == [*blocks[0], started()]
        assert journal.recovered is None


def test_whole_record_without_its_newline_is_kept(tmp_path: Path) -> None:
    blocks = filled(tmp_path, blocks=2)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    with journal_in(tmp_path) as journal:
        journal.append(started())
    assert replayed(tmp_path) == [*blocks[0], *blocks[1], started()]


def test_changed_last_record_is_damage_not_a_torn_tail(tmp_path: Path) -> None:
    filled(tmp_path, blocks=1)
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"records":3', b'"records":4'))
    with pytest.raises(JournalDamaged, match=r"record 4 .*check"):
        FileJournal(tmp_path, RunClock())


def test_missing_record_is_damage(tmp_path: Path) -> None:
    filled(tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    with pytest.raises(JournalDamaged, match=r"record 3 .*says that it is record 4"):
        FileJournal(tmp_path, RunClock())


def test_kill_between_append_and_removal_closes_the_scope_once(tmp_path: Path) -> None:
    with journal_in(tmp_path) as journal:
        scope = journal.open("1")
        scope.note(rollout(1))
        notes = (tmp_path / "open" / "1.jsonl").read_bytes()
        scope.close([rollout(1)])
    (tmp_path / "open" / "1.jsonl").write_bytes(notes)  # as if it was never removed
    with journal_in(tmp_path) as journal:
        assert journal.left_open() == ()
        assert list(journal.open("1").found) == []
        assert list(journal.replay()) == [rollout(1)]
    assert list((tmp_path / "open").iterdir()) == []


def test_block_without_its_marker_is_dropped_its_notes_found(
    tmp_path: Path,
) -> None:
    with journal_in(tmp_path) as journal:
        scope = journal.open("1")
        scope.note(rollout(1))
        notes = (tmp_path / "open" / "1.jsonl").read_bytes()
        scope.close([rollout(1)])
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes().splitlines(keepends=True)[0])
    (tmp_path / "open" / "1.jsonl").write_bytes(notes)
    with journal_in(tmp_path) as journal:
        assert list(journal.replay()) == []
        assert list(journal.open("1").found) == [rollout(1)]


def test_notes_survive_a_kill(tmp_path: Path) -> None:
    script = (
        "import os, pathlib, signal, sys\n"
        "from pytest_evo.store.clock import RunClock\n"
        "from pytest_evo.store.journal import FileJournal\n"
        "from pytest_evo.testing.journal_contract import rollout\n"
        "scope = FileJournal(pathlib.Path(sys.argv[1]), RunClock()).open('1')\n"
        "for number in range(5):\n"
        "    scope.note(rollout(number))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    dead = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert dead.returncode == -signal.SIGKILL
    with journal_in(tmp_path) as journal:
        assert list(journal.open("1").found) == [rollout(number) for number in range(5)]


def test_reader_is_not_misled_by_what_is_appended_meanwhile(tmp_path: Path) -> None:
    with journal_in(tmp_path) as journal:
        journal.append(started(1), started(2))
        path = tmp_path / "journal.jsonl"
        whole = path.read_bytes()
        first, second = whole.splitlines(keepends=True)
        path.write_bytes(first + second[:40])
        lines = sound_lines(path)
        assert next(lines)[1].seq == 1
        path.write_bytes(whole + first)
        assert list(lines) == []


def test_reader_is_not_misled_by_the_notes_of_the_next_scope(tmp_path: Path) -> None:
    with journal_in(tmp_path) as journal:
        scope = journal.open("1")
        scope.note(rollout())
        mine = tmp_path / "open" / "1.jsonl"
        assert len(sound_notes(mine)) == 1
        other = mine.with_name("2.jsonl")
        other.write_bytes(mine.read_bytes())
        assert sound_notes(other) == []


def test_damaged_note_names_its_file_and_its_run(tmp_path: Path) -> None:
    run_dir = tmp_path / "20261129-153012-a1b2"
    run_dir.mkdir()
    with journal_in(run_dir) as journal:
        scope = journal.open("7")
        for number in range(3):
            scope.note(rollout(number))
    path = run_dir / "open" / "7.jsonl"
    path.write_bytes(path.read_bytes().replace(b"test_x[1]", b"test_x[8]"))
    with (
        journal_in(run_dir) as journal,
        pytest.raises(
            JournalDamaged,
            match=r"record 2 of .*7\.jsonl.*pytest-evo repair 20261129-153012-a1b2",
        ),
    ):
        journal.open("7")
    (done,) = repair_journal(run_dir)
    assert (done.file, done.records, done.removed) == (path, 1, 2)
    with journal_in(run_dir) as journal:
        assert list(journal.open("7").found) == [rollout(0)]


# -- repair ----------------------------------------------------------------------


def test_repair_keeps_whole_scopes_and_moves_the_rest_aside(tmp_path: Path) -> None:
    blocks = filled(tmp_path)
    path = tmp_path / "journal.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[5] = lines[5].replace(b"passed", b"failed")
    path.write_bytes(b"".join(lines))
    (done,) = repair_journal(tmp_path)
    assert (done.file, done.records, done.removed) == (path, 4, 8)
    assert done.aside.read_bytes() == b"".join(lines[4:])
    assert replayed(tmp_path) == blocks[0]
    assert repair_journal(tmp_path) == []


def test_repair_sets_notes_aside_that_stand_on_removed_records(tmp_path: Path) -> None:
    filled(tmp_path, blocks=2)
    with journal_in(tmp_path) as journal:
        journal.open("9").note(rollout(9))
    path = tmp_path / "journal.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"records":3', b'"records":9'))
    journal_done, notes_done = repair_journal(tmp_path)
    assert (journal_done.records, journal_done.removed) == (0, 8)
    assert (notes_done.records, notes_done.removed) == (0, 1)
    with journal_in(tmp_path) as journal:
        assert list(journal.open("9").found) == []


def test_repair_twice_keeps_both_side_files(tmp_path: Path) -> None:
    asides = []
    for _ in range(2):
        filled(tmp_path, blocks=1)
        path = tmp_path / "journal.jsonl"
        path.write_bytes(path.read_bytes().replace(b"passed", b"failed", 1))
        asides += [done.aside for done in repair_journal(tmp_path)]
    assert len(set(asides)) == 2
    assert all(aside.exists() for aside in asides)


# -- disks that refuse -----------------------------------------------------------


@pytest.mark.parametrize("keeps", [0, 1, 100])
def test_full_disk_leaves_no_half_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keeps: int
) -> None:
    with journal_in(tmp_path) as journal:
        scope = journal.open("1")
        scope.note(rollout(1))

        def full(descriptor: int, data: bytes) -> None:
            os.write(descriptor, data[:keeps])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_all", full)
            with pytest.raises(RunDirectoryProblem, match="No space left"):
                scope.note(rollout(2))
            with pytest.raises(RunDirectoryProblem, match="make room"):
                scope.close([rollout(1)])
            with pytest.raises(RunDirectoryProblem, match=r"journal\.jsonl"):
                journal.append(started())
        assert list(journal.replay()) == []
        scope.note(rollout(3))
        scope.close([rollout(1), rollout(3)])
    assert replayed(tmp_path) == [rollout(1), rollout(3)]


def test_half_line_that_could_not_be_cut_is_cut_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def half(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:20])
        refuse()

    with journal_in(tmp_path) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(disk, "write_all", half)
            patch.setattr(os, "ftruncate", refuse)
            with pytest.raises(RunDirectoryProblem, match="error"):
                journal.append(started(1))
        assert (tmp_path / "journal.jsonl").stat().st_size == 20
        journal.append(started(2))
    assert replayed(tmp_path) == [started(2)]


def test_write_that_the_kernel_cuts_short_leaves_no_half_line(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with journal_in(tmp_path) as journal:
        journal.append(started(1))
        limit = (tmp_path / "journal.jsonl").stat().st_size + 30
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(RunDirectoryProblem, match="cannot write"):
                journal.append(started(2))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        journal.append(started(3))
    assert replayed(tmp_path) == [started(1), started(3)]


@pytest.mark.parametrize("how", ["removed", "changed"])
def test_journal_touched_by_somebody_else_ends_the_run_aloud(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "journal.jsonl"
    with journal_in(tmp_path) as journal:
        journal.append(started(1))
        if how == "removed":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes() + b"{}\n")
        with pytest.raises(RunDirectoryProblem, match=f"was {how} by something else"):
            journal.append(started(2))


# -- running time ----------------------------------------------------------------


def test_downtime_is_not_running_time(tmp_path: Path) -> None:
    clock = Hand()
    with journal_in(tmp_path, clock) as journal:
        clock.move(10)
        journal.append(started(1))
    assert worked(tmp_path, BEGAN).seconds == 10
    clock.move(3600)
    with journal_in(tmp_path, clock) as journal:
        journal.append(RunResumed(lost=1, seconds_before=10))
        clock.move(5)
        journal.open("1").note(rollout(outcome=Outcome.LOST))
    so_far = worked(tmp_path, BEGAN)
    assert so_far.seconds == 15
    assert so_far.last == clock.moment
    resumed = resume_clock(tmp_path, BEGAN)
    assert 15 <= resumed.elapsed() < 16


def test_run_without_a_record_has_worked_no_time(tmp_path: Path) -> None:
    assert worked(tmp_path, BEGAN).seconds == 0


def test_wall_clock_that_jumps_changes_nothing() -> None:
    ticks = iter([100.0, 101.0, 102.5, 104.0])
    walls = iter([BEGAN])
    clock = RunClock(7.0, monotonic=lambda: next(ticks), wall=lambda: next(walls))
    assert clock.elapsed() == 8.0
    assert clock.now() == BEGAN + timedelta(seconds=2.5)
    assert clock.elapsed() == 11.0


def test_stamps_do_not_go_back_where_the_wall_clock_did() -> None:
    last = BEGAN + timedelta(hours=2)
    clock = RunClock(not_before=last, monotonic=lambda: 0.0, wall=lambda: BEGAN)
    assert clock.now() == last
