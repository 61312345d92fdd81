"""Reading a journal that a crash may have torn, and repairing one that is damaged.

A *torn tail* is what a kill or a power loss leaves: half a line, a cut character, a
block of NULs, a block of records without the one that commits it. It is dropped, for
nobody was told that it is there. Anything else that is not as it was written is
*damage*, and dropping it would be a lie: the run is refused until a person repairs it.
"""

from __future__ import annotations

import io
import os
from collections import Counter
from collections.abc import Iterable
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import BinaryIO

from pytest_evo.errors import JournalDamaged
from pytest_evo.store.disk import AppendFile
from pytest_evo.store.records import CLOSED
from pytest_evo.store.records import parse
from pytest_evo.store.records import Record
from pytest_evo.store.records import whole

JOURNAL = "journal.jsonl"
OPEN = "open"


@dataclass(slots=True)
class Scan:
    """What a pass over a file of records found.

    ``end`` is where the committed records end, ``records`` how many they are,
    ``dropped`` the bytes of the torn tail behind them.
    """

    end: int = 0
    records: int = 0
    dropped: int = 0
    unterminated: bool = False  # the last committed record lacks its newline
    last_at: str = ""
    closed: Counter[str] = field(default_factory=Counter)


def sound_lines(path: Path) -> Iterator[tuple[int, Record]]:
    """Every sound record with the offset behind it; a torn tail ends it.

    What somebody appends meanwhile is not looked at.

    Raises:
        JournalDamaged: something before the tail is not as it was written.
    """
    with path.open("rb") as file:
        yield from _sound(path, _until(file, os.fstat(file.fileno()).st_size))


def sound_notes(path: Path) -> list[tuple[int, Record]]:
    """The same for the notes of a scope, which may close at any moment.

    Its file is then emptied and used for the next scope: nothing is found here.

    Raises:
        JournalDamaged: something before the tail is not as it was written.
    """
    data = path.read_bytes()
    while True:
        try:
            found = list(_sound(path, io.BytesIO(data)))
        except JournalDamaged:
            before, data = data, path.read_bytes()
            if data == before:
                raise
        else:
            scope = scope_of(path)
            return found if all(row.scope == scope for _, row in found) else []


def _until(file: BinaryIO, end: int) -> Iterator[bytes]:
    """Lines up to an offset; the last one may be cut."""
    for line in file:
        yield line[:end]
        end -= len(line)
        if end <= 0:
            return


def _sound(path: Path, lines: Iterator[bytes]) -> Iterator[tuple[int, Record]]:
    offset = 0
    for number, line in enumerate(lines, start=1):
        record = parse(line.removesuffix(b"\n"))
        if record is None:
            _insist_on_torn(path, number, line, lines)
            return
        if record.seq != number:
            raise damaged(path, number, f"it says that it is record {record.seq}")
        offset += len(line)
        yield offset, record


def _insist_on_torn(
    path: Path, number: int, line: bytes, rest: Iterator[bytes]
) -> None:
    """Let pass what a crash can have left at the end of a file, nothing else."""
    if line.endswith(b"\n") and whole(line[:-1]):
        raise damaged(path, number, "its check does not match its content")
    for later in rest:
        if whole(later.removesuffix(b"\n")):
            raise damaged(path, number, "it is no record, but records follow it")


def damaged(path: Path, number: int, why: str) -> JournalDamaged:
    """The error for damage at a record, counted from 1."""
    run = path.parent.parent if path.parent.name == OPEN else path.parent
    return JournalDamaged(
        f"record {number} of {path} is damaged: {why}. The {number - 1} records before "
        "it are sound. To keep those and set the rest aside, type: "
        f"pytest-evo repair {run.name}"
    )


def scan_journal(path: Path) -> Scan:
    """Find the committed part of a journal; a missing file has none.

    Raises:
        JournalDamaged: something before the tail is not as it was written.
    """
    scan = Scan()
    if not path.exists():
        return scan
    for offset, record in sound_lines(path):
        if record.kind == CLOSED and record.scope is not None:
            scan.closed[record.scope] += 1
        if record.commits:
            scan.end = offset
            scan.records = record.seq
        scan.last_at = max(scan.last_at, record.at)
    _measure_tail(path, scan)
    return scan


def scan_notes(path: Path) -> Scan:
    """Find the sound notes of an open scope: each commits itself."""
    scan = Scan()
    for offset, record in sound_notes(path):
        scan.end = offset
        scan.records += 1
        scan.last_at = max(scan.last_at, record.at)
    _measure_tail(path, scan)
    return scan


def _measure_tail(path: Path, scan: Scan) -> None:
    with path.open("rb") as file:
        size = file.seek(0, 2)
        scan.dropped = max(0, size - scan.end)
        if scan.end:
            file.seek(scan.end - 1)
            scan.unterminated = file.read(1) != b"\n"


def open_sound(path: Path, scan: Scan) -> AppendFile:
    """Open a file for appending behind its sound part, the tail cut off."""
    file = AppendFile(path, scan.end)
    if scan.unterminated:
        file.append(b"\n", durable=True)
    return file


# -- open scopes -----------------------------------------------------------------


def notes_path(run_dir: Path, scope: str, times_closed: int) -> Path:
    """Where an open scope keeps its notes.

    The number of times it was closed before is in the name, so that the file of a
    scope whose block is in the journal is known to be left over.
    """
    again = f"+{times_closed}" if times_closed else ""
    return run_dir / OPEN / f"{scope}{again}.jsonl"


def scope_of(notes: Path) -> str:
    """The scope that a file of notes belongs to."""
    return notes.stem.partition("+")[0]


def open_scopes(files: Iterable[Path], closed: Counter[str]) -> dict[Path, str]:
    """Those files of notes whose scope is open, with its name."""
    scopes = {}
    for path in files:
        scope = scope_of(path)
        if path == notes_path(path.parent.parent, scope, closed[scope]):
            scopes[path] = scope
    return scopes


def note_files(run_dir: Path) -> list[Path]:
    """All files of notes, left-over ones too, by name."""
    return sorted((run_dir / OPEN).glob("*.jsonl"))
