"""``pytest-evo gate``: decides a gate again from its record; nothing is run."""

from __future__ import annotations

import argparse
import json
from datetime import date
from pathlib import Path

from pytest_evo.errors import BaselineProblem
from pytest_evo.errors import UsageProblem
from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.record import read_record
from pytest_evo.gate_reports.console import verdict_lines
from pytest_evo.gate_reports.publish import publish_gate
from pytest_evo.reports.console import Line


def add_gate_options(parser: argparse.ArgumentParser) -> None:
    """What can be typed behind ``pytest-evo gate``."""
    parser.add_argument(
        "record",
        nargs="?",
        default="evo-reports/gate.json",
        metavar="GATE_JSON",
        help="what pytest --evo-gate wrote (evo-reports/gate.json)",
    )
    parser.add_argument(
        "--policy",
        choices=("default", "strict"),
        help="whether an open question fails (as it was decided)",
    )
    parser.add_argument(
        "--margin", type=_share, metavar="SHARE", help="a loss that still passes"
    )
    parser.add_argument(
        "--tolerance",
        type=_share,
        metavar="SHARE",
        help="cases, by weight, that may come out worse",
    )
    parser.add_argument(
        "--max-errors",
        type=_share,
        metavar="SHARE",
        help="cases that infrastructure may take away",
    )
    parser.add_argument(
        "--accept-removed",
        action="store_true",
        help="let cases go that used to pass",
    )
    parser.add_argument("--reports", metavar="DIR", help="write the reports again")
    parser.add_argument("--json", action="store_true", help="for programs")


def decide_again(options: argparse.Namespace) -> tuple[list[Line], int]:
    """The verdict on a record under the rules that were typed, and the exit code.

    Raises:
        UsageProblem: the record cannot be read, or a report cannot be written.
    """
    path = Path(options.record)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BaselineProblem(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}. "
            "Type the path of the gate.json that pytest --evo-gate wrote."
        ) from error
    record = _under(read_record(text, path.name), options)
    decision = record.decision()
    if options.reports:
        publish_gate(decision, record, Path(options.reports), details={})
    if options.json:
        data = {
            "verdict": decision.verdict.value,
            "exit_code": int(decision.exit_code),
            "reasons": [reason.text for reason in decision.reasons],
        }
        return [Line(json.dumps(data, indent=2))], int(decision.exit_code)
    return verdict_lines(decision, record), int(decision.exit_code)


def _under(record: GateRecord, options: argparse.Namespace) -> GateRecord:
    changes: dict[str, object] = {"today": date.today()}
    if options.policy is not None:
        changes["strict"] = options.policy == "strict"
    if options.margin is not None:
        changes["margin"] = options.margin
    if options.tolerance is not None:
        changes["tolerance"] = options.tolerance
    if options.max_errors is not None:
        changes["max_error_rate"] = options.max_errors
    if options.accept_removed:
        changes["accept_removed"] = True
    return record.with_policy(**changes)


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UsageProblem(f"{text!r} is no share: type a number from 0 to 1 like 0.03")
    return value
