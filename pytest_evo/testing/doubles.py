"""Working stand-ins for the seams: in memory, deterministic, quick.

They are for tests of an engine, a strategy or a proposer that shall neither start
workers nor touch a disk.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypeAlias

from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import ProposerExhausted
from pytest_evo.evidence import Evidence
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Detail
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Proposal
from pytest_evo.models import Rollout
from pytest_evo.models import TreeHash
from pytest_evo.protocols import Edit
from pytest_evo.protocols import KnobValue
from pytest_evo.protocols import ProposalKey
from pytest_evo.protocols import ProposalRequest
from pytest_evo.protocols import Request

Files: TypeAlias = Mapping[str, bytes]
"""An artifact in memory: path -> content."""
Change: TypeAlias = Callable[[dict[str, bytes]], Files]
"""Makes the edited files out of the base's; may change what it is given."""
Answer: TypeAlias = "float | Outcome | Rollout"


class Killed(Exception):
    """The double was told to die here, as a controller does that is killed."""


class ManualClock:
    """A clock that goes when it is told to."""

    def __init__(self, seconds: float = 0.0) -> None:
        self._seconds = seconds

    def elapsed(self) -> float:
        """Seconds the run has been running."""
        return self._seconds

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._seconds += seconds


class MemoryWorkshop:
    """A workshop whose trees are dictionaries and whose workspaces are only names.

    A proposer changes a workspace with :meth:`edit`, not through the file system.

    Args:
        knobs: reads the declared knobs out of files.
        check: refuses edited files by raising ``ProposalRefused``.
    """

    def __init__(
        self,
        knobs: Callable[[Files], Sequence[KnobValue]] = lambda files: (),
        check: Callable[[Files], None] = lambda files: None,
    ) -> None:
        self._knobs = knobs
        self._check = check
        self._trees: dict[TreeHash, dict[str, bytes]] = {}
        self._open: dict[Path, dict[str, bytes]] = {}
        self.opened: list[tuple[ProposalKey, tuple[Node, ...], tuple[Case, ...]]] = []
        """Every workspace with the evidence that was meant for it."""

    def add(self, files: Files) -> TreeHash:
        """Store files as a tree."""
        digest = hashlib.sha256()
        for path, content in sorted(files.items()):
            digest.update(f"{len(path)} {path} {len(content)} ".encode() + content)
        tree = digest.hexdigest()
        self._trees[tree] = dict(files)
        return tree

    def files(self, tree: TreeHash) -> Files:
        """What a tree holds."""
        return self._trees[tree]

    def edit(self, workspace: Path, change: Change) -> None:
        """Change the files of an open workspace."""
        self._open[workspace] = dict(change(self._open[workspace]))

    def open(
        self,
        key: ProposalKey,
        base: TreeHash,
        nodes: Sequence[Node],
        cases: Sequence[Case],
        evidence: Evidence | None = None,
    ) -> Path:
        """Make a workspace; the path that is returned does not exist."""
        workspace = self._path(key)
        if workspace in self._open:
            raise ValueError(f"the workspace of {key} is open already")
        self._open[workspace] = dict(self._trees[base])
        self.opened.append((key, tuple(nodes), tuple(cases)))
        return workspace

    def knobs(self, tree: TreeHash) -> tuple[KnobValue, ...]:
        """The values that the declared knobs have in a tree."""
        return tuple(self._knobs(self._trees[tree]))

    def close(self, key: ProposalKey, base: TreeHash, answer: Proposal | str) -> Edit:
        """Store the edited files; nothing changed is refused."""
        files = self._open.pop(self._path(key))
        self._check(files)
        changes = _changes(self._trees[base], files)
        if not changes:
            raise ProposalRefused("nothing changed: edit a file of the artifact")
        told = {}
        if isinstance(answer, Proposal):
            told = {entry.file: entry for entry in answer.changelog}
        general = answer if isinstance(answer, str) else ""
        return Edit(
            self.add(files),
            tuple(
                replace(told[path], change=change)
                if path in told
                else ChangelogEntry(path, general or "no reason given", change)
                for path, change in changes.items()
            ),
        )

    def discard(self, key: ProposalKey) -> None:
        """Forget a workspace whose proposal failed."""
        self._open.pop(self._path(key), None)

    def size(self, tree: TreeHash) -> int:
        """Bytes of all files of a tree."""
        return sum(map(len, self._trees[tree].values()))

    def empty(self) -> TreeHash:
        """A tree without any file."""
        return self.add({})

    def forget_workspaces(self) -> None:
        """Lose what was open, as a killed session does; trees stay."""
        self._open.clear()

    @property
    def left_open(self) -> int:
        """Workspaces that were neither closed nor discarded."""
        return len(self._open)

    @staticmethod
    def _path(key: ProposalKey) -> Path:
        return Path("/memory") / f"{key.iteration}-{key.step}-{key.attempt}"


def _changes(before: Files, after: Files) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in sorted({*before, *after}):
        if path not in before:
            found[path] = "added"
        elif path not in after:
            found[path] = "deleted"
        elif before[path] != after[path]:
            found[path] = "modified"
    return found


class ScriptedProposer:
    """Answers with prepared edits on a :class:`MemoryWorkshop`.

    Args:
        workshop: where the edits are made.
        edits: edit number ``iteration + step - 1`` (counted from 0) answers step
            ``step`` of an iteration, so the answer depends on nothing but its key; or
            one function that gets the request and returns the edit.
        pause: awaited before each answer, to shuffle the order of slots.
    """

    def __init__(
        self,
        workshop: MemoryWorkshop,
        edits: Sequence[Change] | Callable[[ProposalRequest], Change],
        pause: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._workshop = workshop
        self._edits = edits
        self._pause = pause
        self.requests: list[ProposalRequest] = []
        """Everything that was asked, in the order of asking."""

    async def propose(self, request: ProposalRequest) -> Proposal:
        """Make the prepared edit."""
        self.requests.append(request)
        if self._pause is not None:
            await self._pause()
        change = self._change(request)
        self._workshop.edit(request.workspace, change)
        name = getattr(change, "__name__", "edit")
        return Proposal(data={"edit": name})

    def _change(self, request: ProposalRequest) -> Change:
        if callable(self._edits):
            return self._edits(request)
        number = request.iteration + request.step - 1
        if number < len(self._edits):
            return self._edits[number]
        if request.step == 0:
            raise ProposerExhausted(f"all {len(self._edits)} edits have been made")
        raise ProposalRefused(f"there is no edit {number + 1}")


@dataclass(slots=True)
class _Turn:
    """Seeded pauses that shuffle in which order concurrent requests go on."""

    rng: Random | None

    async def wait(self) -> None:
        for _ in range(self.rng.randrange(5) if self.rng else 0):
            await asyncio.sleep(0)


class FakeEvaluator:
    """Judges candidates with a function instead of running tests.

    Args:
        judge: (files, case, repeat) -> score, outcome or a whole rollout. A score of
            1 is passed, any other failed; an outcome other than these two has none.
        files: tree hash -> files, as :meth:`MemoryWorkshop.files`; without it ``judge``
            gets the tree hash.
        width: how many requests can run at the same time.
        seed: shuffles the order in which concurrent rollouts end; None: no pauses.
        fault: (request, case, repeat) -> an infrastructure outcome, or a whole
            rollout, that takes the place of the judgement, or None. An outcome
            ``lost`` comes as not started.
        kill_after: raise :class:`Killed` instead of delivering one more rollout.
    """

    def __init__(
        self,
        judge: Callable[..., Answer],
        *,
        files: Callable[[TreeHash], Files] | None = None,
        width: int = 2,
        seed: int | None = None,
        fault: Callable[[Request, CaseId, int], Outcome | Rollout | None] | None = None,
        kill_after: int | None = None,
    ) -> None:
        self._judge = judge
        self._files = files
        self._width = width
        self._turn = _Turn(None if seed is None else Random(seed))
        self._fault = fault
        self._left = kill_after
        self._cancelled: set[str] = set()
        self._running = 0
        self.requests: list[Request] = []
        """Every request, in the order of submission."""
        self.executed: list[tuple[TreeHash, CaseId, int]] = []
        """Every rollout that was delivered as started, in the order of its end."""
        self.most_running = 0

    async def submit(self, request: Request) -> AsyncIterator[Rollout]:
        """Stream one rollout per run, in the order of the request."""
        self.requests.append(request)
        self._running += 1
        self.most_running = max(self.most_running, self._running)
        try:
            for case, repeat in request.runs:
                await self._turn.wait()
                if self._left is not None:
                    if self._left <= 0:
                        raise Killed(f"as asked, before {case} [{repeat}]")
                    self._left -= 1
                rollout = self._rollout(request, case, repeat)
                if rollout.started:
                    self.executed.append((request.tree, case, repeat))
                yield rollout
        finally:
            self._running -= 1

    async def cancel(self, request_id: str) -> None:
        """Let the rest of a request come as lost."""
        self._cancelled.add(request_id)

    def capacity(self) -> int:
        """How many requests can run at the same time."""
        return self._width

    def _rollout(self, request: Request, case: CaseId, repeat: int) -> Rollout:
        answer: Answer | None = None
        if request.id in self._cancelled:
            answer = Outcome.LOST
        elif self._fault is not None:
            answer = self._fault(request, case, repeat)
        if answer is None:
            tree = request.tree
            subject = tree if self._files is None else self._files(tree)
            answer = self._judge(subject, case, repeat)
        if isinstance(answer, Rollout):
            return replace(
                answer,
                candidate=request.candidate,
                tree=request.tree,
                case=case,
                repeat=repeat,
                attempt=request.attempt,
            )
        if isinstance(answer, Outcome):
            outcome = answer
            score = {Outcome.PASSED: 1.0, Outcome.FAILED: 0.0}.get(answer)
        else:
            score = float(answer)
            outcome = Outcome.PASSED if score >= 1 else Outcome.FAILED
        return Rollout(
            candidate=request.candidate,
            tree=request.tree,
            case=case,
            repeat=repeat,
            outcome=outcome,
            score=score,
            seconds=0.001,
            attempt=request.attempt,
            worker="memory",
            started=outcome is not Outcome.LOST,
        )


class MemoryRollouts:
    """A rollout store that keeps details in a dictionary."""

    def __init__(self) -> None:
        self._details: dict[str, Detail] = {}

    def keep(self, rollout: Rollout) -> Rollout:
        """Store ``rollout.detail``; return the rollout with ``trace`` set instead."""
        if rollout.detail is None:
            return rollout
        trace = f"{rollout.tree}/{rollout.case}/{rollout.repeat}-{rollout.attempt}"
        self._details[trace] = rollout.detail
        return replace(rollout, detail=None, trace=trace)

    def detail(self, trace: str) -> Detail:
        """Read a detail back by the name that ``keep`` gave it."""
        return self._details[trace]
