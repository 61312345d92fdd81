"""Workers that died: how many in a row, and whose doing it was."""

from __future__ import annotations

from collections import Counter

from pytest_evo.errors import WorkersLost
from pytest_evo.models import START
from pytest_evo.models import TreeHash
from pytest_evo.plugin.pools.flights import Flight
from pytest_evo.plugin.pools.roster import Worker

DEADLY = 3
"""How many workers a candidate may take with it before it is not run any more."""
UNLUCKY = 12
"""The same where its test processes cannot signal a worker: somebody else did."""


class Casualties:
    """Counts the dead; ``expected`` is how many workers there should be."""

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._in_a_row = 0
        self._deadly: Counter[TreeHash] = Counter()
        self._unlucky: Counter[TreeHash] = Counter()

    def forgive(self) -> None:
        """A rollout was finished: deaths are not in a row any more."""
        self._in_a_row = 0

    def count(self) -> WorkersLost | None:
        """Another one is lost; why to give up, or None to go on with others."""
        self._in_a_row += 1
        if self._in_a_row <= 3 * self._expected + 2:
            return None
        return WorkersLost(
            f"{self._in_a_row} workers were lost and not one rollout was finished in "
            "between; run one case by hand to see why: pytest -n 0 -k NAME"
        )

    def blame(self, worker: Worker, flight: Flight) -> None:
        """A worker died while a request ran in it; the start is never to blame."""
        if flight.request.candidate == START:
            return
        kept = worker.hello is not None and worker.hello.signals_kept
        (self._unlucky if kept else self._deadly)[flight.request.tree] += 1

    def condemn(self, flight: Flight) -> bool:
        """Close a request of a candidate that took too many workers with it."""
        tree = flight.request.tree
        if self._deadly[tree] >= DEADLY:
            flight.condemn(f"its process killed {DEADLY} workers; it is not run again")
        elif self._unlucky[tree] >= UNLUCKY:
            flight.condemn(
                f"{UNLUCKY} workers died while it ran, none by its own signal: memory "
                "may be short, or somebody ends them; it is not run again",
                guilty=False,
            )
        else:
            return False
        return True
