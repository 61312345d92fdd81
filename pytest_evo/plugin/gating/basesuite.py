"""The suite as it was at the base: collected in a copy, and what is gone is run there.

Both sides of the gate run today's tests, so only the base's own suite can show that a
test was removed, and whether it passed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_evo.gate.baseline import short_body
from pytest_evo.gate.suite import compare_suites
from pytest_evo.gate.suite import KnownCase
from pytest_evo.models import CaseId
from pytest_evo.plugin.declared import ARTIFACT_VARIABLE
from pytest_evo.plugin.gating.lister import VARIABLE

MOST_RUN = 100
"""Removed cases that are run at most; of more it is not known how they ended."""
_SECONDS = 600.0
_SELECTING = ("-k", "-m")


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
    selected = _selection(config, project)
    found = _session(config, project, scratch / "collected.json", [*selected, "--co"])
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
    ran = _session(config, project, scratch / "ran.json", gone)
    outcomes = {case: row["outcome"] for case, row in ran.items()}
    return tuple(_with_outcome(case, outcomes.get(case.id, "")) for case in known)


def _with_outcome(case: KnownCase, outcome: str) -> KnownCase:
    return replace(case, passed=outcome == "passed") if outcome else case


def _selection(config: pytest.Config, project: Path) -> list[str]:
    """What the command line chose, as far as the base has it."""
    chosen: list[str] = []
    given = [str(one) for one in config.invocation_params.args]
    for place, one in enumerate(given):
        if one in _SELECTING and place + 1 < len(given):
            chosen += [one, given[place + 1]]
        elif one[:2] in _SELECTING and not one.startswith("--"):
            chosen.append(one)
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        return chosen
    root = config.rootpath
    for one in config.args:
        name, colons, rest = one.partition("::")
        path = Path(config.invocation_params.dir, name)
        if not path.is_relative_to(root):
            continue
        moved = project / path.relative_to(root)
        if moved.exists():
            chosen.append(f"{moved}{colons}{rest}")
    return chosen


def _session(
    config: pytest.Config, project: Path, listing: Path, arguments: Sequence[str]
) -> dict[CaseId, dict[str, str]]:
    """Run a session in the copy; what it wrote, or nothing where it could not."""
    unwanted = (ARTIFACT_VARIABLE, "PYTEST_CURRENT_TEST")
    environment = {k: v for k, v in os.environ.items() if k not in unwanted}
    environment[VARIABLE] = str(listing)
    workers = ["-n", "0"] if config.pluginmanager.hasplugin("xdist") else []
    command = [
        sys.executable,
        "-m",
        "pytest",
        *("-p", "pytest_evo.plugin.gating.lister"),
        *("-p", "no:cacheprovider"),
        *workers,
        "-q",
        f"--rootdir={project}",
        "--continue-on-collection-errors",
        *arguments,
    ]
    try:
        subprocess.run(
            command,
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
        found = json.loads(listing.read_text(encoding="utf-8"))
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return found if isinstance(found, dict) else {}
