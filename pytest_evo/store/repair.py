"""Making a damaged run usable again without losing what was cut off."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from pytest_evo.errors import JournalDamaged
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.store.disk import AppendFile
from pytest_evo.store.disk import failed
from pytest_evo.store.disk import write_atomic
from pytest_evo.store.lock import RunLock
from pytest_evo.store.recovery import JOURNAL
from pytest_evo.store.recovery import note_files
from pytest_evo.store.recovery import sound_lines
from pytest_evo.store.run_directory import find_run
from pytest_evo.store.run_info import read_info
from pytest_evo.store.run_info import RUN_FILE
from pytest_evo.store.run_info import SAVED
from pytest_evo.store.run_info import validated
from pytest_evo.store.run_info import write_info


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did to one file: ``records`` were kept, ``removed`` set aside."""

    file: Path
    records: int
    removed: int
    aside: Path


def repair(root: Path, name: str, now: datetime) -> list[Repaired]:
    """Make a damaged run usable again; what was cut off stays beside it.

    ``run.json`` comes back from its copy, the journal keeps its sound records. The
    answer says per file what was kept and removed; it is empty if nothing was wrong.

    Raises:
        RunDirectoryProblem: there is no such run, a controller is using it, its
            ``run.json`` has no sound copy, or the disk refuses.
    """
    path = find_run(root, name)
    with RunLock(path, now):
        done = _restore_info(path)
        done += repair_journal(path)
    return done


def _restore_info(path: Path) -> list[Repaired]:
    try:
        read_info(path)
    except RunDirectoryProblem as problem:
        saved = path / SAVED
        if not saved.exists():
            raise
        try:
            info = validated(saved, json.loads(saved.read_bytes()))
        except ValueError:
            raise problem from None
        write_info(path, info)
        return [Repaired(path / RUN_FILE, records=1, removed=0, aside=saved)]
    return []


def repair_journal(run_dir: Path) -> list[Repaired]:
    """Keep the sound records of a damaged run and move the rest beside them.

    Where records of the journal go, the notes of open scopes go too: they were made
    in a state that is no longer recorded. The caller holds the run's lock.

    Raises:
        RunDirectoryProblem: the disk refuses.
    """
    done = []
    journal = run_dir / JOURNAL
    outcome = _cut(journal, _sound_end(journal, commits=True))
    if outcome is not None:
        done.append(outcome)
    lost = outcome is not None and outcome.removed > 0
    for path in note_files(run_dir):
        end = (0, 0) if lost else _sound_end(path, commits=False)
        outcome = _cut(path, end)
        if outcome is not None:
            done.append(outcome)
    return done


def _sound_end(path: Path, *, commits: bool) -> tuple[int, int]:
    """The offset and number of records up to the first thing that is not sound."""
    end = kept = number = 0
    try:
        for offset, record in sound_lines(path):
            number += 1
            if record.commits or not commits:
                end, kept = offset, number
    except JournalDamaged:
        pass  # the offset before it is the answer
    except FileNotFoundError:
        pass
    return end, kept


def _cut(path: Path, end: tuple[int, int]) -> Repaired | None:
    offset, kept = end
    if not path.exists() or path.stat().st_size <= offset:
        return None
    try:
        with path.open("rb") as file:
            file.seek(offset)
            rest = file.read()
    except OSError as error:
        raise failed(error, path) from error
    aside = _free_name(path)
    write_atomic(aside, rest)
    AppendFile(path, offset).close()
    removed = sum(1 for line in rest.split(b"\n") if line.strip(b"\0 \r"))
    return Repaired(path, kept, removed, aside)


def _free_name(path: Path) -> Path:
    number = 1
    while True:
        name = path.with_name(f"{path.stem}.removed-{number}")
        if not name.exists():
            return name
        number += 1
