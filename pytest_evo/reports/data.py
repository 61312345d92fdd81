"""A run as plain data, for programs: what ``pytest-evo show --json`` prints."""

from __future__ import annotations

from dataclasses import asdict

from pytest_evo.reports.model import RunReport
from pytest_evo.reports.model import Standing
from pytest_evo.reports.model import standings
from pytest_evo.reports.tiers import sinkings


def run_data(run: RunReport) -> dict[str, object]:
    """Everything but rollouts and diff; candidates best first."""
    final, stop = run.final, run.stop
    return {
        "id": run.id,
        "created": run.created,
        "artifact": run.artifact,
        "objective": run.objective,
        "seed": run.seed,
        "complete": run.complete,
        "winner": run.winner if run.has_start else None,
        "claim": None if final is None else asdict(final.claim),
        "cases": {case.id: case.split for case in run.cases},
        "left_out": dict(run.left_out),
        "candidates": [_candidate(one) for one in standings(run)],
        "iterations": [asdict(closed) for closed in run.iterations],
        "bypassed": [asdict(one) for one in sinkings(run)],
        "rollouts": dict(run.spent),
        "usage": {role: asdict(usage) for role, usage in run.usage.items()},
        "stop": None if stop is None else asdict(stop),
    }


def _candidate(one: Standing) -> dict[str, object]:
    record = one.record
    figures = {key: value for key, value in asdict(one).items() if key != "record"}
    return {
        "id": record.id,
        "parent": record.parent,
        "iteration": record.iteration,
        "step": record.step,
        "status": record.status,
        "tree": record.tree,
        **figures,
    }
