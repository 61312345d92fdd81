"""Evidence as files, for proposers that read a directory.

Only train rollouts get here. What is written comes from tests and candidates, so every
text in it is hostile: it is escaped, cut to a length and never used as a path.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pytest_evo.diagnosis.history import CaseHistory
from pytest_evo.diagnosis.history import Facts
from pytest_evo.diagnosis.history import measure
from pytest_evo.diagnosis.history import score_history
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Node
from pytest_evo.models import Rollout
from pytest_evo.models import Split

MOST_TEXT = 20_000
"""Characters that are kept of one text; the middle is left out."""

_README = """\
# Evidence

Everything here is measured on train cases. Nothing here is read back.

- `scores.md`, `scores.json`: every case over the nodes so far, the parent first
- `changelog.md`: what each node changed, and why it said so
- `facts.md`, `facts.json`: edited files that were never read, cases that oscillate,
  wins that were lost
- `diagnoses.json`: earlier readings, where there are any
- `rollouts/<node>/<case>.json`: outcome, score, failure, output and trace steps
"""


def write_evidence(
    folder: Path,
    nodes: Sequence[Node],
    cases: Sequence[Case],
    detail: Callable[[str], Detail] | None = None,
) -> None:
    """Write what is known of a chain into a folder.

    Args:
        folder: is made if it is not there.
        nodes: the chain so far, parent first.
        cases: the cases of the batch.
        detail: reads a rollout's detail by its ``trace``; without it, and where a
            rollout brings its own, none is read.

    Raises:
        ValueError: a case is not a train case, or a rollout is of another case. It
            would show a proposer what it is measured by; nothing is written.
    """
    _check_train_only(nodes, cases)
    folder.mkdir(parents=True, exist_ok=True)
    rows = score_history(nodes)
    facts = measure(nodes)
    _write(folder / "README.md", _README)
    _write(folder / "scores.md", _scores_text(nodes, rows))
    _write_json(folder / "scores.json", _scores_data(nodes, rows))
    _write(folder / "changelog.md", _changelog_text(nodes))
    _write(folder / "facts.md", _facts_text(facts))
    _write_json(folder / "facts.json", asdict(facts))
    diagnoses = [
        {"node": node.candidate.id, **asdict(diagnosis)}
        for node in nodes
        for diagnosis in node.diagnoses
    ]
    if diagnoses:
        _write_json(folder / "diagnoses.json", diagnoses)
    for node in nodes:
        _write_rollouts(folder / "rollouts" / _slug(node.candidate.id), node, detail)


def _check_train_only(nodes: Sequence[Node], cases: Sequence[Case]) -> None:
    held_out = [case.id for case in cases if case.split is not Split.TRAIN]
    if held_out:
        raise ValueError(
            f"evidence may show train cases only, and {held_out[0]!r} is none"
        )
    known = {case.id for case in cases}
    for node in nodes:
        for rollout in node.rollouts:
            if rollout.case not in known:
                raise ValueError(
                    f"evidence may show the batch only, and {rollout.case!r} of "
                    f"{node.candidate.id} is not in it"
                )


# -- tables ------------------------------------------------------------------------


def _scores_text(nodes: Sequence[Node], rows: Sequence[CaseHistory]) -> str:
    names = [_cell(node.candidate.id) for node in nodes]
    head = ["case", *names, "against parent", "against the node before"]
    lines = ["# Scores", "", "Nodes from left to right, the parent first.", ""]
    lines += [_row(head), _row(["---"] * len(head))]
    lines += [
        _row(
            [
                _cell(row.case),
                *(_point(score) for score in row.scores),
                _signed(row.against_parent),
                _signed(row.against_before),
            ]
        )
        for row in rows
    ]
    lines.append(
        _row(["**weighted mean**", *(_point(node.mean) for node in nodes), "", ""])
    )
    return "\n".join(lines) + "\n"


def _scores_data(nodes: Sequence[Node], rows: Sequence[CaseHistory]) -> Any:
    return {
        "nodes": [
            {
                "id": node.candidate.id,
                "base": node.candidate.base,
                "iteration": node.candidate.iteration,
                "step": node.candidate.step,
                "mean": node.mean,
            }
            for node in nodes
        ],
        "cases": [
            {
                "case": row.case,
                "scores": row.scores,
                "outcomes": row.outcomes,
                "against_parent": row.against_parent,
                "against_before": row.against_before,
            }
            for row in rows
        ],
    }


def _changelog_text(nodes: Sequence[Node]) -> str:
    lines = ["# Changelog", "", "Newest last. What changed is computed, why is told."]
    for place, node in enumerate(nodes):
        role = "the parent" if place == 0 else f"from {node.candidate.base}"
        mean = _point(node.mean)
        lines += ["", f"## {_cell(node.candidate.id)} ({_cell(role)}, mean {mean})", ""]
        if not node.candidate.changelog:
            lines.append("No entries.")
        for entry in node.candidate.changelog:
            lines.append(
                f"- `{_cell(entry.file)}` {entry.change}: {_cell(entry.reason)}"
            )
            lines += [f"  - seen: {_cell(seen)}" for seen in entry.evidence]
            if entry.expected:
                lines.append(f"  - expected: {_cell(entry.expected)}")
    return "\n".join(lines) + "\n"


def _facts_text(facts: Facts) -> str:
    lines = ["# Measured facts", "", "## Edited files", ""]
    for reach in facts.reach:
        said = f"read in {reach.reached} of {reach.rollouts} rollouts"
        if reach.unsure:
            said += f", {reach.unsure} more could have read it unseen"
        if reach.never:
            said = f"NEVER read in {reach.rollouts} rollouts: the edit had no effect"
        lines.append(f"- {_cell(reach.node)} `{_cell(reach.file)}`: {said}")
    if not facts.reach:
        lines.append("None yet.")
    for title, cases in (
        ("Cases lost since the parent", facts.lost),
        ("Cases won since the parent", facts.won),
        ("Cases that go up and down", facts.oscillating),
        ("Cases that no node has moved", facts.unmoved),
    ):
        lines += ["", f"## {title}", "", *_listed(cases)]
    if facts.twins:
        lines += ["", "## Nodes with the same files", ""]
        lines += [f"- {_cell(one)} and {_cell(two)}" for one, two in facts.twins]
    return "\n".join(lines) + "\n"


def _listed(cases: Sequence[CaseId]) -> list[str]:
    return [f"- `{_cell(case)}`" for case in cases] or ["None."]


# -- rollouts ----------------------------------------------------------------------


def _write_rollouts(
    folder: Path, node: Node, detail: Callable[[str], Detail] | None
) -> None:
    by_case: dict[CaseId, list[Rollout]] = {}
    for rollout in node.rollouts:
        by_case.setdefault(rollout.case, []).append(rollout)
    if by_case:
        folder.mkdir(parents=True, exist_ok=True)
    for case, rollouts in by_case.items():
        data = {
            "case": case,
            "node": node.candidate.id,
            "rollouts": [_rollout_data(rollout, detail) for rollout in rollouts],
        }
        _write_json(folder / f"{_slug(case)}.json", data)


def _rollout_data(rollout: Rollout, read: Callable[[str], Detail] | None) -> Any:
    detail = rollout.detail
    if detail is None and rollout.trace is not None and read is not None:
        detail = read(rollout.trace)
    data = {
        "repeat": rollout.repeat,
        "outcome": rollout.outcome,
        "score": rollout.score,
        "seconds": round(rollout.seconds, 3),
        "metrics": [asdict(metric) for metric in rollout.metrics],
        "tokens": rollout.usage.tokens,
        "read": {
            "files": rollout.reach.files,
            "certain": rollout.reach.exact,
        },
        "violation": rollout.violation,
    }
    if detail is None:
        return data
    return {
        **data,
        "phases": [
            {
                "when": phase.when,
                "outcome": phase.outcome,
                "message": phase.message,
                "failure": phase.longrepr,
                "output": [list(section) for section in phase.sections],
            }
            for phase in detail.phases
        ],
        "steps": [{"name": step.name, "data": step.data} for step in detail.steps],
        "warnings": detail.warnings,
    }


# -- text --------------------------------------------------------------------------


def _slug(name: str) -> str:
    """A file name for any text: readable in front, unique by its end."""
    readable = re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:80]
    if readable == name:
        return readable
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:10]
    return f"{readable}-{digest}" if readable else digest


def _cell(text: str | None) -> str:
    """Text that stays within one cell or line of Markdown."""
    plain = re.sub(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+", " ", text or "")
    return _cut(plain.replace("\\", "\\\\").replace("|", "\\|").replace("`", "'"))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _point(score: float | None) -> str:
    return "-" if score is None else f"{score:.4g}"


def _signed(change: float | None) -> str:
    return "-" if change is None else f"{change:+.4g}"


def _cut(text: str) -> str:
    if len(text) <= MOST_TEXT:
        return text
    half = MOST_TEXT // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]} [... {left_out} characters left out ...] {text[-half:]}"


def _short(data: Any) -> Any:
    """The same data with long texts cut."""
    if isinstance(data, str):
        return _cut(data)
    if isinstance(data, dict):
        return {_cut(str(key)): _short(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_short(value) for value in data]
    return data


def _write(path: Path, text: str) -> None:
    # a lone surrogate becomes \udcxx, which in JSON is an escape for itself
    path.write_bytes(text.encode("utf-8", "backslashreplace"))


def _write_json(path: Path, data: Any) -> None:
    _write(path, json.dumps(_short(data), ensure_ascii=False, indent=1) + "\n")
