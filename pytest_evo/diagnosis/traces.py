"""Rollouts in words: what failed, what was said, cut so that it fits."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import replace

from pytest_evo.evidence import Trace
from pytest_evo.hostile import cut
from pytest_evo.hostile import share
from pytest_evo.hostile import visible
from pytest_evo.models import Detail
from pytest_evo.models import Json
from pytest_evo.models import Node
from pytest_evo.models import Phase
from pytest_evo.models import Rollout
from pytest_evo.models import TraceStep

TOTAL = 400_000
"""Characters of all traces together."""
FAILING = 20_000
PASSING = 6_000
"""Characters of one trace at most."""
MODEL_STEPS = frozenset({"model call", "model_call", "llm", "litellm"})
"""Names of trace steps that tell of a call of a model."""

_DECORATOR = re.compile(r"^( {4,})@", re.MULTILINE)
_DEFINITION = re.compile(r"^[ >]( {3,})(?:async +def|def|class)\b")
_STEP = 4_000
_SHORT = 1_500  # a longer report may lose its middle, and the message with it

Clean = Callable[[str], str]


def make_traces(
    nodes: Sequence[Node],
    detail: Callable[[str], Detail] | None = None,
    redact: Clean = str,
    total: int = TOTAL,
) -> tuple[Trace, ...]:
    """Traces of all rollouts: newest node first, failures before the others.

    Args:
        nodes: parent first.
        detail: reads a rollout's detail by its ``trace`` where it does not bring it.
        redact: takes secrets out of a text.
        total: characters of all traces together; small ones are kept whole.
    """
    whole = [
        trace
        for node in reversed(nodes)
        for trace in sorted(
            (make_trace(one, _detail(one, detail), redact) for one in node.rollouts),
            key=lambda trace: not trace.failed,
        )
    ]
    wanted = [min(one.size, FAILING if one.failed else PASSING) for one in whole]
    shares = share(wanted, total)
    return tuple(cut_trace(one, room) for one, room in zip(whole, shares, strict=True))


def _detail(rollout: Rollout, read: Callable[[str], Detail] | None) -> Detail | None:
    if rollout.detail is None and rollout.trace is not None and read is not None:
        return read(rollout.trace)
    return rollout.detail


def make_trace(rollout: Rollout, detail: Detail | None, redact: Clean = str) -> Trace:
    """One rollout in words, uncut."""

    def clean(text: str) -> str:
        return visible(redact(_ends(text)))

    found = detail or Detail()
    steps = [step for step in found.steps if step.name not in MODEL_STEPS]
    calls = [step for step in found.steps if step.name in MODEL_STEPS]
    output = [
        (clean(title), clean(text))
        for phase in found.phases
        for title, text in phase.sections
        if text.strip()
    ]
    if found.warnings:
        output.append(("warnings", clean("\n".join(found.warnings))))
    return Trace(
        node=rollout.candidate,
        case=rollout.case,
        repeat=rollout.repeat,
        outcome=rollout.outcome,
        score=rollout.score,
        failure=clean(_failure(found.phases)),
        output=tuple(output),
        steps=clean("\n".join(map(_step, steps))),
        model_calls=clean("\n".join(map(_step, calls))),
        files=rollout.reach.files,
        certain=rollout.reach.exact,
        calls=rollout.usage.calls,
        tokens=rollout.usage.tokens,
        seconds=rollout.seconds,
        metrics=tuple((one.name, one.value) for one in rollout.metrics),
        violation=clean(rollout.violation or ""),
    )


def _ends(text: str) -> str:
    """Both ends of a very long text, before it is searched through.

    They are longer than any trace: what is broken at the inner ends, a secret maybe,
    is cut away later.
    """
    if len(text) <= 4 * FAILING:
        return text
    return f"{text[: 2 * FAILING]}\n{text[-2 * FAILING :]}"


def cut_trace(trace: Trace, budget: int) -> Trace:
    """The same trace with at most ``budget`` characters of text.

    Half belongs to the failure if it needs it; the others share the rest.
    """
    if trace.size <= budget:
        return trace
    budget = max(0, budget)
    rest = trace.size - len(trace.failure)
    failure = min(len(trace.failure), max(budget // 2, budget - rest))
    parts = [trace.steps, trace.model_calls, *(text for _, text in trace.output)]
    shares = share([len(part) for part in parts], budget - failure)
    steps, calls, *output = map(cut, parts, shares)
    titles = [title for title, _ in trace.output]
    return replace(
        trace,
        failure=cut(trace.failure, failure),
        steps=steps,
        model_calls=calls,
        output=tuple(zip(titles, output, strict=True)),
    )


def _failure(phases: Sequence[Phase]) -> str:
    parts = []
    for phase in phases:
        if phase.outcome == "passed":
            continue
        report = without_decorators(phase.longrepr)
        told = phase.message in report and len(report) <= _SHORT
        if phase.message and not told:
            parts.append(phase.message)
        if report:
            parts.append(report)
    return "\n".join(parts)


def without_decorators(report: str) -> str:
    """A failure report without the decorators of the functions that it shows.

    pytest prints a test from its first decorator on, and the lists of
    ``parametrize`` hold the cases that nobody may see.
    """
    if _DECORATOR.search(report) is None:
        return report
    kept: list[str] = []
    indent = 0  # of the decorators that are being left out
    for line in report.split("\n"):
        if not indent and (begin := _DECORATOR.match(line)):
            indent = len(begin[1])
            kept.append("    [decorators left out]")
        elif indent and (end := _DEFINITION.match(line)):
            indent = 0 if len(end[1]) + 1 == indent else indent
        if not indent:
            kept.append(line)
    return "\n".join(kept)


def _step(step: TraceStep) -> str:
    data: Json = dict(step.data)
    text = json.dumps(data, ensure_ascii=False, default=str) if step.data else ""
    return cut(f"{step.name} {text}".rstrip(), _STEP).replace("\n", "\\n")
