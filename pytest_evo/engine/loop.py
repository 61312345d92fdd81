"""The outer loop: baseline, K slots that commit in number order, final measurement."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from pytest_evo.engine.baseline import Baseline
from pytest_evo.engine.budget import Budget
from pytest_evo.engine.budget import BudgetReached
from pytest_evo.engine.budget import Limits
from pytest_evo.engine.dispatch import Dispatcher
from pytest_evo.engine.final import Final
from pytest_evo.engine.final import ITERATION as FINAL_ITERATION
from pytest_evo.engine.folding import closed_scopes
from pytest_evo.engine.folding import start_figures
from pytest_evo.engine.iteration import Result
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Plan
from pytest_evo.engine.recording import as_rollout
from pytest_evo.engine.recording import candidate_record
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.setup import check_budget
from pytest_evo.engine.setup import make_setup
from pytest_evo.engine.setup import Setup
from pytest_evo.engine.setup import StartFigures
from pytest_evo.engine.slots import Slots
from pytest_evo.engine.slots import Snapshots
from pytest_evo.engine.softstop import Interrupted
from pytest_evo.engine.softstop import SoftStop
from pytest_evo.engine.state import BUDGET
from pytest_evo.engine.state import oldest_first
from pytest_evo.engine.state import State
from pytest_evo.errors import BudgetProblem
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ProposerProblem
from pytest_evo.errors import UsageProblem
from pytest_evo.errors import WorkersLost
from pytest_evo.events import AcceptanceDecided
from pytest_evo.events import CasesFrozen
from pytest_evo.events import Event
from pytest_evo.events import FinalMeasured
from pytest_evo.events import IterationClosed
from pytest_evo.events import ProposalMade
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import RunStopped
from pytest_evo.means import mean_of
from pytest_evo.models import Candidate
from pytest_evo.models import CaseId
from pytest_evo.models import Member
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Split
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.wording import count

NOTICED_BEFORE = (RolloutRecorded, ProposalMade, AcceptanceDecided)
BASELINE_SCOPE = "baseline"
FINAL_SCOPE = "final"
_UNPAID = "the winner is not measured: nothing was left for start and winner on test"


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a run can expect after its baseline; shown before the first proposal."""

    setup: Setup
    spent: int
    baseline: int
    noise: int
    reserve: int
    left: int | None
    proposals: int | None  # None: rollouts are not limited
    validations: int | None
    left_out: tuple[CaseId, ...]  # without a score at the baseline
    maybe_cached: int
    start_traces: Mapping[CaseId, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a run ended."""

    stop: RunStopped
    winner: Member
    final: FinalMeasured | None
    population: tuple[Member, ...]
    repeated: bool = False  # it had ended before; nothing was done


class Loop:
    """One ``--evolve``: from nothing, or from a journal, to its end."""

    def __init__(self, parts: Parts, plan: Plan, limits: Limits) -> None:
        self._parts = parts
        self._plan = plan
        self.budget = Budget(limits, parts.clock)
        self.state = State()
        self._stop_request = SoftStop()
        self._snapshots = Snapshots(plan.slots)
        self._splits: dict[CaseId, Split] = {}
        self._dispatcher = Dispatcher(
            parts.evaluator,
            parts.rollouts,
            self.budget,
            parts.observer,
            self._splits,
            {mark.id: mark.exclusive for mark in parts.marks if mark.exclusive},
            plan.slots,
            self._stop_request,
        )
        self._figures = StartFigures({}, {}, {})
        self._stopped: RunStopped | None = None
        self._final: FinalMeasured | None = None

    @property
    def in_flight(self) -> int:
        """Rollouts that are reserved and not finished."""
        return self.budget.reserved

    def elapsed(self) -> float:
        """Seconds of running time."""
        return self._parts.clock.elapsed()

    def finished_before(self) -> bool:
        """Whether the journal says that the run has ended for good."""
        last: Event | None = None
        for event in self._parts.journal.replay():
            last = event
        return isinstance(last, RunStopped) and last.complete

    def interrupt(self) -> None:
        """Ask for a soft stop: nothing new starts, what runs finishes."""
        self._stop_request.request()

    async def run(self, announce: Callable[[Prospect], None]) -> RunEnd:
        """Run to the end.

        Args:
            announce: is told what the budget buys, before the first proposal.

        Raises:
            UsageProblem: the suite or the budget cannot make a run.
            Interrupted: a soft stop; the run can be resumed.
            WorkersLost: no worker is left; the run can be resumed.
            ModelFailed: the model gave no answer any more; the run can be resumed.
        """
        self._stop_request.attach()
        self._replay()
        if self._stopped is not None and self._stopped.complete:
            return replace(self._outcome(self._stopped), repeated=True)
        try:
            await self._baseline()
            setup = self._settle_setup(announce)
            reason = await self._iterate(setup)
            self._check_proposer()
            unpaid = await self._measure_final(setup)
        except (Interrupted, WorkersLost, ModelFailed) as why:
            if self.state.population:
                self._append_stop(self._short(why), str(why), complete=False)
            raise
        except ProposerProblem as why:  # what it refused is in the journal for good
            self._append_stop("the proposer failed", str(why), complete=True)
            raise
        except UsageProblem as why:
            if self.budget.total:
                self._append_stop("refused", str(why), complete=False)
            raise
        if unpaid:
            stop = self._append_stop(BUDGET + unpaid, _UNPAID, complete=False)
        else:
            stop = self._append_stop(reason, "", complete=True)
        return self._outcome(stop)

    # -- the past --------------------------------------------------------------------

    def _replay(self) -> None:
        """Fold what the journal has, scope by scope, exactly as it was folded live."""
        for events in closed_scopes(self._parts.journal.replay()):
            for event in events:
                self.budget.charge(event)
                if isinstance(event, RolloutRecorded):
                    self._dispatcher.learn(event)
                    self._dispatcher.memory.replayed(event)
            self._apply(events)
            self._recalibrate(events)
            self._dispatcher.memory.forget(self.state.commit - 2 * self._plan.slots)

    def _recalibrate(self, events: Sequence[Event]) -> None:
        start = Candidate(START, self._plan.start)
        baseline = [
            as_rollout(event, start)
            for event in events
            if isinstance(event, RolloutRecorded)
            and event.purpose is Purpose.BASELINE
            and event.outcome is not Outcome.LOST
        ]
        if baseline:
            self._parts.calibrate(baseline)

    def _apply(self, events: Sequence[Event]) -> None:
        self.state.apply(events)
        last = events[-1]
        if any(isinstance(event, CasesFrozen) for event in events):
            self._splits.update({case.id: case.split for case in self.state.cases})
            self._figures = start_figures(events)
        elif isinstance(last, FinalMeasured):
            self._final = last
        elif isinstance(last, RunStopped):
            self._stopped = last
            return
        self._stopped = None
        if self.state.commit >= 0:
            self._snapshots.keep(self.state.snapshot())

    # -- baseline --------------------------------------------------------------------

    async def _baseline(self) -> None:
        if self.state.cases:
            return
        log = self._open(BASELINE_SCOPE, 0)
        baseline = Baseline(self._parts, self._plan, self.budget, self._dispatcher)
        try:
            events = await baseline.run(log)
        except BudgetReached as reached:
            raise unfinished_baseline(reached, self.budget.total) from reached
        log.events = events
        self._dispatcher.memory.own(log, 0)
        self._close(log)

    def _settle_setup(self, announce: Callable[[Prospect], None]) -> Setup:
        limit = self.budget.limits.rollouts
        setup = make_setup(
            self._plan, self._parts.strategy, self.state, self._figures, limit
        )
        if self._final is None:
            self.budget.set_aside = setup.final_cost()
            self.budget.kept_tokens, self.budget.kept_usd = setup.final_spend()
        left = self.budget.left()
        if self.state.commit == 0:
            proposals, validations = check_budget(
                setup, left, self._plan.least_proposals
            )
        else:
            proposals, validations = check_budget(setup, left, -(10**9))
        kept = {case.id for case in self.state.cases}
        announce(
            Prospect(
                setup,
                self.budget.total,
                self.budget.spent[Purpose.BASELINE],
                self.budget.spent[Purpose.NOISE] + self.budget.spent[Purpose.PROBE],
                self.budget.set_aside,
                left,
                proposals,
                validations,
                tuple(m.id for m in self._parts.marks if m.id not in kept),
                len(self.state.noise.maybe_cached) if self.state.noise else 0,
                self._figures.traces,
            )
        )
        return setup

    async def _iterate(self, setup: Setup) -> str:
        slots = Slots(
            self._parts,
            self._plan,
            setup,
            self.budget,
            self._dispatcher,
            self._stop_request,
            self._snapshots,
            self._open,
            self._commit,
        )
        return await slots.run(self.state.commit + 1)

    def _check_proposer(self) -> None:
        faults = self.state.faults
        if faults and len(faults) == self.state.proposals:
            raise ProposerProblem(
                f"no proposal came through: the proposer itself failed all of the "
                f"{len(faults)} times it was asked. The last time {faults[-1]}. Mend "
                "it and start a new run: pytest --evolve"
            )

    # -- commits ---------------------------------------------------------------------

    def _commit(self, number: int, result: Result, log: ScopeLog) -> None:
        accepted = result.child is not None and bool(result.val)
        twin = self._twin(result) if accepted else None
        statuses = list(result.nodes)
        last, status = statuses[-1] if statuses else (None, None)
        if last is not None and status is Status.ACCEPTED and (twin or not accepted):
            statuses[-1] = (last, Status.DUPLICATE if twin else Status.UNPROVEN)
        population = self.state.population
        if accepted and twin is None:
            population = self._select(result)
        log.settle(
            *(candidate_record(candidate, status) for candidate, status in statuses)
        )
        self._dispatcher.memory.own(log, number)
        rollouts = sum(1 for event in log.events if isinstance(event, RolloutRecorded))
        self._close(
            log,
            IterationClosed(
                iteration=number,
                slot=(number - 1) % self._plan.slots,
                parent=result.parent.id,
                child=result.child.id if result.child else None,
                depth=result.depth,
                accepted=accepted and twin is None,
                reason=f"duplicate of {twin}" if twin else result.reason,
                batch=tuple(case.id for case in result.batch),
                population=tuple(member.candidate.id for member in population),
                val=result.val if accepted and twin is None else {},
                rollouts=rollouts,
            ),
        )
        self._dispatcher.memory.forget(number - 2 * self._plan.slots)

    def _twin(self, result: Result) -> str | None:
        """A member with the same files that another slot accepted meanwhile."""
        assert result.child is not None
        for member in self.state.population:
            if member.candidate.tree == result.child.tree:
                return result.child.id
        return None

    def _select(self, result: Result) -> tuple[Member, ...]:
        assert result.child is not None
        mean = mean_of(result.val, self.state.of_split(Split.VAL)) or 0.0
        child = Member(result.child, result.val, mean)
        members = [*oldest_first(self.state.population), child]
        return self._parts.strategy.survivors.select(members)

    # -- the end ---------------------------------------------------------------------

    async def _measure_final(self, setup: Setup) -> str:
        """Measure the winner; the budget that paid for nothing of it, if one did."""
        if self._final is not None:
            return ""
        log = self._open(FINAL_SCOPE, FINAL_ITERATION)
        careful = self.budget.limits_spend
        snapshot = self.state.snapshot()
        final = Final(setup, snapshot, self._dispatcher, careful=careful)
        start = Candidate(START, self._plan.start)
        measured = await final.run(start, self.winner, log)
        if measured is None:
            return final.unpaid
        self._dispatcher.memory.own(log, FINAL_ITERATION)
        self._close(log, measured)
        return ""

    @property
    def winner(self) -> Member:
        """The best of the population."""
        return self.state.population[0]

    def _append_stop(self, reason: str, detail: str, *, complete: bool) -> RunStopped:
        stop = RunStopped(
            reason=reason,
            detail=detail,
            winner=self.winner.candidate.id if self.state.population else START,
            iterations=self.state.commit,
            rollouts=self.budget.total,
            by_purpose={
                purpose.value: self.budget.spent[purpose]
                for purpose in Purpose
                if self.budget.spent[purpose]
            },
            complete=complete,
        )
        self._parts.journal.append(stop)
        self._parts.observer.notice(stop)
        return stop

    def _outcome(self, stop: RunStopped) -> RunEnd:
        return RunEnd(stop, self.winner, self._final, self.state.population)

    def _short(self, why: Exception) -> str:
        if isinstance(why, WorkersLost) and not self._stop_request.requested:
            return "workers lost"
        return (
            "no answer of the model" if isinstance(why, ModelFailed) else "interrupted"
        )

    # -- scopes ----------------------------------------------------------------------

    def _open(self, scope: str, iteration: int) -> ScopeLog:
        log = ScopeLog(self._parts.journal.open(scope))
        self._dispatcher.recover(log, iteration)
        return log

    def _close(self, log: ScopeLog, *last: Event) -> None:
        log.close(*last)
        self._apply(log.events)
        for event in log.events:
            if not isinstance(event, NOTICED_BEFORE):
                self._parts.observer.notice(event)


def unfinished_baseline(reached: BudgetReached, spent: int) -> BudgetProblem:
    """The error for a budget that ended before the start was measured."""
    option = f"--budget-{reached.axis.replace(' ', '-')}"
    rollouts = count(spent, "rollout")
    if reached.remedy:
        return BudgetProblem(
            f"the run stops in its baseline, after {rollouts}: {reached}. Then "
            "start a new one: pytest --evolve"
        )
    return BudgetProblem(
        f"the budget ended before the baseline was complete: {reached}. "
        f"That took {rollouts}, those included that were retried or that a killed "
        "session lost. What is finished is kept; go on with more: "
        f"pytest --evolve --evo-resume=last {option}=MORE"
    )
