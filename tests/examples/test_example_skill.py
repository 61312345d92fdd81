"""The skill example: four repairs that only pass together, with and without a chain."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from example_copy import copy_of
from example_copy import loaded

from pytest_evo.proposers.patches import load_patch

EXAMPLE = Path(__file__).parents[2] / "example_projects" / "skill"
EDITS = sorted(path.name for path in (EXAMPLE / "edits").iterdir())
NEVER_DONE = [
    edits for count in range(len(EDITS)) for edits in combinations(EDITS, count)
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy, so that candidates and runs do not touch the example itself."""
    return copy_of("skill", tmp_path)


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    """The example's modules, gone from ``sys.modules`` afterwards."""
    with loaded(EXAMPLE, ("agent", "receipts")) as found:
        yield found


def passing(
    modules: dict[str, ModuleType], skill: Path
) -> tuple[int, list[dict[str, Any]]]:
    """How many receipts a skill gets right, and the steps of the first one."""
    right = 0
    steps: list[dict[str, Any]] = []
    for receipt in modules["receipts"].load_receipts():

        def note(step: str, receipt: Any = receipt, **data: Any) -> None:
            if receipt is modules["receipts"].load_receipts()[0]:
                steps.append({"step": step, **data})

        reply = modules["agent"].answer(skill, receipt.task, receipt.text, note)
        try:
            right += json.loads(reply)["cents"] == receipt.cents
        except (ValueError, TypeError):
            continue
    return right, steps


def repaired(project: Path, edits: tuple[str, ...]) -> Path:
    for name in edits:
        load_patch(EXAMPLE / "edits" / name).apply(project / "skill")
    return project / "skill"


@pytest.mark.parametrize("edits", NEVER_DONE, ids=lambda edits: "+".join(
    name[:2] for name in edits) or "none")  # fmt: skip
def test_some_of_the_repairs_pass_no_case_at_all(
    modules: dict[str, ModuleType], project: Path, edits: tuple[str, ...]
) -> None:
    assert passing(modules, repaired(project, edits))[0] == 0


def test_all_repairs_together_pass_every_case(
    modules: dict[str, ModuleType], project: Path
) -> None:
    right, steps = passing(modules, repaired(project, tuple(EDITS)))
    assert right == len(modules["receipts"].load_receipts()) == 40
    assert [step["step"] for step in steps] == [
        "choose a skill",
        "read workflow.md",
        "run",
        "reply",
    ]


def test_receipts_are_different_and_their_totals_are_those_of_their_items(
    modules: dict[str, ModuleType],
) -> None:
    receipts = modules["receipts"].load_receipts()
    assert len({receipt.text for receipt in receipts}) == len(receipts)
    for receipt in receipts:
        total = 0
        for line in receipt.text.splitlines()[1:]:
            amount = line.split()[-1].replace(".", "").replace(",", "")
            total += 0 if line.startswith("SUM") else int(amount)
        assert total == receipt.cents, receipt.id


def evolve(project: Path, *options: str) -> list[dict[str, Any]]:
    """Run, and read the journal."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "COV_", "COVERAGE_PROCESS"))
    }
    command = [sys.executable, "-m", "pytest", "--evolve", "-n", "2", *options]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--budget-rollouts=600"],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = (project / ".evo" / "runs").iterdir()
    lines = (run / "journal.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def scores(rows: list[dict[str, Any]], candidate: str) -> set[float]:
    return {
        row["score"]
        for row in rows
        if row["kind"] == "rollout" and row["candidate"] == candidate
    }


@pytest.mark.slow
def test_chain_breaks_through_where_every_step_before_scored_nothing(
    project: Path,
) -> None:
    rows = evolve(project)
    first = next(row for row in rows if row["kind"] == "iteration")
    assert (first["accepted"], first["child"], first["depth"]) == (True, "c0001-3", 3)
    for candidate in ("c0000", "c0001", "c0001-1", "c0001-2"):
        assert scores(rows, candidate) == {0.0}
    assert scores(rows, "c0001-3") == {1.0}
    (final,) = (row for row in rows if row["kind"] == "final")
    assert final["winner"] == "c0001-3"
    assert final["claim"]["split"] == "test"
    assert (final["claim"]["start"], final["claim"]["winner"]) == (0.0, 1.0)


@pytest.mark.slow
def test_without_a_chain_all_four_repairs_are_thrown_away(project: Path) -> None:
    rows = evolve(project, "--evo-chain-depth=0")
    tried = [row for row in rows if row["kind"] == "candidate" and row["parent"]]
    assert [row["status"] for row in tried] == ["rejected"] * len(EDITS)
    assert all(scores(rows, row["id"]) == {0.0} for row in tried)
    stop = rows[-1] if rows[-1]["kind"] == "stop" else rows[-2]
    assert stop["winner"] == "c0000"
    script = next(row for row in tried if "decimal" in str(row["changelog"]))
    assert script["changelog"][0]["effect"]["cases"] == []  # nothing ever runs it
