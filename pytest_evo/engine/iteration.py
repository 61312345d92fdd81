"""One iteration: sample, propose, evaluate, and refine the rejected along a chain.

This is the algorithm of the Mara Chain paper (arXiv 2609.35855) with the acceptance of
:mod:`pytest_evo.engine.trial`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from pytest_evo.engine.budget import Budget
from pytest_evo.engine.budget import BudgetReached
from pytest_evo.engine.diagnosing import diagnose
from pytest_evo.engine.dispatch import Dispatcher
from pytest_evo.engine.effects import with_effects
from pytest_evo.engine.measuring import batch_mean
from pytest_evo.engine.measuring import Bench
from pytest_evo.engine.measuring import is_complete
from pytest_evo.engine.measuring import is_perfect
from pytest_evo.engine.measuring import unscored
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Plan
from pytest_evo.engine.proposing import Proposing
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.scoring import means
from pytest_evo.engine.scoring import scores_by_case
from pytest_evo.engine.setup import Setup
from pytest_evo.engine.softstop import SoftStop
from pytest_evo.engine.state import BUDGET
from pytest_evo.engine.state import EXHAUSTED
from pytest_evo.engine.state import oldest_first
from pytest_evo.engine.state import REFUSED
from pytest_evo.engine.state import Snapshot
from pytest_evo.engine.tabkeeping import kept_tab
from pytest_evo.engine.trial import Arm
from pytest_evo.engine.trial import Trial
from pytest_evo.engine.validation import can_enter
from pytest_evo.errors import ProposerExhausted
from pytest_evo.events import DiagnosesMade
from pytest_evo.means import mean_of
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import Member
from pytest_evo.models import Node
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import ScoreVector
from pytest_evo.models import Status
from pytest_evo.protocols import BatchRequest
from pytest_evo.protocols import Diagnosed


@dataclass(slots=True)
class Result:
    """What an iteration hands to its commit."""

    parent: Candidate
    batch: tuple[Case, ...] = ()
    nodes: list[tuple[Candidate, Status]] = field(default_factory=list)
    child: Candidate | None = None
    val: ScoreVector = field(default_factory=dict)
    reason: str = ""

    @property
    def depth(self) -> int:
        """Chain steps taken."""
        return max(0, len(self.nodes) - 1)


class Iteration:
    """One iteration on the state after the commit K before it."""

    def __init__(
        self,
        number: int,
        parts: Parts,
        plan: Plan,
        setup: Setup,
        snapshot: Snapshot,
        budget: Budget,
        dispatcher: Dispatcher,
        log: ScopeLog,
        depth: int,
        stop: SoftStop,
    ) -> None:
        self._number = number
        self._parts = parts
        self._strategy = parts.strategy
        self._plan = plan
        self._setup = setup
        self._snapshot = snapshot
        self._budget = budget
        self._log = log
        self._depth = depth
        self._bench = Bench(number, snapshot, setup, dispatcher, log, plan.slots)
        self._stop = stop
        self._proposing = Proposing(
            number, parts, plan, setup, snapshot, budget, log, stop
        )

    async def run(self) -> Result:
        """Run the iteration as far as the budget carries.

        Raises:
            Interrupted: a soft stop; the scope stays open.
            WorkersLost: no worker is left; the scope stays open.
        """
        parent = self._sample_parent()
        result = Result(parent.candidate)
        try:
            await self._refine(parent, result)
        except BudgetReached as reached:
            result.reason = f"{BUDGET}{reached}"
        except ProposerExhausted as end:
            result.reason = f"{EXHAUSTED}{end}"
        return result

    def _sample_parent(self) -> Member:
        rng = self._parts.draws.rng("parent", self._number)
        return self._strategy.parents.sample(self._snapshot.population, rng)

    def _sample_batch(self, parent: Candidate) -> tuple[Case, ...]:
        request = BatchRequest(
            train=self._setup.train,
            size=self._setup.batch,
            iteration=self._number,
            believed=self._snapshot.believed.get(parent.tree, {}),
        )
        return self._strategy.batches.sample(request, self._parts.draws)

    async def _refine(self, parent: Member, result: Result) -> None:
        """Direct proposal, then the chain: every node is tried against the parent."""
        batch = result.batch = self._sample_batch(parent.candidate)
        run = await self._bench.parent(parent.candidate, batch)
        if any(case.id not in run.scores for case in batch):
            result.reason = "parent incomplete on the batch"
            return
        arm = Arm(parent.candidate, run.scores)
        if is_perfect(means(arm.scores), batch):
            result.reason = "parent perfect on the batch"
            return
        trial = Trial(
            self._parts,
            self._plan,
            self._setup,
            self._bench,
            self._log,
            batch,
            arm,
            attempts=self._depth + 1,
        )
        mean = mean_of(means(run.scores), batch)
        root = Node(parent.candidate, run.rollouts, (), mean)
        nodes = [await self._diagnosed(root, [], 0)]
        base: Node | None = nodes[0]
        while base is not None:
            step = len(nodes) - 1
            if not await self._step(step, base, nodes, trial, result):
                return
            base = self._strategy.refiner.next(nodes, self._depth)

    async def _step(
        self,
        step: int,
        base: Node,
        nodes: list[Node],
        trial: Trial,
        result: Result,
    ) -> bool:
        """Propose, run and try one node; True where the chain may go on."""
        candidate = await self._proposing.propose(step, base, nodes, result.batch)
        if isinstance(candidate, str):
            result.reason = f"{REFUSED}{candidate}" if step == 0 else candidate
            return False
        result.nodes.append((candidate, Status.INCOMPLETE))
        purpose = Purpose.CHAIN if step else Purpose.CHILD
        rollouts = await self._bench.measure(candidate, result.batch, purpose)
        candidate = with_effects(candidate, rollouts, base)
        result.nodes[-1] = (candidate, Status.INCOMPLETE)
        ruling = await trial.rule(candidate, rollouts)
        result.reason = ruling.reason
        if not ruling.incomplete:
            result.nodes[-1] = (candidate, Status.REJECTED)
        if ruling.accepted:
            result.nodes[-1] = (candidate, Status.ACCEPTED)
            result.child = candidate
            await self._validate(candidate, result)
            return False
        node = Node(candidate, tuple(rollouts), (), batch_mean(rollouts, result.batch))
        if self._strategy.refiner.next([*nodes, node], self._depth) is not None:
            node = await self._diagnosed(node, nodes, step + 1)
        nodes.append(node)
        return True

    async def _diagnosed(self, node: Node, before: Sequence[Node], step: int) -> Node:
        made = self._log.diagnoses(step)
        if made is None:
            self._budget.ask()
            diagnosed = await self._read([*before, node], step)
            made = DiagnosesMade(
                self._number,
                step,
                node.candidate.id,
                diagnosed.diagnoses,
                diagnosed.usage,
                diagnosed.problems,
            )
            if diagnosed == Diagnosed():
                return node
        self._budget.charge_usage(made)
        self._log.write(made)
        self._parts.observer.notice(made)
        return replace(node, diagnoses=made.diagnoses)

    async def _read(self, nodes: Sequence[Node], step: int) -> Diagnosed:
        with kept_tab(self._log, self._number, step, "diagnoser"):
            return await self._stop.unless(diagnose(self._parts.diagnoser, nodes))

    async def _validate(self, child: Candidate, result: Result) -> None:
        """Spend val in stages, no further than the child can still enter."""
        val = self._setup.val
        stages = self._strategy.validation.stages(val, self._parts.draws)
        rollouts: list[Rollout] = []
        for stage in stages:
            rollouts += await self._bench.measure(child, stage, Purpose.VALIDATION)
            if not is_complete(rollouts):
                missing = "; ".join(unscored(rollouts)[:3])
                result.reason += f"; validation incomplete: {missing}"
                return
            vector = means(scores_by_case(rollouts))
            if not can_enter(
                oldest_first(self._snapshot.population),
                child,
                vector,
                val,
                self._strategy.survivors,
            ):
                result.reason += (
                    f"; cannot enter the population after {len(vector)} of "
                    f"{len(val)} val cases"
                )
                return
        result.val = means(scores_by_case(rollouts))
