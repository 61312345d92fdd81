"""What rollouts cost by the mean: foretells those under way, prices calls cut off."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace

from pytest_evo.events import RolloutRecorded
from pytest_evo.models import Purpose
from pytest_evo.models import Usage

AT_START = frozenset({Purpose.BASELINE, Purpose.PROBE, Purpose.NOISE, Purpose.FINAL})
"""Purposes that are not foretold: each case once or twice, or paid from a reserve."""
_FEW = 8
"""Rollouts of the search before their own mean foretells others, not the start's."""


@dataclass(slots=True)
class _Sum:
    rollouts: int = 0
    tokens: int = 0
    usd: float = 0.0

    def add(self, usage: Usage) -> None:
        self.rollouts += 1
        self.tokens += usage.tokens
        self.usd += usage.counted_usd


class SuiteCost:
    """Learns from every rollout that was charged."""

    def __init__(self) -> None:
        self._start = _Sum()
        self._search = _Sum()
        self._priced_calls = 0
        self._paid = 0.0
        self._cut_off = 0

    def learn(self, event: RolloutRecorded) -> Usage:
        """Learn from a rollout; return its usage as a budget counts it.

        Calls of unknown price of a test that was cut off are taken out of it: they
        count in :attr:`cut_off_usd`.
        """
        usage = event.usage
        if event.outcome.is_cut_off and usage.estimated_usd is None:
            self._cut_off += usage.unpriced
            usage = replace(usage, estimated_usd=0.0)
        self._priced_calls += usage.calls - usage.unpriced
        self._paid += usage.paid_usd
        (self._start if event.purpose in AT_START else self._search).add(usage)
        return usage

    @property
    def cut_off_usd(self) -> float:
        """What calls of unknown price cost that were cut off: a mean call each."""
        if not self._priced_calls:
            return 0.0  # nobody has learnt a price yet
        return self._cut_off * self._paid / self._priced_calls

    def of(self, rollouts: int) -> tuple[int, float]:
        """Tokens and USD that so many rollouts will take, by the mean so far."""
        known = self._search if self._search.rollouts >= _FEW else self._start
        if not known.rollouts:
            return 0, 0.0
        share = rollouts / known.rollouts
        return round(known.tokens * share), known.usd * share
