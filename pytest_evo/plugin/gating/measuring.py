"""Runs what the gate's planner asks for, until it asks for nothing more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from typing import Protocol

from pytest_evo.errors import EvoError
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import Observation
from pytest_evo.models import CandidateId
from pytest_evo.models import CaseId
from pytest_evo.models import COPY_CHANGED
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import START
from pytest_evo.models import TreeHash
from pytest_evo.protocols import Evaluator
from pytest_evo.protocols import Request

CANDIDATES: Mapping[Arm, CandidateId] = {Arm.BASE: "base", Arm.HEAD: "head"}
LARGEST_REQUEST = 8
"""Cases in one request at most: the plan may end after any of them."""
_MESSAGE = 500


class Plan(Protocol):
    """What a measurement runs: the gate's planner, or that of a baseline."""

    def next(self, limit: int = 64) -> tuple[Ask, ...]:
        """Further rollouts; empty while what is awaited decides, and at the end."""

    def record(self, observation: Observation) -> None:
        """Take one rollout that was asked for."""


class StaleRead(EvoError):
    """A case read the working tree's artifact while another version was meant."""


@dataclass(slots=True)
class CaseFiles:
    """What the rollouts of a case have read; ``reach`` None: perhaps anything."""

    reach: tuple[str, ...] | None = ()
    project: set[str] = field(default_factory=set)

    def add(self, rollout: Rollout) -> None:
        """Take what one more rollout has read."""
        known = self.reach is not None and rollout.reach.exact
        files = {*(self.reach or ()), *rollout.reach.files}
        self.reach = tuple(sorted(files)) if known else None
        if rollout.detail is not None:
            self.project.update(rollout.detail.project_files)


@dataclass(frozen=True, slots=True)
class Measured:
    """What came back, in its order; details only where a report shows them."""

    observations: list[Observation] = field(default_factory=list)
    latest: dict[CaseId, Detail] = field(default_factory=dict)  # of the head
    failed: dict[CaseId, Detail] = field(default_factory=dict)  # of the head
    project_files: set[str] = field(default_factory=set)
    reached: set[str] = field(default_factory=set)  # files of the artifact
    unknown: set[CaseId] = field(default_factory=set)  # may have read anything
    files: dict[CaseId, CaseFiles] = field(default_factory=dict)  # where asked for


class Measurement:
    """Drives one planner over an evaluator."""

    def __init__(
        self,
        planner: Plan,
        evaluator: Evaluator,
        trees: Mapping[Arm, TreeHash],
        *,
        in_place: bool,
        unreached: Collection[CaseId] = (),
        changed: Collection[str] = (),
        notice: Callable[[int], None] = lambda count: None,
        keep_files: bool = False,
    ) -> None:
        """Prepare.

        Args:
            planner: says what to run.
            evaluator: runs it.
            trees: the version of each arm.
            in_place: whether a version stands at the artifact's own path, so that a
                case that reads a fixed path reads the right one.
            unreached: cases that are not supposed to open a changed file.
            changed: those files.
            notice: called with how many rollouts have come back.
            keep_files: whether to note what each case reads.
        """
        self._planner = planner
        self._evaluator = evaluator
        self._trees = trees
        self._unreached = frozenset(unreached)
        self._changed = frozenset(changed)
        self._in_place = in_place
        self._notice = notice
        self._keep_files = keep_files
        self._requests = 0
        self._names = dict(CANDIDATES)
        if Arm.BASE not in trees:
            self._names[Arm.HEAD] = START  # nothing shows what the suite itself does
        self._usual: dict[CaseId, set[str]] = {}
        self._held: list[tuple[Ask, Rollout]] = []
        self.measured = Measured()

    async def run(self, cases: int) -> None:
        """Run to the end of the plan; ``cases`` is how many there are.

        Raises:
            StaleRead: rollouts were not of the version that was meant.
            WorkersLost: no worker is left.
        """
        width = self._evaluator.capacity() + 2
        size = max(1, min(LARGEST_REQUEST, cases // (2 * width)))
        open_requests: set[asyncio.Task[None]] = set()
        try:
            while True:
                while len(open_requests) < width:
                    asks = self._planner.next(2 * size)
                    if not asks:
                        break
                    for part in _requests(asks):
                        open_requests.add(asyncio.create_task(self._send(part)))
                if not open_requests:
                    if not self._held:
                        return
                    self._release()
                    continue
                done, open_requests = await asyncio.wait(
                    open_requests, return_when=asyncio.FIRST_COMPLETED
                )
                await asyncio.gather(*done)  # hears of all that failed at once
        finally:
            for task in open_requests:
                task.cancel()
            await asyncio.gather(*open_requests, return_exceptions=True)

    async def _send(self, asks: Sequence[Ask], alone: bool = False) -> None:
        """Run asks of one arm together; those that never began again, by themselves."""
        self._requests += 1
        arm = asks[0].arm
        waiting = {(ask.case, ask.repeat): ask for ask in asks}
        request = Request(
            f"gate.{self._requests}",
            self._names[arm],
            self._trees[arm],
            tuple(waiting),
            # of these, what nobody can score is an error of the suite
            Purpose.BASELINE if self._is_given(arm) else Purpose.VALIDATION,
            asks[0].attempt,
        )
        unstarted = []
        async for rollout in self._evaluator.submit(request):
            ask = waiting.pop((rollout.case, rollout.repeat))
            if not rollout.started and not alone:
                unstarted.append(ask)
            else:
                self._record(ask, rollout)
        for ask in unstarted:
            await self._send([ask], alone=True)

    def _is_given(self, arm: Arm) -> bool:
        """Whether a version is what others are held against."""
        return arm is Arm.BASE or self._keep_files

    def _record(self, ask: Ask, rollout: Rollout) -> None:
        if rollout.reach.stale and not self._in_place:
            raise StaleRead(rollout.reach.stale[0])
        if ask.arm is Arm.BASE:
            self._usual.setdefault(ask.case, set()).update(_violations(rollout))
        if _violations(rollout) and ask.case not in self._usual:
            self._held.append((ask, rollout))  # does the base do that too?
            return
        self._take(ask, rollout)
        if ask.arm is Arm.BASE:
            self._release(ask.case)

    def _release(self, case: CaseId | None = None) -> None:
        """Record what was held: of one case, or of all if the base says no more."""
        held, self._held = self._held, []
        for ask, rollout in held:
            if case in (None, ask.case):
                self._take(ask, rollout)
            else:
                self._held.append((ask, rollout))

    def _take(self, ask: Ask, rollout: Rollout) -> None:
        observation = self._observed(ask, rollout)
        self._keep(ask, rollout, observation.outcome is not Outcome.PASSED)
        self.measured.observations.append(observation)
        self._planner.record(observation)
        self._notice(len(self.measured.observations))

    def _keep(self, ask: Ask, rollout: Rollout, failed: bool) -> None:
        measured, detail = self.measured, rollout.detail
        measured.reached.update(rollout.reach.files)
        if not rollout.reach.exact:
            measured.unknown.add(ask.case)
        if self._keep_files:
            measured.files.setdefault(ask.case, CaseFiles()).add(rollout)
        if detail is None:
            return
        measured.project_files.update(detail.project_files)
        if ask.arm is Arm.HEAD:
            measured.latest[ask.case] = detail
            if failed:
                measured.failed[ask.case] = detail

    def _observed(self, ask: Ask, rollout: Rollout) -> Observation:
        outcome, score = self._judged(ask, rollout)
        surprise = False
        if ask.case in self._unreached:
            reach = rollout.reach
            surprise = not reach.exact or not self._changed.isdisjoint(reach.files)
        return Observation(
            case=ask.case,
            arm=ask.arm,
            repeat=ask.repeat,
            stage=ask.stage,
            outcome=outcome,
            score=score,
            attempt=ask.attempt,
            seconds=rollout.seconds,
            tokens=rollout.usage.tokens,
            usd=rollout.usage.usd,
            metrics=rollout.metrics,
            network=rollout.reach.network,
            processes=rollout.reach.processes,
            surprise=surprise,
            message=_message(rollout),
        )

    def _judged(self, ask: Ask, rollout: Rollout) -> tuple[Outcome, float | None]:
        """What a rollout counts as: one that breaks a rule the base keeps has failed.

        ``started`` is false only where even a process of its own never began.
        """
        broken = _violations(rollout) - self._usual.get(ask.case, set())
        if broken and ask.arm is Arm.HEAD:
            return Outcome.FAILED, 0.0
        if not rollout.started:
            return Outcome.CRASHED, None
        if rollout.outcome is Outcome.MISSING:
            return Outcome.MISSING, 0.0
        scored = rollout.outcome in (Outcome.PASSED, Outcome.FAILED)
        return rollout.outcome, rollout.score if scored else None


def _violations(rollout: Rollout) -> set[str]:
    """The rules that were broken; writing into a throw-away copy breaks none here."""
    told = rollout.violation
    if told is None or told.startswith(COPY_CHANGED):
        return set()
    return set(told.split("; "))


def _requests(asks: Sequence[Ask]) -> list[list[Ask]]:
    """Asks that may share a process: same arm and attempt, no case twice.

    The arms stay side by side, as they were asked for, so that whatever changes with
    time changes for both.
    """
    groups: dict[tuple[Arm, int, int], list[Ask]] = {}
    for ask in asks:
        number = 0
        while any(
            other.case == ask.case
            for other in groups.get((ask.arm, ask.attempt, number), ())
        ):
            number += 1
        groups.setdefault((ask.arm, ask.attempt, number), []).append(ask)
    return list(groups.values())


def _message(rollout: Rollout) -> str:
    if _violations(rollout):
        return str(rollout.violation)[:_MESSAGE]
    phases = rollout.detail.phases if rollout.detail is not None else ()
    told = [phase for phase in phases if phase.outcome != "passed"] or phases
    text = next((phase.message for phase in told if phase.message.strip()), "")
    return " ".join(text.split())[:_MESSAGE]
