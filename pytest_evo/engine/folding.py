"""What a loop reads out of recorded events: scopes, and the figures of the start."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

from pytest_evo.engine.setup import StartFigures
from pytest_evo.events import Event
from pytest_evo.events import FinalMeasured
from pytest_evo.events import IsolationChosen
from pytest_evo.events import IterationClosed
from pytest_evo.events import NoiseMeasured
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import RunResumed
from pytest_evo.events import RunStopped
from pytest_evo.models import CaseId
from pytest_evo.models import Purpose

CLOSING = (
    NoiseMeasured,
    IterationClosed,
    FinalMeasured,
    IsolationChosen,
    RunStopped,
    RunResumed,
)


def closed_scopes(events: Iterable[Event]) -> Iterator[list[Event]]:
    """Group replayed events into scopes: each ends with its closing record."""
    scope: list[Event] = []
    for event in events:
        scope.append(event)
        if isinstance(event, CLOSING):
            yield scope
            scope = []
    if scope:
        yield scope


def start_figures(events: Sequence[Event]) -> StartFigures:
    """What the start scored and cost, from the events of the baseline."""
    scores: dict[CaseId, list[float]] = {}
    seconds: dict[CaseId, float] = {}
    usage: dict[CaseId, tuple[int, float]] = {}
    traces: dict[CaseId, str] = {}
    for event in events:
        if not isinstance(event, RolloutRecorded) or event.score is None:
            continue
        if event.purpose is Purpose.PROBE:
            continue
        scores.setdefault(event.case, []).append(event.score)
        seconds.setdefault(event.case, event.seconds)
        usage.setdefault(event.case, (event.usage.tokens, event.usage.counted_usd))
        if event.trace is not None:
            traces.setdefault(event.case, event.trace)
    averages = {case: sum(row) / len(row) for case, row in scores.items()}
    return StartFigures(averages, seconds, usage, traces)
