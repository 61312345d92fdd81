"""The baseline: every case once, noise, reach, splits. The case set is frozen here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace

from pytest_evo.engine.budget import Budget
from pytest_evo.engine.dispatch import Dispatcher
from pytest_evo.engine.dispatch import Work
from pytest_evo.engine.noise import judge_noise
from pytest_evo.engine.noise import sample_for_noise
from pytest_evo.engine.noise import SAMPLED
from pytest_evo.engine.noise import TIMES
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Plan
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.scoring import SCORED
from pytest_evo.engine.setup import BATCH
from pytest_evo.engine.splitting import deal
from pytest_evo.engine.splitting import ENOUGH_FOR_TEST
from pytest_evo.errors import BudgetProblem
from pytest_evo.errors import SuiteProblem
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import CasesFrozen
from pytest_evo.events import Event
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import EPSILON
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.wording import count

PROBED = 20
"""Cases that run once more without the artifact where none seems to reach it."""
_LINES = 15
"""Lines of a case's report that an error shows,"""
_WIDTH = 300
"""and characters of each."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """What the baseline costs, before anything is known of the suite."""

    cases: int
    noise: int
    reserve: int
    search: int

    @property
    def total(self) -> int:
        """Rollouts before the first proposal, and those kept for the end."""
        return self.cases + self.noise + self.reserve


def estimate(marks: Sequence[CaseMark], plan: Plan) -> Estimate:
    """The smallest cost of baseline, noise, reserve and a search worth beginning.

    It holds for a suite that turns out deterministic; a noisy one needs more.
    """
    count = len(marks)
    open_cases = sum(1 for mark in marks if mark.deterministic is None)
    noise = 0 if plan.noise == "none" else (TIMES - 1) * min(SAMPLED, open_cases)
    if plan.splits:
        named = Counter(plan.splits.values())
        train, val, test = (named[split] for split in Split)
    else:
        shares = plan.fractions or (
            (0.4, 0.3, 0.3) if count >= ENOUGH_FOR_TEST else (0.5, 0.5, 0.0)
        )
        train, val, test = (int(share * count) for share in shares)
    batch = max(1, min(plan.batch or BATCH, train))
    search = max(1, val) + plan.least_proposals * batch
    return Estimate(count, noise, test, search)


def check_start_budget(
    limit: int | None, marks: Sequence[CaseMark], plan: Plan
) -> None:
    """Refuse a run that its rollouts cannot pay for, before any is spent.

    Raises:
        BudgetProblem: they do not reach, even for a suite without noise.
    """
    if limit is None:
        return
    need = estimate(marks, plan)
    least = need.total + need.search
    if limit < least:
        raise BudgetProblem(
            f"--budget-rollouts={limit} does not reach for a run: {need.cases} for "
            f"the baseline, {need.noise} to measure noise, {need.reserve} kept for "
            f"the final measurement, and {need.search} for {plan.least_proposals} "
            f"proposals and one validation. Give at least {least}; nothing was run."
        )


class Baseline:
    """Runs the start artifact on everything that was collected."""

    def __init__(
        self, parts: Parts, plan: Plan, budget: Budget, dispatcher: Dispatcher
    ) -> None:
        self._parts = parts
        self._plan = plan
        self._budget = budget
        self._dispatcher = dispatcher
        self._start = Candidate(START, plan.start)

    async def run(self, log: ScopeLog) -> list[Event]:
        """Measure, freeze and return the canonical events of the scope.

        Raises:
            BudgetProblem: the budget cannot score the start once.
            SuiteProblem: no case can be scored, or none reaches the artifact.
        """
        check_start_budget(self._budget.limits.rollouts, self._parts.marks, self._plan)
        ids = [mark.id for mark in self._parts.marks]
        first = await self._measure(self._start, ids, 0, Purpose.BASELINE, log)
        rollouts: dict[CaseId, list[Rollout]] = {row.case: [row] for row in first}
        reached = self._parts.calibrate(first)
        usable, excluded = self._freeze(rollouts, reached)
        await self._check_reach(usable, rollouts, log)
        await self._repeat(usable, rollouts, log)
        noise = judge_noise(
            usable, {case.id: rollouts[case.id] for case in usable}, self._plan.noise
        )
        start = CandidateRecorded(START, None, self._plan.start, Status.START)
        splits = {case.id: case.split for case in usable}
        return [
            CasesFrozen(tuple(usable), tuple(excluded)),
            start,
            *(_with_split(event, splits) for event in log.events),
            noise,
        ]

    async def _measure(
        self,
        candidate: Candidate,
        cases: Sequence[CaseId],
        repeat: int,
        purpose: Purpose,
        log: ScopeLog,
    ) -> list[Rollout]:
        runs = tuple((case, repeat) for case in cases)
        return await self._dispatcher.run(Work(candidate, runs, purpose, 0), log)

    def _freeze(
        self,
        rollouts: Mapping[CaseId, Sequence[Rollout]],
        reached: Mapping[CaseId, str],
    ) -> tuple[list[Case], list[tuple[CaseId, str]]]:
        marks = self._parts.marks
        outcomes = {case: rows[0].outcome for case, rows in rollouts.items()}
        usable = [mark for mark in marks if outcomes[mark.id] in SCORED]
        excluded = [
            (mark.id, f"{outcomes[mark.id].value} at the baseline")
            for mark in marks
            if outcomes[mark.id] not in SCORED
        ]
        if not usable:
            first = "; ".join(f"{case}: {why}" for case, why in excluded[:3])
            said = self._said(rollouts[marks[0].id][0])
            raise SuiteProblem(
                f"of {count(len(marks), 'case')} none passed or failed at the baseline "
                f"({first}). Run plain pytest and mend the suite first."
                + (f" The first one said:\n{said}" if said else "")
            )
        ids = {mark.id for mark in usable}
        explicit = {
            case: split for case, split in self._plan.splits.items() if case in ids
        }
        splits = deal(usable, outcomes, explicit, self._plan.fractions, self._plan.seed)
        cases = [
            as_case(mark, splits[mark.id], outcomes[mark.id], reached.get(mark.id, ""))
            for mark in usable
        ]
        return cases, excluded

    def _said(self, rollout: Rollout) -> str:
        """The end of what is known of a rollout that was not scored."""
        if rollout.trace is None:
            return ""
        phases = self._parts.rollouts.detail(rollout.trace).phases
        texts = [
            text.strip()
            for phase in phases
            for text in (phase.message, phase.longrepr, *dict(phase.sections).values())
        ]
        lines = "\n".join(dict.fromkeys(filter(None, texts))).splitlines()
        return "\n".join(line[:_WIDTH] for line in lines[-_LINES:])

    async def _check_reach(
        self,
        cases: Sequence[Case],
        rollouts: Mapping[CaseId, Sequence[Rollout]],
        log: ScopeLog,
    ) -> None:
        """Stop where nothing reaches the artifact: nothing could be optimised."""
        for case in cases:
            reach = rollouts[case.id][0].reach
            if reach.files or reach.stale or not reach.exact:
                return
        probe = Candidate(f"{START}-probe", self._parts.workshop.empty())
        sample = [case.id for case in cases[:PROBED]]
        again = await self._measure(probe, sample, 0, Purpose.PROBE, log)
        if all(_same(rollouts[row.case][0], row) for row in again):
            failing = all(case.outcome is Outcome.FAILED for case in cases)
            said = self._said(rollouts[cases[0].id][0]) if failing else ""
            raise SuiteProblem(
                f"no case reaches the artifact {self._plan.schema.directory!r}: none "
                f"of {len(cases)} opened one of its files, and {len(sample)} of them "
                "come out the same without it. Nothing could be optimised. Read it "
                "through the evo_artifact fixture or $PYTEST_EVO_ARTIFACT, or correct "
                "the artifact setting."
                + (f" All of them fail. The first one said:\n{said}" if said else "")
            )

    async def _repeat(
        self,
        cases: Sequence[Case],
        rollouts: Mapping[CaseId, list[Rollout]],
        log: ScopeLog,
    ) -> None:
        chosen = sample_for_noise(cases, self._plan.noise, self._parts.draws)
        runs = tuple((case.id, repeat) for repeat in range(1, TIMES) for case in chosen)
        if not runs:
            return
        work = Work(self._start, runs, Purpose.NOISE, 0)
        for row in await self._dispatcher.run(work, log):
            rollouts[row.case].append(row)


def as_case(mark: CaseMark, split: Split, outcome: Outcome, reached: str) -> Case:
    """Freeze a collected item."""
    return Case(
        id=mark.id,
        split=split,
        fingerprint=f"{mark.fingerprint}+{reached}" if reached else mark.fingerprint,
        file=mark.file,
        group=mark.group,
        weight=mark.weight,
        repeats=mark.repeats,
        timeout=mark.timeout,
        must_pass=mark.must_pass,
        deterministic=mark.deterministic,
        exclusive=mark.exclusive,
        outcome=outcome,
    )


def _with_split(event: Event, splits: Mapping[CaseId, Split]) -> Event:
    if isinstance(event, RolloutRecorded):
        return replace(event, split=splits.get(event.case))
    return event


def _same(one: Rollout, other: Rollout) -> bool:
    if one.outcome is not other.outcome:
        return False
    return abs((one.score or 0.0) - (other.score or 0.0)) <= EPSILON
