"""Which rollouts the gate asks for, in which order, and when it has seen enough.

No input or output: whoever drives it runs what ``next`` asks and hands every rollout
to ``record``, in any order.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Observation


class Planner:
    """The plan of one gate run.

    Args:
        cases: all cases, unreached, added and quarantined ones too.
        policy: the rules and the budget.
        change: what differs besides how the cases come out.
        base_arm: False where only stored counts stand for the base; cases without
            stored counts are then shown as added.
    """

    def __init__(
        self,
        cases: Sequence[GateCase],
        policy: GatePolicy,
        change: Change = Change(),  # noqa: B008 - a frozen value
        *,
        base_arm: bool = True,
    ) -> None:
        raise NotImplementedError

    @property
    def budget(self) -> int:
        """Rollouts that may be asked for in all, retries included."""
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        """Whether nothing is left to ask and nothing is awaited."""
        raise NotImplementedError

    def next(self, limit: int = 64) -> tuple[Ask, ...]:
        """Up to ``limit`` further rollouts, pairs side by side and reserved.

        Empty while what is awaited decides how it goes on, and when finished.
        """
        raise NotImplementedError

    def record(self, observation: Observation) -> None:
        """Take one rollout that was asked for; ``Outcome.LOST`` where it is gone.

        Raises:
            ValueError: it was not asked for, or is recorded already.
        """
        raise NotImplementedError

    def stop(self, reason: str) -> None:
        """Ask for nothing more (a time limit, Ctrl-C); what is awaited may arrive."""
        raise NotImplementedError

    def decision(self) -> GateDecision:
        """The decision on what was recorded so far."""
        raise NotImplementedError
