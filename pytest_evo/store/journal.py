"""The truth about a run: an append-only file, or a list for tests and short runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.events import Event
from pytest_evo.events import RunResumed
from pytest_evo.store.clock import RunClock
from pytest_evo.store.clock import Stamps
from pytest_evo.store.disk import AppendFile
from pytest_evo.store.disk import failed
from pytest_evo.store.records import CLOSED
from pytest_evo.store.records import decode
from pytest_evo.store.records import encode
from pytest_evo.store.records import frame
from pytest_evo.store.records import parse
from pytest_evo.store.records import Record
from pytest_evo.store.records import SCOPE_NAME
from pytest_evo.store.records import stamp
from pytest_evo.store.recovery import JOURNAL
from pytest_evo.store.recovery import note_files
from pytest_evo.store.recovery import notes_path
from pytest_evo.store.recovery import OPEN
from pytest_evo.store.recovery import open_scopes
from pytest_evo.store.recovery import open_sound
from pytest_evo.store.recovery import Scan
from pytest_evo.store.recovery import scan_journal
from pytest_evo.store.recovery import scan_notes
from pytest_evo.store.recovery import sound_notes

_RESUME = "resume"
_SPARE = ".spare-"


class FileJournal:
    """The journal of a run directory, for the one session that may write to it.

    Opening it drops a torn tail and left-over notes. ``recovered`` says in words what
    was dropped, or is None.

    Raises:
        JournalDamaged: something before the tail is not as it was written.
        RunDirectoryProblem: the disk refuses.
    """

    def __init__(self, run_dir: Path, clock: Stamps) -> None:
        self._run_dir = run_dir
        self._clock = clock
        path = run_dir / JOURNAL
        scan = scan_journal(path)
        self.recovered = _in_words(path, scan)
        self._closed = scan.closed
        self._records = scan.records
        self._scopes: dict[str, _FileScope] = {}
        self._notes = _NotesFiles(run_dir / OPEN)
        self._file = open_sound(path, scan)
        self._clear_notes()

    def replay(self) -> Iterator[Event]:
        """All closed events in order, read as they are asked for."""
        for record in committed(self._file.path, self._file.end):
            if record.kind != CLOSED:
                yield decode(record)

    def open(self, scope: str) -> _FileScope:
        """Open a scope, or re-open it with what a killed session left.

        Raises:
            JournalDamaged: its notes are not as they were written.
            RunDirectoryProblem: the disk refuses.
            ValueError: this cannot be the name of a scope.
        """
        if not SCOPE_NAME.fullmatch(scope):
            raise ValueError(f"{scope!r} cannot name a scope: letters, digits, _ . -")
        before = self._scopes.pop(scope, None)
        if before is not None:
            before.release()
        path = notes_path(self._run_dir, scope, self._closed[scope])
        opened = _FileScope(self, scope, path, self._clock)
        self._scopes[scope] = opened
        return opened

    def append(self, *events: Event) -> None:
        """Append events that belong to no scope; durable on return.

        Raises:
            RunDirectoryProblem: nothing was appended.
        """
        at = stamp(self._clock.now())
        self._write([(event.kind, at, encode(event)) for event in events], None)

    def left_open(self) -> tuple[str, ...]:
        """The scopes that have notes and are not closed."""
        return tuple(open_scopes(note_files(self._run_dir), self._closed).values())

    def close(self) -> None:
        """Give all descriptors back; open scopes keep their notes on disk."""
        for scope in self._scopes.values():
            scope.release()
        self._scopes.clear()
        self._notes.close()
        self._file.close()

    def _write(
        self, lines: Iterable[tuple[str, str, bytes]], scope: str | None
    ) -> None:
        """Append lines in one write and wait until the disk has them."""
        seq = self._records
        block = bytearray()
        for kind, at, fields in lines:
            seq += 1
            block += frame(seq, kind, at, scope, fields)
        if not block:
            return
        self._file.append(bytes(block), durable=True)
        self._records = seq

    def _commit(self, scope: str, lines: list[tuple[str, str, bytes]]) -> None:
        marker = (CLOSED, stamp(self._clock.now()), b'"records":%d' % len(lines))
        self._write([*lines, marker], scope)
        self._closed[scope] += 1
        self._scopes.pop(scope, None)

    def _clear_notes(self) -> None:
        """Make the folder of open scopes and remove what belongs to closed ones."""
        folder = self._run_dir / OPEN
        try:
            folder.mkdir(exist_ok=True)
            files = note_files(self._run_dir)
            live = open_scopes(files, self._closed)
            for path in (*files, *folder.glob(f"{_SPARE}*")):
                if path not in live:
                    path.unlink()
        except OSError as error:
            raise failed(error, folder) from error


class _NotesFiles:
    """The files of open scopes: emptied and used again, for making one takes longer."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._spare: list[AppendFile] = []
        self._made = 0

    def take(self, path: Path) -> AppendFile:
        """An empty file of this name, which no file has."""
        if self._spare:
            file = self._spare.pop()
            try:
                file.begin_again(path)
            except OSError:  # somebody has cleared the folder
                file.close()
            else:
                return file
        return AppendFile(path, 0)

    def give_back(self, file: AppendFile) -> None:
        """Keep a file that is of no use any more for the next scope."""
        path = file.path
        self._made += 1
        try:
            file.begin_again(self._folder / f"{_SPARE}{self._made}")
        except OSError:  # no matter: by its name it is known to be left over
            file.close()
            with contextlib.suppress(OSError):
                path.unlink()
        else:
            self._spare.append(file)

    def close(self) -> None:
        """Remove the spare files."""
        for file in self._spare:
            file.close()
            with contextlib.suppress(OSError):
                file.path.unlink()
        self._spare.clear()


class _FileScope:
    """The notes of an open scope, in a file of their own until it closes."""

    def __init__(
        self, journal: FileJournal, name: str, path: Path, clock: Stamps
    ) -> None:
        self._journal = journal
        self._name = name
        self._path = path
        self._clock = clock
        self._file: AppendFile | None = None
        self._alive = True
        # The very objects that were noted, so that closing need not encode them again
        # and keeps the moment at which each of them happened.
        self._noted: dict[int, tuple[Event, str, bytes]] = {}
        self._notes = 0
        self.found: Sequence[Event] = self._recover() if path.exists() else ()

    def note(self, event: Event, *, commit: bool = False) -> None:
        """Write an event so that it survives a kill; ``commit`` also a power loss."""
        self._insist_on_alive()
        at = stamp(self._clock.now())
        fields = encode(event)
        line = frame(self._notes + 1, event.kind, at, self._name, fields)
        if self._file is None:
            self._file = self._journal._notes.take(self._path)
        self._file.append(line, durable=commit)
        self._notes += 1
        self._noted[id(event)] = (event, at, fields)

    def close(self, events: Iterable[Event]) -> None:
        """Move the scope into the journal: these events, in this order, at once."""
        self._insist_on_alive()
        at = stamp(self._clock.now())
        lines: list[tuple[str, str, bytes]] = []
        for event in events:
            _, when, fields = self._noted.get(id(event)) or (event, at, encode(event))
            lines.append((event.kind, when, fields))
        self._journal._commit(self._name, lines)
        file, self._file = self._file, None
        self.release()
        if file is not None:
            self._journal._notes.give_back(file)

    def release(self) -> None:
        """Give the descriptor back; the notes stay on disk."""
        self._alive = False
        self._noted.clear()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _insist_on_alive(self) -> None:
        if not self._alive:
            raise ValueError(f"scope {self._name!r} is closed or was opened again")

    def _recover(self) -> tuple[Event, ...]:
        scan = scan_notes(self._path)
        found = []
        for _, record in sound_notes(self._path):
            event = decode(record)
            found.append(event)
            self._noted[id(event)] = (event, record.at, record.fields)
        self._notes = scan.records
        self._file = open_sound(self._path, scan)
        return tuple(found)


class MemoryJournal:
    """A journal without a disk, for tests and for runs that nobody will resume.

    Opening a scope that is open gives its notes back, as after a kill.
    """

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._notes: dict[str, list[Event]] = {}
        self._scopes: dict[str, _MemoryScope] = {}

    def replay(self) -> Iterator[Event]:
        """All closed events in order."""
        yield from tuple(self._events)

    def open(self, scope: str) -> _MemoryScope:
        """Open a scope, or re-open it with what was noted.

        Raises:
            ValueError: this cannot be the name of a scope.
        """
        if not SCOPE_NAME.fullmatch(scope):
            raise ValueError(f"{scope!r} cannot name a scope: letters, digits, _ . -")
        if scope in self._scopes:
            self._scopes.pop(scope).alive = False
        opened = _MemoryScope(self, scope, tuple(self._notes.get(scope, ())))
        self._scopes[scope] = opened
        return opened

    def append(self, *events: Event) -> None:
        """Append events that belong to no scope."""
        self._events.extend(events)

    def _note(self, scope: str, event: Event) -> None:
        self._notes.setdefault(scope, []).append(event)

    def _commit(self, scope: str, events: Iterable[Event]) -> None:
        self._events.extend(events)
        self._notes.pop(scope, None)
        self._scopes.pop(scope, None)


class _MemoryScope:
    def __init__(
        self, journal: MemoryJournal, name: str, found: Sequence[Event]
    ) -> None:
        self._journal = journal
        self._name = name
        self.found = found
        self.alive = True

    def note(self, event: Event, *, commit: bool = False) -> None:
        """Keep an event; there is no power to lose."""
        self._insist_on_alive()
        self._journal._note(self._name, event)

    def close(self, events: Iterable[Event]) -> None:
        """Move these events, in this order, to the closed ones."""
        self._insist_on_alive()
        self._journal._commit(self._name, events)
        self.alive = False

    def _insist_on_alive(self) -> None:
        if not self.alive:
            raise ValueError(f"scope {self._name!r} is closed or was opened again")


# -- reading without writing -----------------------------------------------------


def committed(path: Path, end: int) -> Iterator[Record]:
    """The records up to an offset that a scan found, one at a time.

    Raises:
        RunDirectoryProblem: something else has changed the file since.
        OSError: it cannot be read.
    """
    if not end:
        return
    at = 0
    with path.open("rb") as file:
        for line in file:
            record = parse(line.removesuffix(b"\n"))
            if record is None:
                raise RunDirectoryProblem(
                    f"{path} has changed while it was read: byte {at} is no record any "
                    "more. Nothing but pytest-evo may write there; try again"
                )
            yield record
            at += len(line)
            if at >= end:
                return


@dataclass(frozen=True, slots=True)
class Worked:
    """How long the sessions of a run have worked, and its last stamp."""

    seconds: float
    last: datetime


def worked(run_dir: Path, created: datetime) -> Worked:
    """Add up the running time of a run from its stamps.

    ``created`` is when the run began. Each session counts from its own first stamp to
    its last; the time between sessions does not count.
    """
    scan = scan_journal(run_dir / JOURNAL)
    before, began = 0.0, stamp(created)
    last = began
    for record in committed(run_dir / JOURNAL, scan.end):
        last = max(last, record.at)
        if record.kind == _RESUME:
            event = decode(record)
            if isinstance(event, RunResumed):
                before, began = event.seconds_before, record.at
    for notes in open_scopes(note_files(run_dir), scan.closed):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            last = max(last, scan_notes(notes).last_at)
    end = datetime.fromisoformat(last)
    seconds = (end - datetime.fromisoformat(began)).total_seconds()
    return Worked(before + max(0.0, seconds), end)


def resume_clock(run_dir: Path, created: datetime) -> RunClock:
    """The clock of a new session of a run: it goes on where the last one ended."""
    so_far = worked(run_dir, created)
    return RunClock(so_far.seconds, not_before=so_far.last)


def _in_words(path: Path, scan: Scan) -> str | None:
    if not scan.dropped:
        return None
    return (
        f"dropped a torn end of {scan.dropped} bytes from {path.name}: what a crash "
        f"left half-written; {scan.records} records are sound"
    )
