"""The user's own ``--junitxml``: it receives the cases of the winner, or the head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from _pytest.junitxml import xml_key

from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Json
from pytest_evo.reports.model import RunReport

_NO_REPORT = (AssertionError, AttributeError, LookupError, TypeError, ValueError)
"""What pytest raises for data of another shape, which a candidate could have sent."""


def report_winner(config: pytest.Config, run: RunReport) -> None:
    """Hand the winner's latest report of each case to pytest's JUnit writer."""
    if config.stash.get(xml_key, None) is None:
        return
    latest = {row.case: row for row in run.rollouts.get(run.winner, ())}
    report_cases(config, {case: run.detail(row) for case, row in latest.items()})


def report_cases(config: pytest.Config, details: Mapping[CaseId, Detail]) -> None:
    """Hand one rollout of each case to pytest's JUnit writer, where there is one."""
    writer: Any = config.stash.get(xml_key, None)
    if writer is None:
        return
    for case in sorted(details):
        for data in details[case].serialized:
            report = _report(config, data)
            if report is not None:
                writer.pytest_runtest_logreport(report)


def _report(
    config: pytest.Config, data: Mapping[str, Json]
) -> pytest.TestReport | None:
    """A report as pytest had it, or None where the rollout sent something else."""
    try:
        report = config.hook.pytest_report_from_serializable(
            config=config, data=dict(data)
        )
    except _NO_REPORT:
        return None
    return report if isinstance(report, pytest.TestReport) else None
