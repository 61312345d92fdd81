"""Sessions of pytest in a copy of the project: which cases there are, how they end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

import pytest

from pytest_evo.models import CaseId
from pytest_evo.plugin.declared import ARTIFACT_VARIABLE
from pytest_evo.plugin.gating.lister import VARIABLE

_SECONDS = 600.0
_SELECTING = ("-k", "-m")


@dataclass(frozen=True, slots=True)
class Listing:
    """What a session in a copy told."""

    cases: Mapping[CaseId, Mapping[str, str]] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)  # of collection, by node id
    ended: str = ""  # why it told nothing


def selection(config: pytest.Config, project: Path) -> list[str]:
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


def run_in_copy(
    config: pytest.Config, project: Path, listing: Path, arguments: Sequence[str]
) -> Listing:
    """Run a session in the copy ``project``, which writes the file ``listing``."""
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
        done = subprocess.run(
            command,
            cwd=project,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Listing(ended=f"it did not end within {_SECONDS:g} s")
    try:
        found = json.loads(listing.read_text(encoding="utf-8"))
        return Listing(found["cases"], found["errors"])
    except (OSError, ValueError, LookupError, TypeError):
        return Listing(ended=f"the process ended with status {done.returncode}")
