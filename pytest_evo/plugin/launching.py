"""Starts the test processes of a worker, in whatever isolation a request asks for."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import EvoError
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Usage
from pytest_evo.plugin import messages
from pytest_evo.plugin.environment import conceal
from pytest_evo.plugin.forking import Child
from pytest_evo.plugin.forking import ForkedChild
from pytest_evo.plugin.forking import ForkExit
from pytest_evo.plugin.forking import Place
from pytest_evo.plugin.forking import settle
from pytest_evo.plugin.forking import Surroundings
from pytest_evo.plugin.frames import frame_pair
from pytest_evo.plugin.isolation.candidates import CandidateCache
from pytest_evo.plugin.isolation.fresh import describe_session
from pytest_evo.plugin.isolation.fresh import FreshTask
from pytest_evo.plugin.isolation.fresh import Zygote
from pytest_evo.plugin.isolation.fresh import ZygoteExit
from pytest_evo.plugin.isolation.workspace import Workspace
from pytest_evo.plugin.isolation.workspace import Workspaces
from pytest_evo.plugin.judges import Judges
from pytest_evo.plugin.launcher import Subject
from pytest_evo.plugin.launcher import Todo
from pytest_evo.plugin.messages import Mode
from pytest_evo.plugin.orphans import Orphans
from pytest_evo.plugin.rawrollout import RawRollout
from pytest_evo.plugin.room import no_room
from pytest_evo.plugin.scratch import give_back


class CaseLauncher:
    """Makes copies of candidates and test processes that see them."""

    def __init__(
        self,
        session: pytest.Session,
        items: Mapping[CaseId, pytest.Item],
        settings: messages.WorkerSettings,
        directory: Path,
        memory: Path,
        *,
        shared: bool = False,
        in_child: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare.

        Args:
            session: that has collected.
            items: by case.
            settings: of this worker.
            directory: for everything that is made here; removed at the end.
            memory: the same for what lives for one request and is small.
            shared: whether this process has children of its own too.
            in_child: called in every forked child.
        """
        self._session = session
        self._items = items
        self._settings = settings
        self._directory = directory
        self._memory = memory
        (directory / "scratch").mkdir()
        self._project = session.config.rootpath
        self._artifact = self._project / settings.artifact
        self._files = _selected(self._artifact, settings.files)
        self._in_child = in_child
        self._cache = CandidateCache(directory / "candidates", memory / "copies")
        self._judges = Judges(
            session,
            self._artifact,
            settings,
            # what a rollout in a mount of its own may not see
            (*map(str, self._cache.folders), str(directory / "workspaces")),
        )
        conceal(settings.hidden)
        self._forked: ForkedChild | None = None
        self._zygote: Zygote | None = None
        self._workspaces: dict[Path, Workspaces] = {}
        self.notices = self._judges.notices
        self._count = 0
        self._exits: dict[int, int] = {}
        self._orphans = Orphans(shared=shared)

    @property
    def token(self) -> str:
        """What every process that a test process starts has in its environment."""
        return self._orphans.token

    def trouble(self) -> str | None:
        """Why nothing can be started here any more; None if it can."""
        return no_room(self._directory)

    def missing(self, run: messages.Run) -> Sequence[str]:
        """Blobs that the worker does not have."""
        return self._cache.missing(run.manifest)

    def add(self, blob: messages.Blob) -> None:
        """Keep a blob."""
        self._cache.add(blob.id, blob.payload)

    def configure(self, message: messages.Configure) -> None:
        """Take over settings that became known late, like the run's id."""
        known = messages.plain(self._settings)
        known.update(
            (name, value) for name, value in message.settings.items() if name in known
        )
        self._settings = messages.read(messages.WorkerSettings, known)

    def knows(self, run: messages.Run, case: CaseId) -> bool:
        """Whether the case can be run; a fresh process collects for itself."""
        return run.mode is not Mode.FORK or case in self._items

    def launch(
        self, run: messages.Run, todo: Sequence[Todo], in_child: Callable[[], None]
    ) -> Subject:
        """Start a process for these runs."""
        self._count += 1
        scratch = self._directory / "scratch" / str(self._count)
        log = self._roomy() / f"log-{self._count}"
        if run.mode is Mode.WORKSPACE:
            return self._launch_workspace(run, todo, scratch, log)
        candidate = self._cache.copy(run.manifest)

        def release() -> str | None:
            violation = self._cache.violation(candidate, run.manifest)
            self._cache.remove(candidate)
            return self._judges.with_changes(run, violation)

        place = self._place(candidate, scratch, log)
        try:
            if run.mode is Mode.FRESH:
                return self._launch_fresh(run, todo, place, release)
            return self._launch_fork(run, todo, place, release, in_child)
        except BaseException:
            self._cache.remove(candidate)
            raise

    def _roomy(self) -> Path:
        return self._directory if no_room(self._memory) else self._memory

    def sweep(self, live: Sequence[Subject], dead: Subject) -> None:
        """Kill what a dead test process left behind."""
        self._orphans.sweep(live, dead)

    def report(
        self,
        outcome: Outcome,
        seconds: float,
        message: str,
        log: str,
        usage: Usage = NO_USAGE,
    ) -> bytes:
        """The payload of a rollout that its process could not report."""
        sections = (("Output of the test process", log),) if log else ()
        phase = Phase("call", outcome.value, seconds, message, sections=sections)
        raw = RawRollout(
            outcome=outcome,
            score=None,
            seconds=seconds,
            usage=usage,
            detail=Detail((phase,)),
        )
        return json.dumps(raw.to_plain()).encode()

    def close(self) -> None:
        """End the zygote, and remove all files of this worker."""
        if self._zygote is not None:
            self._zygote.close()
        for workspaces in self._workspaces.values():
            workspaces.close()
        for directory in (self._directory, self._memory):
            give_back(directory)

    # -- where and with what --------------------------------------------------------

    def _place(self, candidate: Path, scratch: Path, log: Path) -> Place:
        return Place(
            candidate=candidate,
            artifact=self._artifact,
            project=self._project,
            scratch=scratch,
            log=log,
            files=self._files,
            shield=self._judges.shield(self._settings.covered),
        )

    def _surroundings(self) -> Surroundings:
        settings = self._settings
        return Surroundings(
            self._orphans.token, settings.run, settings.hidden, settings.allow
        )

    # -- fork ----------------------------------------------------------------------

    def _launch_fork(
        self,
        run: messages.Run,
        todo: Sequence[Todo],
        place: Place,
        release: Callable[[], str | None],
        in_child: Callable[[], None],
    ) -> Child:
        if self._forked is None:
            settle(self._items.values())
            self._forked = ForkedChild(self._session, self._items)
        reader, descriptor = frame_pair()

        def let_go() -> None:
            in_child()
            reader.close()
            if self._zygote is not None:
                os.close(self._zygote.fileno())
            self._in_child()

        try:
            pid = self._forked.start(
                run, todo, place, self._surroundings(), descriptor, let_go
            )
        except BaseException:
            reader.close()
            raise
        finally:
            os.close(descriptor)
        return Child(pid, reader, place, ForkExit(pid), release)

    # -- fresh and workspace -------------------------------------------------------

    def _launch_workspace(
        self, run: messages.Run, todo: Sequence[Todo], scratch: Path, log: Path
    ) -> Child:
        workspaces = self._copies(run)
        workspace = workspaces.take(run.manifest)

        def release() -> str | None:
            violation = workspaces.violation(
                workspace, run.manifest, self._judges.names
            )
            workspaces.give_back(workspace)
            return self._judges.with_changes(run, violation)

        place = self._place(workspace.artifact, scratch, log)
        try:
            return self._launch_fresh(run, todo, place, release, workspace)
        except BaseException:
            workspaces.give_back(workspace)
            raise

    def _copies(self, run: messages.Run) -> Workspaces:
        """Working copies of the project that belongs around a candidate."""
        project = self._project
        if self._settings.base_project and run.candidate == messages.BASE:
            project = Path(self._settings.base_project)
        if project not in self._workspaces:
            folder = self._directory / "workspaces" / str(len(self._workspaces))
            self._workspaces[project] = Workspaces(
                folder,
                project,
                project / self._settings.artifact,
                self._cache,
                self._files,
            )
        return self._workspaces[project]

    def _launch_fresh(
        self,
        run: messages.Run,
        todo: Sequence[Todo],
        place: Place,
        release: Callable[[], str | None],
        workspace: Workspace | None = None,
    ) -> Child:
        zygote = self._started_zygote()
        mounted = run.mount and workspace is None
        seen_at = place.artifact if mounted else place.candidate
        task = FreshTask(
            runs=tuple((case, repeat) for case, repeat, _ in todo),
            candidate=str(place.candidate),
            artifact=str(place.artifact),
            project=str(place.project),
            mount=mounted,
            files=place.files,
            shield=place.shield,
            workspace=str(workspace.root) if workspace else None,
            environment=self._surroundings().variables(seen_at),
            seed=run.seed,
            basetemp=str(place.scratch),
            log=str(place.log),
        )
        reader, descriptor = frame_pair()
        try:
            pid = zygote.fork(task, descriptor)
        except (OSError, EvoError):
            reader.close()
            self._drop_zygote()
            raise
        finally:
            os.close(descriptor)
        return Child(pid, reader, place, ZygoteExit(zygote, pid, self._exits), release)

    def _started_zygote(self) -> Zygote:
        if self._zygote is None:
            self._zygote = Zygote.start(
                describe_session(self._session.config),
                environment=self._surroundings().variables(self._artifact),
            )
            self._orphans.spare(self._zygote.pid)
        return self._zygote

    def _drop_zygote(self) -> None:
        """Have the next request start a new one."""
        zygote, self._zygote = self._zygote, None
        if zygote is not None:
            zygote.close()


def _selected(artifact: Path, include: Sequence[str]) -> tuple[str, ...]:
    """The names that ``include`` selects in the project's own artifact."""
    if not include:
        return ()
    tree = snapshot(artifact, MemoryBlobs(), include=include)
    return tuple(entry.path for entry in tree.entries if entry.kind != "dir")
