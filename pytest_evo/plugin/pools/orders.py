"""What workers are told to run: isolation and time limits, as set by now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field

from pytest_evo.models import CaseId
from pytest_evo.plugin import messages
from pytest_evo.plugin.messages import Mode
from pytest_evo.plugin.pools.flights import Flight


@dataclass(slots=True)
class Orders:
    """The state that every request from now on is sent with; times in seconds."""

    grace: float | None = None  # None: what the isolation needs
    mode: Mode = Mode.FORK
    mount: bool = False
    timeouts: Mapping[CaseId, float] = field(default_factory=dict)
    default_timeout: float = 300.0

    @property
    def patience(self) -> float:
        """How long a worker may be silent beyond the time limit of its cases."""
        if self.grace is not None:
            return self.grace
        return 90.0 if self.mode is Mode.FORK else 270.0

    def of(self, flight: Flight, seed: int) -> messages.Run:
        """The message for a request; its flight learns its longest time limit."""
        request = flight.request
        timeouts = tuple(
            self.timeouts.get(case, self.default_timeout) for case, _ in request.runs
        )
        flight.limit = max(timeouts, default=0.0)
        return messages.Run(
            id=request.id,
            candidate=request.candidate,
            tree=request.tree,
            manifest=flight.tree.entries,
            runs=request.runs,
            timeouts=timeouts,
            mode=self.mode,
            mount=self.mount,
            seed=seed,
            attempt=request.attempt,
        )
