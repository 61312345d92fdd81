"""Writes everything that a gate leaves: files for CI, and the job's summary."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.errors import UsageProblem
from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.record import record_text
from pytest_evo.gate.values import GateDecision
from pytest_evo.gate_reports.annotations import workflow_commands
from pytest_evo.gate_reports.junit import gate_junit
from pytest_evo.gate_reports.markdown import gate_markdown
from pytest_evo.gate_reports.metrics import gate_metrics
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.publish import make_reports_dir
from pytest_evo.publish import remove_stale
from pytest_evo.publish import write_parts
from pytest_evo.publish import write_report

SUMMARY_LIMIT = 1_000_000
"""GitHub drops the whole summary of a step above 1 MiB, with what others wrote."""


@dataclass(frozen=True, slots=True)
class GateFiles:
    """What was written, and the workflow commands to print."""

    files: tuple[Path, ...]
    commands: tuple[str, ...] = ()


def publish_gate(
    decision: GateDecision,
    record: GateRecord,
    reports: Path,
    *,
    details: Mapping[CaseId, Detail],
    environment: Mapping[str, str] = os.environ,
) -> GateFiles:
    """Write ``junit.xml``, ``summary.md``, ``metrics.txt`` and ``gate.json``.

    In a GitHub job the summary is added to the job's, and commands are returned that
    annotate the artifact's files.

    Raises:
        UsageProblem: a file cannot be written.
    """
    markdown = gate_markdown(decision, record)
    try:
        make_reports_dir(reports)
        junit = gate_junit(decision, record, details)
        files = write_parts(reports / "junit.xml", junit)
        for name, text in (
            ("summary.md", markdown),
            ("metrics.txt", gate_metrics(decision, record)),
            ("gate.json", record_text(record, decision)),
        ):
            files.append(reports / name)
            write_report(files[-1], text.encode("utf-8", "replace"))
        remove_stale(reports, files)
        _add_to_summary(markdown, environment.get("GITHUB_STEP_SUMMARY"))
    except OSError as error:
        raise UsageProblem(
            f"cannot write {error.filename or reports}: {error.strerror or error}. "
            "Make it writable, with room on the disk, or choose another place with "
            "--evo-reports=DIR."
        ) from error
    in_github = environment.get("GITHUB_ACTIONS") == "true"
    commands = workflow_commands(decision, record) if in_github else []
    return GateFiles(tuple(files), tuple(commands))


def _add_to_summary(markdown: str, place: str | None) -> None:
    if not place:
        return
    path = Path(place)
    data = markdown.encode("utf-8", "replace")
    used = path.stat().st_size if path.exists() else 0
    if used + len(data) > SUMMARY_LIMIT:
        return
    with path.open("ab") as summary:
        summary.write(data)
