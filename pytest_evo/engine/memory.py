"""Which rollouts are finished, so that none is paid twice."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace

from pytest_evo.engine.scopelog import RunKey
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.events import Event
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import Outcome


@dataclass(slots=True)
class _Known:
    """A finished rollout and whether the journal has it already."""

    event: RolloutRecorded
    iteration: int
    settled: bool = False


class Memory:
    """The finished rollouts that an open iteration could ask for again."""

    def __init__(self) -> None:
        self._known: dict[RunKey, _Known] = {}

    def get(self, key: RunKey) -> RolloutRecorded | None:
        """The newest attempt at a rollout, if one has finished."""
        known = self._known.get(key)
        return None if known is None else known.event

    def replayed(self, event: RolloutRecorded) -> None:
        """Learn a rollout that the journal has: an open scope may know it too."""
        if event.outcome is not Outcome.LOST:
            key = (event.tree, event.case, event.repeat)
            self._known[key] = _Known(event, event.iteration, settled=True)

    def is_settled(self, event: RolloutRecorded) -> bool:
        """Whether the journal has this attempt, or a later one."""
        known = self._known.get((event.tree, event.case, event.repeat))
        return (
            known is not None and known.settled and known.event.attempt >= event.attempt
        )

    def remember(
        self, event: RolloutRecorded, iteration: int
    ) -> RolloutRecorded | None:
        """Keep the newest attempt; return an earlier one that nothing has settled."""
        if event.outcome is Outcome.LOST:
            return None
        key = (event.tree, event.case, event.repeat)
        earlier = self._known.get(key)
        self._known[key] = _Known(event, iteration)
        if earlier is None or earlier.settled:
            return None
        return earlier.event

    def own(self, log: ScopeLog, iteration: int) -> None:
        """Leave in a scope the rollouts that no scope before it has in the journal.

        Slots share what they run at the same time. The journal gives such a rollout to
        the lowest iteration that used it, whichever was first to run it. What ran and
        was not used is kept too: it counts.
        """
        log.settle(*(row for row in log.unused() if not self.is_settled(row)))
        kept: list[Event] = []
        for event in log.events:
            if isinstance(event, RolloutRecorded) and event.outcome is not Outcome.LOST:
                known = self._known.get((event.tree, event.case, event.repeat))
                if known is not None and known.event.attempt == event.attempt:
                    if known.settled:
                        continue
                    known.settled = True
                if event.iteration != iteration:
                    event = replace(event, iteration=iteration)
            kept.append(event)
        log.events = kept

    def forget(self, before: int) -> None:
        """Drop what no open iteration can ask for again."""
        stale = [key for key, known in self._known.items() if known.iteration < before]
        for key in stale:
            del self._known[key]
