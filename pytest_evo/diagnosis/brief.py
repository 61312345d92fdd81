"""All evidence in one text: what is measured, then failures as far as they fit."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence

from pytest_evo.diagnosis.failures import by_kinds
from pytest_evo.diagnosis.failures import failure_line
from pytest_evo.diagnosis.memo import by_identity
from pytest_evo.diagnosis.memo import SMALL
from pytest_evo.diagnosis.rendering import attempts_text
from pytest_evo.diagnosis.rendering import cell
from pytest_evo.diagnosis.rendering import changelog_text
from pytest_evo.diagnosis.rendering import diagnoses_text
from pytest_evo.diagnosis.rendering import facts_text
from pytest_evo.diagnosis.rendering import said
from pytest_evo.diagnosis.rendering import scores_text
from pytest_evo.diagnosis.rendering import trace_text
from pytest_evo.evidence import Evidence
from pytest_evo.evidence import Trace
from pytest_evo.hostile import cut
from pytest_evo.hostile import share

LEAST_TRACE = 1_500
"""Characters of a trace below which it says too little to be shown."""
_HEAD = 300  # what a trace's headings take, about


def texts_of(evidence: Evidence) -> dict[str, str]:
    """All but the traces, by name, in the order they are read."""
    texts = {
        "scores": scores_text(evidence.nodes, evidence.histories),
        "facts": facts_text(evidence.facts),
        "changelog": changelog_text(evidence.nodes),
    }
    if diagnoses := evidence.diagnoses:
        texts["diagnoses"] = diagnoses_text(diagnoses)
    if evidence.attempts:
        texts["attempts"] = attempts_text(evidence.attempts)
    return texts


def brief_text(
    evidence: Evidence, budget: int = 60_000, texts: Mapping[str, str] | None = None
) -> str:
    """Everything in one text for a prompt: measured facts first, traces last.

    Traces get what the rest leaves of ``budget``, and at least a third of it: those of
    failures at the newest node, then at the parent.

    Args:
        evidence: of one proposal.
        budget: characters.
        texts: those of :func:`texts_of` for it, where they were made already.
    """
    parts = list((texts_of(evidence) if texts is None else texts).values())
    rooms = share([len(part) for part in parts], budget - budget // 3)
    parts = [cut(part, room) for part, room in zip(parts, rooms, strict=True)]
    failed = [trace for trace in _newest_and_parent(evidence) if trace.failed]
    left = budget - sum(map(len, parts))
    return "\n".join([*parts, "# Traces of failures\n", failures_text(failed, left)])


def failures_text(traces: Sequence[Trace], budget: int) -> str:
    """As many failures as can be shown so that they say something.

    Where not all can, as many kinds of failure as possible are shown, the others are
    counted, and each of them is one line as far as that fits.
    """
    order = by_kinds(traces)
    shown: list[Trace] = []
    room = budget
    for trace in order:
        need = min(trace.size, LEAST_TRACE) + _HEAD
        if shown and need > room:
            break
        shown.append(trace)
        room -= need
    rooms = share([trace.size for trace in shown], max(0, budget - _HEAD * len(shown)))
    texts = [_shown(*one) for one in zip(shown, rooms, strict=True)]
    others = order[len(shown) :]
    if others:
        texts.append(_left_out(others, budget - sum(map(len, texts))))
    return "\n".join(texts) or "None.\n"


_whole_text = by_identity(trace_text)


def _shown(trace: Trace, room: int) -> str:
    if trace.size <= min(room, SMALL):
        return _whole_text(trace)
    return trace_text(trace, room)


def _left_out(traces: Sequence[Trace], budget: int) -> str:
    lines = [f"### {len(traces)} more failures, whose traces are left out", ""]
    for trace in traces:
        line = (
            f"- `{cell(trace.case)}` on {cell(trace.node)}: {said(failure_line(trace))}"
        )
        budget -= len(line)
        if budget < 0:
            lines.append(f"- and {len(traces) - len(lines) + 2} more")
            break
        lines.append(line)
    return "\n".join(lines) + "\n"


def _newest_and_parent(evidence: Evidence) -> list[Trace]:
    if not evidence.nodes:
        return []
    newest = evidence.nodes[-1].candidate.id
    parent = evidence.nodes[0].candidate.id
    found = [trace for trace in evidence.traces if trace.node == newest]
    if parent != newest:
        found += [trace for trace in evidence.traces if trace.node == parent]
    return found
