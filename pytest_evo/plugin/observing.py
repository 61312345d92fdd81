"""What happens in the engine, passed on: to the display, hooks, the run's folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest

from pytest_evo.artifact.copies import COPIED
from pytest_evo.engine.recording import as_rollout
from pytest_evo.engine.state import as_candidate
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import DiagnosesMade
from pytest_evo.events import Event
from pytest_evo.events import IterationClosed
from pytest_evo.events import ProposalMade
from pytest_evo.events import RolloutRecorded
from pytest_evo.hostile import one_line
from pytest_evo.models import Candidate
from pytest_evo.models import candidate_id
from pytest_evo.models import CandidateId
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.plugin import hooks
from pytest_evo.plugin.terminal import LiveDisplay
from pytest_evo.reports.console import Line
from pytest_evo.reports.console import ProgressState
from pytest_evo.reports.console import PROJECTION_AFTER
from pytest_evo.reports.console import Spending
from pytest_evo.store.candidates import CandidateFiles

if TYPE_CHECKING:
    from pytest_evo.engine.loop import Loop

_PHASES = {
    Purpose.BASELINE: "baseline",
    Purpose.PROBE: "probe of reach",
    Purpose.NOISE: "noise",
    Purpose.FINAL: "final measurement",
    Purpose.VALIDATION: "validation",
}
_ON_BATCH = frozenset({Purpose.CHILD, Purpose.CHAIN})


class RunObserver:
    """Hears of every event on the engine's thread."""

    def __init__(
        self, config: pytest.Config, display: LiveDisplay, candidates: CandidateFiles
    ) -> None:
        self._config = config
        self._display = display
        self._candidates = candidates
        self._loop: Loop | None = None
        self._phase = "baseline"
        self._iteration = 0
        self._depth = 0
        self._accepted = 0
        self._start_val: float | None = None
        self._measured = 0
        self._seconds = 0.0
        self._projected = False
        self._complained = False
        self._copies_told = False
        self._rollouts: dict[CandidateId, list[Rollout]] = {}
        self._known: dict[CandidateId, Candidate] = {}

    def follow(self, loop: Loop) -> None:
        """Say which loop the figures are read from."""
        self._loop = loop

    def notice(self, event: Event) -> None:
        """React to one event."""
        if isinstance(event, RolloutRecorded):
            self._ran(event)
        elif isinstance(event, ProposalMade):
            self._proposed(event)
        elif isinstance(event, DiagnosesMade):
            self._diagnosed(event)
        elif isinstance(event, CandidateRecorded):
            self._recorded(event)
        elif isinstance(event, IterationClosed):
            self._closed(event)
        self._show()

    # -- events ------------------------------------------------------------------------

    def _ran(self, event: RolloutRecorded) -> None:
        self._phase = _PHASES.get(event.purpose, "search")
        if event.outcome is not Outcome.LOST:
            self._measured += 1
            self._seconds += event.seconds
        if event.purpose in _ON_BATCH:
            candidate = Candidate(event.candidate, event.tree)
            rollout = as_rollout(event, self._known.get(event.candidate, candidate))
            self._rollouts.setdefault(event.candidate, []).append(rollout)

    def _proposed(self, event: ProposalMade) -> None:
        self._iteration = max(self._iteration, event.iteration)
        self._depth = event.step
        self._phase = "search"
        if event.tree is None:
            return
        self._warn_of_copies(event)
        candidate = Candidate(
            id=candidate_id(event.iteration, event.step),
            tree=event.tree,
            base=event.base,
            iteration=event.iteration,
            step=event.step,
            changelog=event.changelog,
            data=event.data,
        )
        self._known[candidate.id] = candidate
        hooks.candidate_created(self._config, candidate)

    def _warn_of_copies(self, event: ProposalMade) -> None:
        """Say the first time that an edit copies cases; the journal has all of them."""
        found = [text for text in event.warnings if text.startswith(COPIED)]
        if found and not self._copies_told:
            self._copies_told = True
            name = candidate_id(event.iteration, event.step)
            text = f"evo: {name}: {one_line(found[0], 500)}"
            self._display.note([Line(text, "yellow")])

    def _diagnosed(self, event: DiagnosesMade) -> None:
        """Say once that diagnoses are missing; the journal has all of it."""
        if event.problems and not self._complained:
            self._complained = True
            why = one_line(event.problems[0], 300)
            text = f"evo: a diagnosis is missing, the run goes on without it: {why}"
            self._display.note([Line(text)])

    def _recorded(self, event: CandidateRecorded) -> None:
        candidate = as_candidate(event)
        self._known[candidate.id] = candidate
        base = self._tree_of(event.base)
        self._candidates.write(event.id, event.tree, base, event.changelog)
        rollouts = self._rollouts.get(event.id)
        if rollouts:
            hooks.candidate_evaluated(self._config, candidate, rollouts)

    def _tree_of(self, candidate: CandidateId | None) -> str | None:
        if candidate is None:
            return None
        if candidate in self._known:
            return self._known[candidate].tree
        state = self._loop.state if self._loop else None
        found = state.candidates.get(candidate) if state else None
        return found.tree if found else None

    def _closed(self, event: IterationClosed) -> None:
        self._iteration = max(self._iteration, event.iteration)
        self._accepted += event.accepted
        chain = [
            row for row in self._known.values() if row.iteration == event.iteration
        ]
        if event.iteration and chain:
            parent = Candidate(event.parent, self._tree_of(event.parent) or "")
            nodes = [Node(parent)]
            nodes += [
                Node(row, tuple(self._rollouts.get(row.id, ())))
                for row in sorted(chain, key=lambda row: row.step)
            ]
            hooks.chain_finished(self._config, nodes, event.accepted)
        for row in chain:
            self._rollouts.pop(row.id, None)
            self._known.pop(row.id, None)

    # -- figures -----------------------------------------------------------------------

    def _show(self) -> None:
        loop = self._loop
        if loop is None:
            return
        population = loop.state.population
        if self._start_val is None and population:
            self._start_val = population[0].mean
        elapsed = loop.elapsed()
        limits = loop.budget.limits
        self._display.update(
            ProgressState(
                phase=self._phase,
                iteration=self._iteration,
                best_val=population[0].mean if population else None,
                start_val=self._start_val,
                rollouts_used=loop.budget.total,
                rollouts_limit=limits.rollouts,
                depth=self._depth if self._phase == "search" else 0,
                in_flight=loop.in_flight,
                elapsed=elapsed,
                seconds_per_rollout=self._seconds / max(1, self._measured),
                accepted=self._accepted,
            )
        )
        if not self._projected and self._measured >= PROJECTION_AFTER:
            self._projected = True
            self._display.project(Spending(elapsed, self._used(loop)))

    def _used(self, loop: Loop) -> Mapping[str, tuple[float, float]]:
        budget, limits = loop.budget, loop.budget.limits
        rows = {
            "rollouts": (float(budget.total), limits.rollouts),
            "iterations": (float(self._iteration), limits.iterations),
            "tokens": (float(budget.tokens), limits.tokens),
            "time": (loop.elapsed(), limits.seconds),
            "usd": (budget.usd, limits.usd),
        }
        return {
            name: (used, float(limit))
            for name, (used, limit) in rows.items()
            if limit is not None
        }
