"""The budget: asked before spending, never exceeded by a rollout."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pytest_evo.engine.suitecost import AT_START
from pytest_evo.engine.suitecost import SuiteCost
from pytest_evo.errors import EvoError
from pytest_evo.events import CallsLost
from pytest_evo.events import DiagnosesMade
from pytest_evo.events import Event
from pytest_evo.events import ProposalMade
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Purpose
from pytest_evo.models import Usage
from pytest_evo.protocols import Clock

TRAINING = frozenset(
    {Purpose.PARENT, Purpose.CHILD, Purpose.CHAIN, Purpose.REPEAT, Purpose.CONFIRMATION}
)
"""Purposes that count against ``--budget-train-rollouts``."""


_TAKEN = ", {} kept for the final measurement or taken by rollouts under way"
_PRICES = {
    "suite": "Give litellm the prices, or say them with evo_usage(usd=...) and set "
    "count_model_calls = false",
    "others": "Write input_usd and output_usd (for a million tokens) into the options "
    "of the model",
}


class BudgetReached(EvoError):
    """A limit does not allow the next step: a soft stop, not a failure."""

    def __init__(self, axis: str, detail: str, remedy: str = "") -> None:
        super().__init__(f"{axis}: {detail}" + (f". {remedy}" if remedy else ""))
        self.axis = axis
        self.remedy = remedy  # where it is not a larger limit


@dataclass(frozen=True, slots=True)
class Limits:
    """The six limits; None is no limit. ``seconds`` are of running time."""

    rollouts: int | None = None
    train_rollouts: int | None = None
    iterations: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    usd: float | None = None


class Budget:
    """Reserves, settles and releases rollouts; counts what models cost.

    ``spent`` counts every execution by purpose, lost ones too. ``set_aside`` rollouts
    are kept for the final measurement and nothing else can have them, as are
    ``kept_tokens`` and ``kept_usd``.
    """

    def __init__(self, limits: Limits, clock: Clock) -> None:
        self.limits = limits
        self.spent: Counter[Purpose] = Counter()
        self.usage: dict[str, Usage] = {}
        self._reserved: Counter[Purpose] = Counter()
        self.set_aside = 0
        self.kept_tokens = 0
        self.kept_usd = 0.0
        self._clock = clock
        self._over: BudgetReached | None = None
        self._suite = SuiteCost()

    @property
    def reserved(self) -> int:
        """Rollouts that are reserved and neither executed nor released yet."""
        return self._reserved.total()

    @property
    def total(self) -> int:
        """Rollouts executed so far."""
        return self.spent.total()

    @property
    def tokens(self) -> int:
        """Tokens of all roles."""
        return sum(usage.tokens for usage in self.usage.values())

    @property
    def usd(self) -> float:
        """Money of all roles: known prices, and estimates of the others."""
        known = sum(usage.counted_usd for usage in self.usage.values())
        return known + self._suite.cut_off_usd

    @property
    def limits_spend(self) -> bool:
        """Whether tokens or money are limited."""
        return self.limits.tokens is not None or self.limits.usd is not None

    @property
    def _blind(self) -> BudgetReached | None:
        """Why a limit of money cannot be kept, if it cannot."""
        for role, usage in self.usage.items():
            if self.limits.usd is not None and usage.estimated_usd is None:
                return BudgetReached(
                    "usd",
                    f"nobody knows the price of calls by the {role} ({usage.unpriced} "
                    f"of unknown price), so --budget-usd={self.limits.usd:g} cannot be "
                    "kept",
                    f"{_PRICES.get(role, _PRICES['others'])}, or limit --budget-tokens "
                    "instead",
                )
        return None

    def left(self) -> int | None:
        """Rollouts that may still be reserved outside the final measurement."""
        if self.limits.rollouts is None:
            return None
        return self.limits.rollouts - self.total - self.reserved - self.set_aside

    def train_left(self) -> int | None:
        """Training rollouts that may still be reserved."""
        if self.limits.train_rollouts is None:
            return None
        spent = sum(
            self.spent[purpose] + self._reserved[purpose] for purpose in TRAINING
        )
        return self.limits.train_rollouts - spent

    def tokens_left(self) -> int | None:
        """Tokens that models may still use."""
        if self.limits.tokens is None:
            return None
        taken = self.kept_tokens + self._under_way()[0]
        return max(0, self.limits.tokens - self.tokens - taken)

    def usd_left(self) -> float | None:
        """Money that models may still cost, unknown prices being estimated."""
        if self.limits.usd is None:
            return None
        taken = self.kept_usd + self._under_way()[1]
        return max(0.0, self.limits.usd - self.usd - taken)

    def _under_way(self, more: int = 0) -> tuple[int, float]:
        """Tokens and USD that rollouts of the search will take that are reserved.

        So that what is out when a limit comes does not eat what is kept.
        """
        reserved = self._reserved.items()
        out = sum(count for purpose, count in reserved if purpose not in AT_START)
        return self._suite.of(out + more)

    def ask(self, rollouts: int = 0) -> None:
        """Check time, tokens and money before anything new starts.

        Args:
            rollouts: that are to start, beside those that are reserved already.

        Raises:
            BudgetReached: one of them is used up.
        """
        if self._over is not None:
            raise self._over
        limits = self.limits
        if limits.seconds is not None and self._clock.elapsed() >= limits.seconds:
            raise BudgetReached("time", f"{limits.seconds:g} s are over")
        tokens, usd = self._under_way(rollouts)
        self._ask_spend(self.kept_tokens + tokens, self.kept_usd + usd)

    def ask_final(self) -> None:
        """Check tokens and money before rollouts of the final measurement.

        What is kept is theirs, and time does not end them. A suite that asks no model
        needs neither.

        Raises:
            BudgetReached: one of them is used up.
        """
        if "suite" in self.usage:
            self._ask_spend(0, 0.0)

    def _ask_spend(self, taken_tokens: int, taken_usd: float) -> None:
        tokens, usd = self.limits.tokens, self.limits.usd
        if tokens is not None and self.tokens + taken_tokens >= tokens:
            taken = _TAKEN.format(f"{taken_tokens}") if taken_tokens else ""
            raise BudgetReached("tokens", f"{self.tokens} of {tokens} spent{taken}")
        if usd is not None and self.usd + taken_usd >= usd:
            taken = _TAKEN.format(f"{taken_usd:.4f}") if taken_usd else ""
            raise BudgetReached("usd", f"{self.usd:.4f} of {usd:g} spent{taken}")
        if self._blind is not None:
            raise self._blind

    def close(self, axis: str, detail: str) -> None:
        """Let nothing new start: what is left does not pay for the next call."""
        self._over = self._over or BudgetReached(axis, detail)

    def reserve(self, count: int, purpose: Purpose) -> None:
        """Set ``count`` rollouts aside for a step, all or none.

        Raises:
            BudgetReached: the limit cannot cover them.
        """
        if purpose is Purpose.FINAL:
            self._reserve_final(count)
            return
        self.ask(0 if purpose in AT_START else count)
        left = self.left()
        if left is not None and count > left:
            raise BudgetReached("rollouts", f"{count} needed, {max(0, left)} left")
        train_left = self.train_left() if purpose in TRAINING else None
        if train_left is not None and count > train_left:
            raise BudgetReached(
                "train rollouts", f"{count} needed, {max(0, train_left)} left"
            )
        self._reserved[purpose] += count

    def _reserve_final(self, count: int) -> None:
        self.ask_final()
        limit = self.limits.rollouts
        if limit is not None and count > limit - self.total - self.reserved:
            raise BudgetReached("rollouts", f"{count} needed for the final measurement")
        self.set_aside = max(0, self.set_aside - count)
        self._reserved[Purpose.FINAL] += count

    def release(self, count: int, purpose: Purpose) -> None:
        """Give back what was reserved and not executed."""
        self._reserved[purpose] -= count

    def settle(self, purpose: Purpose) -> None:
        """Turn one reserved rollout into a spent one."""
        self._reserved[purpose] -= 1
        self.spent[purpose] += 1

    def charge(self, event: Event) -> None:
        """Count what a replayed event once cost."""
        if isinstance(event, RolloutRecorded):
            self.spent[event.purpose] += 1
        self.charge_usage(event)

    def charge_usage(self, event: Event) -> None:
        """Count the model calls of an event by role."""
        if isinstance(event, RolloutRecorded):
            role, usage = "suite", self._suite.learn(event)
        elif isinstance(event, ProposalMade):
            role, usage = "proposer", event.usage
        elif isinstance(event, DiagnosesMade):
            role, usage = "diagnoser", event.usage
        elif isinstance(event, CallsLost):
            role, usage = event.role, event.usage
        else:
            return
        if usage != NO_USAGE:
            self.usage[role] = self.usage.get(role, NO_USAGE) + usage
