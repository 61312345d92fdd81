"""What one scope has written: notes that survive a kill, events in canonical order."""

from __future__ import annotations

from collections import Counter

from pytest_evo.events import AcceptanceDecided
from pytest_evo.events import CallsLost
from pytest_evo.events import DiagnosesMade
from pytest_evo.events import Event
from pytest_evo.events import ProposalMade
from pytest_evo.events import RequestStarted
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import TabKept
from pytest_evo.models import CaseId
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Outcome
from pytest_evo.models import TreeHash
from pytest_evo.protocols import Scope

RunKey = tuple[TreeHash, CaseId, int]
"""Names a rollout for ever: tree, case, repeat."""


class ScopeLog:
    """Collects the events of a baseline, an iteration or a final measurement.

    ``note`` makes an event survive a kill at once; ``settle`` gives it its place in the
    canonical order in which ``close`` writes the scope to the journal. What a killed
    session noted is found again by what it is: a proposal by (step, attempt), a rollout
    by (tree, case, repeat).
    """

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self.events: list[Event] = []
        self.found = tuple(scope.found)
        self._ran = [row for row in self.found if isinstance(row, RolloutRecorded)]
        self._proposals: dict[tuple[int, int], ProposalMade] = {}
        self._diagnoses: dict[int, DiagnosesMade] = {}
        for event in self.found:
            if isinstance(event, ProposalMade):
                self._proposals[event.step, event.attempt] = event
            elif isinstance(event, DiagnosesMade):
                self._diagnoses[event.step] = event

    def note(self, event: Event, *, commit: bool = False) -> None:
        """Make an event survive a kill; with ``commit`` also a power loss."""
        self._scope.note(event, commit=commit)
        if isinstance(event, RolloutRecorded):
            self._ran.append(event)

    def settle(self, *events: Event) -> None:
        """Give events that were noted, or need no note, their canonical place."""
        self.events.extend(events)

    def write(self, event: ProposalMade | DiagnosesMade | AcceptanceDecided) -> None:
        """Note and settle at once, where the order is canonical by itself."""
        if event not in self.found:
            self.note(event)
        self.settle(event)

    def proposal(self, step: int, attempt: int) -> ProposalMade | None:
        """The answer that an earlier session paid for."""
        return self._proposals.get((step, attempt))

    def diagnoses(self, step: int) -> DiagnosesMade | None:
        """The diagnoses that an earlier session paid for."""
        return self._diagnoses.get(step)

    def rollouts(self) -> list[RolloutRecorded]:
        """Rollouts that an earlier session finished in this scope, lost ones too."""
        return [event for event in self.found if isinstance(event, RolloutRecorded)]

    def keep_unanswered(self, event: CallsLost) -> None:
        """Keep what a step that is stopped has spent, if it has."""
        if event.usage != NO_USAGE:
            self.note(event, commit=True)

    def unanswered(self) -> list[CallsLost]:
        """Calls of models that earlier sessions cut off in this scope."""
        return [event for event in self.found if isinstance(event, CallsLost)]

    def keep_tab(self, event: TabKept) -> None:
        """Keep what a step that is under way has spent by now."""
        self.note(event)

    def cut_off(self) -> list[CallsLost]:
        """What steps had spent that a kill ended, as far as nobody charged it yet."""
        spending: dict[tuple[str, int], TabKept] = {}
        for event in self.found:
            match event:
                case TabKept():
                    spending[event.role, event.step] = event
                case CallsLost():
                    spending.pop((event.role, event.step), None)
                case ProposalMade():
                    spending.pop(("proposer", event.step), None)
                case DiagnosesMade():
                    spending.pop(("diagnoser", event.step), None)
        return [
            CallsLost(tab.iteration, tab.step, tab.role, tab.usage)
            for tab in spending.values()
            if tab.usage != NO_USAGE
        ]

    def unused(self) -> list[RolloutRecorded]:
        """Rollouts that ran in this scope and that no step settled.

        A step that the budget stops half-way leaves them, or a resumed one that cannot
        afford what an earlier session could. They were paid for.
        """
        settled = {
            (row.tree, row.case, row.repeat, row.attempt)
            for row in self.events
            if isinstance(row, RolloutRecorded) and row.outcome is not Outcome.LOST
        }
        left = [
            row
            for row in self._ran
            if row.outcome is not Outcome.LOST
            and (row.tree, row.case, row.repeat, row.attempt) not in settled
        ]
        return sorted(left, key=lambda row: (row.tree, row.case, row.repeat))

    def lost(self) -> list[tuple[RequestStarted, CaseId, int]]:
        """Runs that an earlier session sent and never saw the end of."""
        ended: Counter[tuple[TreeHash, CaseId, int, int]] = Counter()
        for row in self.rollouts():
            ended[row.tree, row.case, row.repeat, row.attempt] += 1
        missing: list[tuple[RequestStarted, CaseId, int]] = []
        for event in self.found:
            if not isinstance(event, RequestStarted):
                continue
            for case, repeat in event.runs:
                key = (event.tree, case, repeat, event.attempt)
                if ended[key] > 0:
                    ended[key] -= 1
                else:
                    missing.append((event, case, repeat))
        return missing

    def settle_lost(self) -> None:
        """Keep what was charged as lost in the canonical events."""
        self.settle(
            *(event for event in self.rollouts() if event.outcome is Outcome.LOST)
        )

    def close(self, *last: Event) -> None:
        """Move everything into the journal, with ``last`` at the end."""
        self.settle(*last)
        self._scope.close(self.events)
