"""Evidence in words for one prompt, within a budget, each kind of failure shown.

What has to be known always comes first; traces get what is left. Where not all fit, the
most different ones are taken, and it is said how many are not there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from pytest_evo.evidence import Evidence
from pytest_evo.evidence import Trace
from pytest_evo.hostile import cut
from pytest_evo.hostile import fenced
from pytest_evo.hostile import one_line
from pytest_evo.hostile import share
from pytest_evo.hostile import visible

_TABLES = ("facts.md", "scores.md", "changelog.md", "diagnoses.md", "attempts.md")
_WORD = re.compile(r"[A-Za-z0-9_.-]+")
_LONGEST_LINE = 600
_ASSERTION = 900  # characters for the lines that say what failed
_LEAST_TRACE = 500
_FRAME = 30  # around one text
_MOST_COMPARED = 400


def briefing(folder: Path, evidence: Evidence, budget: int) -> str:
    """The evidence of a proposal as text of about ``budget`` characters at most.

    Args:
        folder: ``evidence/`` of the workspace.
        evidence: the same as values; where it is empty, ``brief.md`` is taken.
        budget: characters.
    """
    if not evidence.nodes:
        return cut(_read(folder / "brief.md"), budget) or "There is no evidence yet."
    tables = [text for text in (_read(folder / name) for name in _TABLES) if text]
    failed = _failed(evidence)
    for_tables = budget if not failed else budget * 45 // 100
    rooms = share([len(text) for text in tables], for_tables)
    parts = [cut(text, room) for text, room in zip(tables, rooms, strict=True)]
    left = budget - sum(map(len, parts))
    if failed:
        parts.append(traces_text(failed, left))
    return "\n\n".join(parts)


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "replace")
    except OSError:
        return ""


def _failed(evidence: Evidence) -> list[Trace]:
    """Failures at the newest node; where it has none, at the parent."""
    for node in (evidence.nodes[-1], evidence.nodes[0]):
        found = [
            trace
            for trace in evidence.traces
            if trace.failed and trace.node == node.candidate.id
        ]
        if found:
            return found
    return []


def traces_text(traces: Sequence[Trace], budget: int) -> str:
    """Failures with their assertion lines, as many as fit, the most different ones."""
    most = max(1, budget // _LEAST_TRACE)
    shown = list(traces) if len(traces) <= most else most_different(traces, most)
    missing = len(traces) - len(shown)
    lines = ["# Failures", ""]
    if missing:
        lines += [
            f"{len(shown)} of {len(traces)} failures are here, the most different ones;"
            f" {missing} are left out. All are in evidence/rollouts/.",
            "",
        ]
    head = "\n".join(lines)
    room = max(0, budget - len(head))
    sizes = [trace.size + _ASSERTION for trace in shown]
    rooms = share(sizes, room)
    texts = [_trace(trace, one) for trace, one in zip(shown, rooms, strict=True)]
    return head + "\n".join(texts)


def _trace(trace: Trace, room: int) -> str:
    score = "no score" if trace.score is None else f"score {trace.score:.4g}"
    files = ", ".join(trace.files[:12]) or "no file of the artifact"
    unsure = "" if trace.certain else " (others could have been read unseen)"
    title = (
        f"## {one_line(trace.case, 300)}\n\n"
        f"{trace.outcome}, {score}; it read {one_line(files, 400)}{unsure}\n"
    )
    others = [
        ("failure", trace.failure),
        ("steps", trace.steps),
        ("calls of models", trace.model_calls),
        *trace.output,
    ]
    told = [(name, _narrowed(text)) for name, text in others if text.strip()]
    left = room - len(title) - _FRAME * (len(told) + 1)
    parts = [title]
    if sum(len(text) for _, text in told) > left:
        # it will be cut, so what it says comes first
        assertion = assertion_of(trace, min(_ASSERTION, left))
        left -= len(assertion)
        parts += [fenced(assertion)] if assertion else []
    if left > 4 * _FRAME:
        rooms = share([len(text) for _, text in told], left)
        parts += [
            f"{one_line(name, 60)}:\n{fenced(text, one)}"
            for (name, text), one in zip(told, rooms, strict=True)
            if one >= min(len(text), 2 * _FRAME)
        ]
    return "\n".join(parts) + "\n"


def assertion_of(trace: Trace, most: int = _ASSERTION) -> str:
    """The lines of a failure that say what was expected and what came.

    The first of them is there whatever the room; long lines keep their ends.
    """
    rows = visible(trace.failure).splitlines()
    marked = [row[1:].strip() for row in rows if re.match(r"E\s", row)]
    chosen = marked or [row.strip() for row in rows if row.strip()][-3:]
    longest = min(_LONGEST_LINE, max(80, most * 2 // 3))
    kept: list[str] = []
    for row in filter(None, chosen):
        line = _narrow(row, longest)
        if kept and len("\n".join([*kept, line])) > most:
            break
        kept.append(line)
    return "\n".join(kept)


def most_different(traces: Sequence[Trace], most: int) -> list[Trace]:
    """So many traces that differ most in what failed, in their order.

    The first is kept; each further one is the farthest from all before it.
    """
    pool = list(traces)[: max(most, _MOST_COMPARED)]
    words = [frozenset(_WORD.findall(assertion_of(trace))) for trace in pool]
    chosen = [0]
    nearest = [_likeness(words[0], other) for other in words]
    while len(chosen) < min(most, len(pool)):
        taken = set(chosen)
        at = min(
            (index for index in range(len(pool)) if index not in taken),
            key=lambda index: (nearest[index], index),
        )
        chosen.append(at)
        nearest = [
            max(old, _likeness(words[at], other))
            for old, other in zip(nearest, words, strict=True)
        ]
    return [pool[index] for index in sorted(chosen)]


def _likeness(one: frozenset[str], other: frozenset[str]) -> float:
    if not one and not other:
        return 1.0
    return len(one & other) / len(one | other)


def _narrow(line: str, longest: int = _LONGEST_LINE) -> str:
    """A line without its middle where it is very long."""
    if len(line) <= longest:
        return line
    mark = f" [... {len(line)} characters ...] "
    head = max(20, (longest - len(mark)) * 2 // 3)
    tail = max(10, longest - len(mark) - head)
    return f"{line[:head]}{mark}{line[-tail:]}"


def _narrowed(text: str) -> str:
    return "\n".join(map(_narrow, text.splitlines()))
