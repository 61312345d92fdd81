"""The user's own ``--junitxml``: it receives the winner's cases."""

from __future__ import annotations

from typing import Any

import pytest
from _pytest.junitxml import xml_key

from pytest_evo.reports.model import RunReport


def report_winner(config: pytest.Config, run: RunReport) -> None:
    """Hand the winner's latest report of each case to pytest's JUnit writer."""
    writer: Any = config.stash.get(xml_key, None)
    if writer is None:
        return
    latest = {row.case: row for row in run.rollouts.get(run.winner, ())}
    for case in sorted(latest):
        for data in run.detail(latest[case]).serialized:
            report = config.hook.pytest_report_from_serializable(
                config=config, data=dict(data)
            )
            if isinstance(report, pytest.TestReport):
                writer.pytest_runtest_logreport(report)
