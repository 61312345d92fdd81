"""Where runs are kept: new ones are made there, old ones found."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import fields
from datetime import datetime
from datetime import timedelta
from datetime import UTC
from pathlib import Path
from random import Random
from typing import Any

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.store.blobs import DirectoryBlobs
from pytest_evo.store.disk import beginning
from pytest_evo.store.disk import write_atomic
from pytest_evo.store.lock import RunLock
from pytest_evo.store.recovery import OPEN
from pytest_evo.store.run_info import Project
from pytest_evo.store.run_info import read_info
from pytest_evo.store.run_info import RunInfo
from pytest_evo.store.run_info import write_info
from pytest_evo.store.trees import TreeFiles

RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{4}")
_STAMP = "%Y%m%d-%H%M%S"

_LEAST_FREE = 1_000_000  # bytes without which no run is begun
_SECRET = re.compile(
    r"(?i)(api_?key|access_?key|private_?key|secret|passw|credential|authoriz|_token$"
    r"|^token$)"
)
_README = """\
# Runs of pytest-evo

Each folder below `runs/` is one `pytest --evolve`. Look at them with `pytest-evo runs`
and `pytest-evo show last`; go on with one with `pytest --evolve --evo-resume=last`.

This folder is no part of your project's history: it can be removed when no run is going
on and none of its results is needed any more.
"""
_TAG = """\
Signature: 8a477f597d28d172789f06886806bc55
# This file says that this directory can be left out of backups.
# See https://bford.info/cachedir/
"""


@dataclass(frozen=True, slots=True)
class NewRun:
    """What a run is about. Secrets among the settings are not written down."""

    project: Project
    package_version: str
    seed: int
    settings: Mapping[str, Any]
    artifact: str
    python: str
    pytest: str
    start_tree: str | None = None


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The folder of one run."""

    path: Path
    info: RunInfo

    @property
    def id(self) -> str:
        """The run's id, which is the folder's name."""
        return self.path.name

    def lock(self, now: datetime) -> RunLock:
        """The right to write here; not yet taken."""
        return RunLock(self.path, now)

    def blobs(self) -> DirectoryBlobs:
        """The file contents of all candidates."""
        return DirectoryBlobs(self.path / "blobs")

    def trees(self) -> TreeFiles:
        """The manifests of all candidates."""
        return TreeFiles(self.path / "trees")

    def update(self, **changes: Any) -> RunDirectory:
        """Replace fields of ``run.json``, at once.

        Raises:
            RunDirectoryProblem: the disk refuses.
        """
        info = RunInfo.model_validate({**self.info.model_dump(), **changes})
        write_info(self.path, info)
        return RunDirectory(self.path, info)


def identify(rootdir: Path, root: Path) -> Project:
    """Name a project so that its runs are found again and no other's are taken.

    Where the runs are kept inside the project the name holds wherever both are moved
    to; runs of several projects kept in one place are told apart by where those are.
    """
    rootdir, root = rootdir.resolve(), root.resolve()
    if root.is_relative_to(rootdir):
        key = f"{rootdir.name}\0{root.relative_to(rootdir).as_posix()}"
    else:
        key = str(rootdir)
    digest = hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()
    return Project(name=rootdir.name, id=digest[:12])


def new_run_id(now: datetime, rng: Random) -> str:
    """An id that sorts by time: ``20261129-153012-a1b2``."""
    return f"{now.astimezone(UTC):{_STAMP}}-{rng.randrange(0x10000):04x}"


def create(root: Path, new: NewRun, now: datetime, rng: Random) -> RunDirectory:
    """Make the directory of a new run, whole or not at all.

    Args:
        root: where all runs are kept, usually ``.evo``; made if missing.
        new: what the run is about.
        now: when it begins.
        rng: only tells runs of one second apart; not the run's own randomness.

    Raises:
        RunDirectoryProblem: the place cannot be written to or is full.
    """
    with beginning(root):
        return _create(root, new, now, rng)


def _create(root: Path, new: NewRun, now: datetime, rng: Random) -> RunDirectory:
    runs = _make_root(root)
    check_writable(runs)
    facts = {
        **{field.name: getattr(new, field.name) for field in fields(new)},
        "settings": json.loads(json.dumps(_without_secrets(new.settings), default=str)),
    }
    named = _after_all(run_ids(root), now)
    while True:
        info = RunInfo(id=new_run_id(named, rng), created=now, **facts)
        if _place(runs, info):
            return RunDirectory(runs / info.id, info)


def _after_all(ids: Sequence[str], now: datetime) -> datetime:
    """``now``, or a second after the newest run, where the clock has gone back.

    The newest run is found by its id.
    """
    if not ids:
        return now
    try:
        newest = datetime.strptime(ids[-1][:15], _STAMP).replace(tzinfo=UTC)
    except ValueError:  # a folder that somebody has named
        return now
    return max(now, newest + timedelta(seconds=1))


def _place(runs: Path, info: RunInfo) -> bool:
    """Build the folder aside and move it to its name; False if the name is taken."""
    final = runs / info.id
    draft = runs / f".new-{info.id}-{os.getpid()}"
    try:
        draft.mkdir()
        for name in ("candidates", "blobs", "trees", OPEN):
            (draft / name).mkdir()
        write_info(draft, info)
        if final.exists():
            shutil.rmtree(draft)
            return False
        draft.rename(final)
    except OSError:
        shutil.rmtree(draft, ignore_errors=True)
        if final.exists():
            return False  # another controller was faster
        raise
    except RunDirectoryProblem:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return True


def open_existing(root: Path, name: str, project: Project | None) -> RunDirectory:
    """Find a run by its id, or the newest one by ``last``.

    Args:
        root: where all runs are kept.
        name: a run id, or ``last``.
        project: the project that the run has to belong to; None where any will do.

    Raises:
        RunDirectoryProblem: there is no such run, or it is another project's, of a
            newer version, or its ``run.json`` is damaged.
    """
    if name == "last":
        return _last(root, run_ids(root), project)
    return _checked(find_run(root, name), project)


def find_run(root: Path, name: str) -> Path:
    """The directory of a run by its id, or the newest one by ``last``, unread.

    Raises:
        RunDirectoryProblem: there is no such run.
    """
    ids = run_ids(root)
    if name == "last" and ids:
        name = ids[-1]
    if name not in ids:
        raise _no_such_run(root, name, ids)
    return root / "runs" / name


def run_ids(root: Path) -> list[str]:
    """The ids of all runs, oldest first."""
    runs = root / "runs"
    if not runs.is_dir():
        return []
    return sorted(p.name for p in runs.iterdir() if RUN_ID.fullmatch(p.name))


def _last(root: Path, ids: list[str], project: Project | None) -> RunDirectory:
    for name in reversed(ids):
        info = read_info(root / "runs" / name)
        if project is None or info.project.id == project.id:
            return RunDirectory(root / "runs" / name, info)
    others = f" ({len(ids)} of other projects)" if ids else ""
    raise RunDirectoryProblem(
        f"there is no run of this project in {root}{others}. Start one with: "
        "pytest --evolve"
    )


def _checked(path: Path, project: Project | None) -> RunDirectory:
    info = read_info(path)
    if project is not None and info.project.id != project.id:
        raise RunDirectoryProblem(
            f"run {path.name} belongs to the project {info.project.name!r}, this is "
            f"{project.name!r}. Resume it from the directory of that project, or start "
            "a new run here: pytest --evolve"
        )
    return RunDirectory(path, info)


def _no_such_run(root: Path, name: str, ids: list[str]) -> RunDirectoryProblem:
    near = difflib.get_close_matches(name, ids, n=1, cutoff=0.5)
    if not ids:
        hint = "There is none yet: start one with pytest --evolve"
    else:
        hint = f"Did you mean {near[0]}?" if near else f"The newest one is {ids[-1]}."
        hint += " To list them, type: pytest-evo runs"
    return RunDirectoryProblem(f"there is no run {name!r} in {root}. {hint}")


# -- writing ---------------------------------------------------------------------


def check_writable(directory: Path) -> None:
    """Make sure that a directory can be written to and has some room.

    Raises:
        RunDirectoryProblem: it cannot, or has not.
    """
    if hasattr(os, "statvfs"):
        room = os.statvfs(directory)
        free = room.f_bavail * room.f_frsize
        if free < _LEAST_FREE:
            raise RunDirectoryProblem(
                f"the disk that holds {directory} has {free} bytes left; a run needs "
                f"at least {_LEAST_FREE}. Make room there, or choose another place "
                "with: pytest --evolve --evo-run-dir=DIR"
            )
    probe = directory / f".probe-{os.getpid()}"
    write_atomic(probe, b"\0" * 65536)
    with contextlib.suppress(FileNotFoundError):
        probe.unlink()


def _make_root(root: Path) -> Path:
    """Make the folder of all runs, complete with what keeps it out of git."""
    runs = root / "runs"
    try:
        if not root.exists():
            root.parent.mkdir(parents=True, exist_ok=True)
            draft = root.with_name(f"{root.name}.new-{os.getpid()}")
            draft.mkdir()
            try:
                (draft / "runs").mkdir()
                (draft / "README.md").write_text(_README, encoding="utf-8")
                (draft / ".gitignore").write_text("*\n", encoding="utf-8")
                (draft / "CACHEDIR.TAG").write_text(_TAG, encoding="utf-8")
                draft.rename(root)
            finally:
                if draft.exists():
                    shutil.rmtree(draft, ignore_errors=True)
    except OSError:
        if not root.is_dir():  # else another controller was faster
            raise
    runs.mkdir(exist_ok=True)
    return runs


def _without_secrets(value: Any) -> Any:
    """Settings as they may be written down: no value whose name says secret."""
    if isinstance(value, Mapping):
        return {
            str(key): "(not recorded)"
            if _SECRET.search(str(key)) and isinstance(item, str)
            else _without_secrets(item)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(item) for item in value]
    return value
