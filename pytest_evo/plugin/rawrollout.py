"""One rollout as the process that ran it knows it, and as plain data on its way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import fields
from typing import Any

from pytest_evo.models import Detail
from pytest_evo.models import Json
from pytest_evo.models import Metric
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import TraceStep
from pytest_evo.models import Usage

NO_DETAIL = Detail()
_USAGE = tuple(item.name for item in fields(Usage))


@dataclass(frozen=True, slots=True)
class RawRollout:
    """How one execution of a case ended.

    ``score`` is raw, and None unless the case passed or failed. ``seconds`` leaves out
    the set-up of fixtures that cases share. ``problem`` is what a person has to change
    before this case can be scored at all; a case that gave ``evo_score`` what is no
    score has failed besides.
    """

    outcome: Outcome
    score: float | None
    seconds: float = 0.0
    metrics: tuple[Metric, ...] = ()
    usage: Usage = NO_USAGE
    detail: Detail = NO_DETAIL
    problem: str | None = None

    def to_plain(self) -> dict[str, Json]:
        """As JSON can hold it; lone surrogates and NULs survive ASCII JSON."""
        detail = self.detail
        return {
            "outcome": self.outcome.value,
            "score": self.score,
            "seconds": self.seconds,
            "metrics": [[one.name, one.value, one.audit] for one in self.metrics],
            "usage": {name: getattr(self.usage, name) for name in _USAGE},
            "phases": [_phase_to_plain(phase) for phase in detail.phases],
            "steps": [[step.name, dict(step.data)] for step in detail.steps],
            "warnings": list(detail.warnings),
            "project_files": list(detail.project_files),
            "fixtures": dict(detail.fixtures),
            "serialized": [dict(report) for report in detail.serialized],
            "problem": self.problem,
        }

    @classmethod
    def from_plain(cls, data: Mapping[str, Any]) -> RawRollout:
        """The inverse of ``to_plain``.

        Raises:
            ValueError: the data has another shape.
        """
        try:
            return _from_plain(data)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(
                f"a rollout's data has the wrong shape: {error!r}"
            ) from error


def _from_plain(data: Mapping[str, Any]) -> RawRollout:
    score = data["score"]
    if score is not None and not (math.isfinite(score) and 0 <= score <= 1):
        raise ValueError(f"a rollout's score is outside [0, 1]: {score!r}")
    return RawRollout(
        outcome=Outcome(data["outcome"]),
        score=None if score is None else float(score),
        seconds=float(data["seconds"]),
        metrics=tuple(
            Metric(str(name), float(value), bool(audit))
            for name, value, audit in data["metrics"]
        ),
        usage=Usage(**data["usage"]),
        detail=Detail(
            phases=tuple(_phase_from_plain(phase) for phase in data["phases"]),
            steps=tuple(TraceStep(str(name), step) for name, step in data["steps"]),
            warnings=tuple(data["warnings"]),
            project_files=tuple(data["project_files"]),
            fixtures=dict(data["fixtures"]),
            serialized=tuple(data["serialized"]),
        ),
        problem=data["problem"],
    )


def _phase_to_plain(phase: Phase) -> dict[str, Json]:
    return {
        "when": phase.when,
        "outcome": phase.outcome,
        "seconds": phase.seconds,
        "message": phase.message,
        "longrepr": phase.longrepr,
        "sections": [[title, text] for title, text in phase.sections],
        "properties": [[name, value] for name, value in phase.properties],
        "xfail": phase.xfail,
        "file": phase.file,
        "line": phase.line,
    }


def _phase_from_plain(data: Mapping[str, Any]) -> Phase:
    return Phase(
        when=str(data["when"]),
        outcome=str(data["outcome"]),
        seconds=float(data["seconds"]),
        message=str(data["message"]),
        longrepr=str(data["longrepr"]),
        sections=tuple((str(title), str(text)) for title, text in data["sections"]),
        properties=tuple((str(name), str(text)) for name, text in data["properties"]),
        xfail=data["xfail"],
        file=str(data["file"]),
        line=data["line"],
    )
