"""The numbers that are known only after the baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from pytest_evo.engine.parts import Plan
from pytest_evo.engine.parts import Strategy
from pytest_evo.engine.state import State
from pytest_evo.errors import BudgetProblem
from pytest_evo.errors import SuiteProblem
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Split

BATCH = 8
NOISY_BATCH = 16
DEPTH = 5
FINAL_REPEATS = 3
SHARE_OF_LEFT = 0.05
"""An iteration may plan for at most this share of what is left of the budget."""


@dataclass(frozen=True, slots=True)
class Setup:
    """Everything an iteration needs to know of the suite and of its own size."""

    train: tuple[Case, ...]
    val: tuple[Case, ...]
    test: tuple[Case, ...]
    noisy: frozenset[CaseId]
    variance: float
    batch: int
    depth: int
    depth_by_hand: bool
    repeats: int
    final_repeats: int
    start_scores: Mapping[CaseId, float]  # train
    start_seconds: Mapping[CaseId, float]
    start_usage: Mapping[CaseId, tuple[int, float]]  # tokens, usd

    def cases(self, split: Split) -> tuple[Case, ...]:
        """The cases of a split."""
        return {Split.TRAIN: self.train, Split.VAL: self.val, Split.TEST: self.test}[
            split
        ]

    @property
    def final_split(self) -> Split:
        """Where the claim is measured: test, or val where there is no test split."""
        return Split.TEST if self.test else Split.VAL

    @property
    def is_noisy(self) -> bool:
        """Whether any case may differ from repeat to repeat."""
        return bool(self.noisy)

    def runs_of(self, case: Case) -> int:
        """How often a case runs where it is measured once."""
        return case.repeats or self.repeats

    def cost(self, cases: tuple[Case, ...]) -> int:
        """Rollouts that one measurement of ``cases`` takes."""
        return sum(self.runs_of(case) for case in cases)

    def final_cost(self) -> int:
        """Rollouts of the final measurement of start and winner, at most."""
        return sum(self._final_runs(case) for case in self.cases(self.final_split))

    def final_spend(self) -> tuple[int, float]:
        """Tokens and money of the final measurement, at what the start costs."""
        tokens, usd = 0, 0.0
        for case in self.cases(self.final_split):
            each = self.start_usage.get(case.id, (0, 0.0))
            tokens += self._final_runs(case) * each[0]
            usd += self._final_runs(case) * each[1]
        return tokens, usd

    def _final_runs(self, case: Case) -> int:
        if case.id in self.noisy:
            return 2 * self.final_repeats
        return 1 if self.test else 0

    def depth_for(self, left: int | None) -> int:
        """Chain steps of an iteration that finds ``left`` rollouts in the budget."""
        if self.depth_by_hand or left is None:
            return self.depth
        affordable = int(SHARE_OF_LEFT * left / self.batch) - 2
        return max(0, min(self.depth, affordable))

    def left_for(self, depth: int) -> int:
        """Rollouts that have to be left for chains of ``depth``."""
        return math.ceil((depth + 2) * self.batch / SHARE_OF_LEFT)

    def worst_case(self, depth: int) -> int:
        """Rollouts that an iteration of this depth can take at most, retries aside."""
        batch = self.batch * max(1, self.repeats)
        extra = (6 + 6) * batch * (depth + 1) if self.is_noisy else 0
        return batch * (depth + 2) + extra + self.cost(self.val)

    def least(self) -> int:
        """Rollouts without which an iteration cannot lead to a new member."""
        return self.batch + self.cost(self.val)


@dataclass(frozen=True, slots=True)
class StartFigures:
    """What the start artifact scored and cost at the baseline, by case."""

    scores: Mapping[CaseId, float]
    seconds: Mapping[CaseId, float]
    usage: Mapping[CaseId, tuple[int, float]]  # tokens, usd
    traces: Mapping[CaseId, str] = field(default_factory=dict)  # of first rollouts


def make_setup(
    plan: Plan,
    strategy: Strategy,
    state: State,
    start: StartFigures,
    limit: int | None,
) -> Setup:
    """Settle batch, depth and repeats for a suite whose noise is known.

    Raises:
        SuiteProblem: acceptance could never be reached with this suite.
    """
    noisy = state.noisy
    train = state.of_split(Split.TRAIN)
    variance = state.noise.variance if state.noise else 0.0
    depth = DEPTH if plan.depth is None else plan.depth
    wanted = plan.batch or (NOISY_BATCH if noisy else BATCH)
    share = len([case for case in train if case.id in noisy]) / max(1, len(train))
    batch = strategy.acceptance.smallest_batch(
        min(wanted, len(train)), share, variance, depth + 1
    )
    if batch is None or batch > len(train):
        raise SuiteProblem(
            f"no change could ever be accepted: {len(train)} train cases with a "
            f"within-case variance of {variance:.3f} need a batch of "
            f"{batch or 'more than 10000'}. Add train cases, lower --evo-chain-depth "
            f"(now {depth}), or set noise = 'none' if the suite repeats itself."
        )
    setup = Setup(
        train=train,
        val=state.of_split(Split.VAL),
        test=state.of_split(Split.TEST),
        noisy=noisy,
        variance=variance,
        batch=batch,
        depth=depth,
        depth_by_hand=plan.depth is not None,
        repeats=plan.repeats or 1,
        final_repeats=1,
        start_scores={
            case.id: start.scores[case.id] for case in train if case.id in start.scores
        },
        start_seconds=start.seconds,
        start_usage=start.usage,
    )
    if noisy and (limit is None or setup.final_cost() * FINAL_REPEATS <= limit // 10):
        return replace(setup, final_repeats=FINAL_REPEATS)
    return setup


def check_budget(
    setup: Setup, left: int | None, least: int
) -> tuple[int | None, int | None]:
    """How many proposals and validations the rest of the budget buys.

    None where rollouts are not limited.

    Raises:
        BudgetProblem: fewer than ``least`` proposals.
    """
    if left is None:
        return None, None
    validation = setup.cost(setup.val)
    per_proposal = setup.batch * max(1, setup.repeats)
    proposals = max(0, left - validation) // per_proposal
    if proposals < least:
        need = validation + least * per_proposal - left
        raise BudgetProblem(
            f"the budget leaves {max(0, left)} rollouts after baseline, noise and the "
            f"reserve for the final measurement: enough for {proposals} proposals of "
            f"{per_proposal} rollouts and one validation of {validation}, and "
            f"{least} are the least that make a run worth its cost. Raise "
            f"--budget-rollouts by {need}, or lower --evo-batch."
        )
    return proposals, max(0, left // max(1, validation))
