"""The run directory of a session: made new, or found and held for a resume."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from datetime import UTC
from math import inf
from pathlib import Path
from random import SystemRandom
from typing import Any

import pytest
from pydantic import ValidationError

import pytest_evo
from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.checks import read_artifact
from pytest_evo.artifact.checks import read_start
from pytest_evo.artifact.patches import changes
from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.errors import SuiteProblem
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import CasesFrozen
from pytest_evo.events import IsolationChosen
from pytest_evo.events import IterationClosed
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import RunResumed
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import Purpose
from pytest_evo.models import TreeHash
from pytest_evo.plugin.reached import ReachedFiles
from pytest_evo.reports.text import some_of
from pytest_evo.reports.text import visible
from pytest_evo.settings import BUDGETS
from pytest_evo.settings import Settings
from pytest_evo.store.blobs import DirectoryBlobs
from pytest_evo.store.candidates import CandidateFiles
from pytest_evo.store.clock import RunClock
from pytest_evo.store.disk import beginning
from pytest_evo.store.journal import FileJournal
from pytest_evo.store.journal import resume_clock
from pytest_evo.store.lock import RunLock
from pytest_evo.store.rollouts import RolloutFiles
from pytest_evo.store.run_directory import create
from pytest_evo.store.run_directory import identify
from pytest_evo.store.run_directory import NewRun
from pytest_evo.store.run_directory import open_existing
from pytest_evo.store.run_directory import RunDirectory
from pytest_evo.store.trees import TreeFiles
from pytest_evo.wording import count

_SHOWN = 5
_NOT_RESUMED = frozenset({"resume", "dry_run", "apply", "require_gain"})
"""Settings of this session, not of the run."""


@dataclass(frozen=True, slots=True)
class RunFiles:
    """Everything of one run on disk, held by this session."""

    directory: RunDirectory
    lock: RunLock
    clock: RunClock
    journal: FileJournal
    blobs: DirectoryBlobs
    trees: TreeFiles
    rollouts: RolloutFiles
    candidates: CandidateFiles
    start: TreeHash
    resumed: bool

    def isolation(self) -> IsolationChosen | None:
        """What an earlier session of this run has settled."""
        found = None
        for event in self.journal.replay():
            if isinstance(event, IsolationChosen):
                found = event
        return found

    def close(self) -> None:
        """Give everything back."""
        self.journal.close()
        self.lock.release()


def own_folders(rootdir: Path, settings: Settings) -> list[str]:
    """Folders of ours in the project, which no rollout has any business in."""
    return [
        str((rootdir / name).resolve()) for name in (settings.run_dir, settings.reports)
    ]


def find_run(rootdir: Path, settings: Settings) -> RunDirectory:
    """The run that ``--evo-resume`` names.

    Raises:
        RunDirectoryProblem: there is none, or it is another project's.
    """
    root = rootdir / settings.run_dir
    return open_existing(root, settings.resume or "last", identify(rootdir, root))


def resumed_settings(
    run: RunDirectory, current: Settings, given: dict[str, object]
) -> Settings:
    """The settings of a run that goes on: its own, and what is typed now.

    Raises:
        RunDirectoryProblem: something was typed that the run has decided already.
    """
    kept = {
        name: value
        for name, value in run.info.settings.items()
        if name not in _NOT_RESUMED
    }
    try:
        stored = Settings.model_validate(kept)
    except ValidationError as error:
        raise RunDirectoryProblem(
            f"the settings of run {run.id} cannot be read back: {error}. It was "
            "written by another version; start a new run: pytest --evolve"
        ) from error
    update = {name: getattr(current, name) for name in (*given, *_NOT_RESUMED)}
    settings = stored.model_copy(update=update)
    if settings.digest() != stored.digest():
        changed = sorted(
            name for name in given if getattr(settings, name) != getattr(stored, name)
        )
        raise RunDirectoryProblem(
            f"run {run.id} was begun with other values of {', '.join(changed)}. "
            "Leave them out to go on with it, or start a new run without --evo-resume."
        )
    return settings


def create_run(
    rootdir: Path, settings: Settings, schema: ArtifactSchema, artifact: Path
) -> RunFiles:
    """Begin a run: snapshot the artifact, write ``run.json``, take the lock.

    Raises:
        RunDirectoryProblem: the place cannot be written to.
        ArtifactProblem: the artifact holds something that cannot be kept.
    """
    root = rootdir / settings.run_dir
    clock = RunClock()
    directory = create(
        root,
        NewRun(
            project=identify(rootdir, root),
            package_version=pytest_evo.__version__,
            seed=settings.seed,
            settings=settings.model_dump(mode="json", exclude_defaults=True),
            artifact=schema.directory,
            python=platform.python_version(),
            pytest=pytest.__version__,
        ),
        clock.now(),
        SystemRandom(),
    )
    lock = directory.lock(clock.now())
    lock.acquire()
    try:
        with beginning(root):
            start = _keep_start(directory, schema, artifact)
    except BaseException:
        lock.release()
        shutil.rmtree(directory.path, ignore_errors=True)  # it never began
        raise
    return _open(directory.update(start_tree=start), lock, clock, start, False)


def _keep_start(
    directory: RunDirectory, schema: ArtifactSchema, artifact: Path
) -> TreeHash:
    tree = read_start(artifact, schema, directory.blobs())
    return directory.trees().put(tree)


def resume_run(directory: RunDirectory) -> RunFiles:
    """Go on with a run; its lock is taken before anything is looked at.

    Raises:
        RunDirectoryProblem: another controller holds it, or it never began.
        JournalDamaged: the journal is broken before its tail.
    """
    lock = directory.lock(datetime.now(UTC))
    lock.acquire()
    start = directory.info.start_tree
    if start is None:
        raise RunDirectoryProblem(
            f"run {directory.id} was killed before it had read the artifact; there is "
            "nothing to go on with. Start a new run: pytest --evolve"
        )
    clock = resume_clock(directory.path, directory.info.created)
    return _open(directory, lock, clock, start, True)


def _open(
    directory: RunDirectory,
    lock: RunLock,
    clock: RunClock,
    start: TreeHash,
    resumed: bool,
) -> RunFiles:
    blobs, trees = directory.blobs(), directory.trees()
    return RunFiles(
        directory=directory,
        lock=lock,
        clock=clock,
        journal=FileJournal(directory.path, clock),
        blobs=blobs,
        trees=trees,
        rollouts=RolloutFiles(directory.path),
        candidates=CandidateFiles(directory.path, blobs, trees),
        start=start,
        resumed=resumed,
    )


def mark_resumed(files: RunFiles, settings: Settings) -> None:
    """Write down that a new session has begun, and with which budgets."""
    files.journal.append(
        RunResumed(
            lost=0, seconds_before=files.clock.elapsed(), budgets=_budgets(settings)
        )
    )


def raised_budgets(files: RunFiles, settings: Settings) -> list[str]:
    """Budgets that are higher now than in any session of the run before."""
    had = _budgets(files.directory.info.settings)
    for event in files.journal.replay():
        if isinstance(event, RunResumed):
            for name, value in event.budgets.items():
                had[name] = max(value, had.get(name, value))
    now = _budgets(settings)
    return [name for name, value in now.items() if value > had.get(name, inf)]


def _budgets(settings: Settings | Mapping[str, Any]) -> dict[str, float]:
    if isinstance(settings, Settings):
        settings = settings.model_dump(include=set(BUDGETS))
    found = {name: settings.get(name) for name in BUDGETS}
    return {name: float(value) for name, value in found.items() if value is not None}


def changed(
    files: RunFiles, schema: ArtifactSchema, artifact: Path, known: Collection[TreeHash]
) -> str:
    """What the working tree has that the run does not know; "" where it is as known.

    Args:
        files: of the run.
        schema: which files count.
        artifact: in the working tree.
        known: trees of the run's candidates, one of which may have been applied.
    """
    try:
        now = read_artifact(artifact, schema, MemoryBlobs())
    except ArtifactProblem as problem:
        return (
            f"{schema.directory} cannot be read as it is now ({visible(str(problem))})"
        )
    if now.hash == files.start or now.hash in known:
        return ""
    paths = [path for path, _ in changes(files.trees.get(files.start), now)]
    return f"{schema.directory} has changed since the run began ({some_of(paths)})"


def resume_warnings(
    files: RunFiles, schema: ArtifactSchema, artifact: Path
) -> Iterator[str]:
    """Say that a run goes on from files that are no longer in the working tree."""
    if not files.resumed:
        return
    rows = files.journal.replay()
    known = {row.tree for row in rows if isinstance(row, CandidateRecorded)}
    text = changed(files, schema, artifact, known)
    if text:
        yield (
            f"{text}. The run goes on from the files that it began with; to start from "
            "those that are there now, leave out --evo-resume"
        )


def _with_reached(
    fingerprints: dict[CaseId, str], files: RunFiles, rootdir: Path
) -> dict[CaseId, str]:
    """Add what the cases read of the project at the baseline, as it is now."""
    reached = ReachedFiles(rootdir)
    for row in files.journal.replay():
        if isinstance(row, IterationClosed):
            break
        if not isinstance(row, RolloutRecorded) or row.trace is None:
            continue
        if row.purpose is not Purpose.BASELINE or row.case not in fingerprints:
            continue
        digest = reached.digest(files.rollouts.detail(row.trace).project_files)
        collected = fingerprints[row.case].partition("+")[0]
        fingerprints[row.case] = f"{collected}+{digest}" if digest else collected
    return fingerprints


def check_fingerprints(
    files: RunFiles, marks: Sequence[CaseMark], rootdir: Path
) -> None:
    """Refuse to mix rollouts of two versions of the suite.

    Raises:
        SuiteProblem: a case of the run is gone or was changed since.
    """
    frozen = next(
        (row for row in files.journal.replay() if isinstance(row, CasesFrozen)), None
    )
    if frozen is None:
        return
    now = {mark.id: mark.fingerprint for mark in marks}
    now = _with_reached(now, files, rootdir)
    gone = [case.id for case in frozen.cases if case.id not in now]
    edited = [
        case.id
        for case in frozen.cases
        if case.id in now and now[case.id] != case.fingerprint
    ]
    if not gone and not edited:
        return
    lines = [f"  gone: {case}" for case in gone[:_SHOWN]]
    lines += [f"  changed: {case}" for case in edited[:_SHOWN]]
    raise SuiteProblem(
        f"the suite is not the one that run {files.directory.id} was begun with: "
        f"{count(len(gone), 'case')} gone and {len(edited)} changed (parameters, "
        "source, conftest or fingerprint_env):\n"
        + "\n".join(lines)
        + "\nStart a new run: pytest --evolve"
    )
