"""The suite as it was at the base: collected in a copy, and what is gone is run there.

Both sides of the gate run today's tests, so only the base's own suite can show that a
test was removed, and whether it passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_evo.gate.baseline import short_body
from pytest_evo.gate.suite import compare_suites
from pytest_evo.gate.suite import KnownCase
from pytest_evo.models import CaseId
from pytest_evo.plugin.gating.copies import run_in_copy
from pytest_evo.plugin.gating.copies import selection

MOST_RUN = 100
"""Removed cases that are run at most; of more it is not known how they ended."""


def base_suite(
    config: pytest.Config,
    project: Path,
    scratch: Path,
    bodies: Mapping[CaseId, str],
    notes: list[str],
) -> tuple[KnownCase, ...] | None:
    """The cases of the base; None where its suite cannot be collected.

    Args:
        config: of this session, for what it was told to collect.
        project: a copy of the base, artifact and all.
        scratch: a folder for what the sessions write.
        bodies: the cases of this session.
        notes: gets what a person should know.
    """
    arguments = [*selection(config, project), "--co"]
    found = run_in_copy(config, project, scratch / "collected.json", arguments).cases
    if not found:
        notes.append(
            "the suite at the base could not be collected, so removed cases are not "
            "seen; --evo-gate=baseline compares with the cases of a file"
        )
        return None
    known = tuple(
        KnownCase(case, short_body(row["body"]), None) for case, row in found.items()
    )
    gone = [row.id for row in compare_suites(known, bodies).removed]
    if not gone or len(gone) > MOST_RUN:
        return known
    ran = run_in_copy(config, project, scratch / "ran.json", gone).cases
    outcomes = {case: row["outcome"] for case, row in ran.items()}
    return tuple(_with_outcome(case, outcomes.get(case.id, "")) for case in known)


def _with_outcome(case: KnownCase, outcome: str) -> KnownCase:
    return replace(case, passed=outcome == "passed") if outcome else case
