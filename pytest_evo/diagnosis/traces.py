"""Rollouts in words: what failed, what was said, cut so that it fits."""

from __future__ import annotations

import json
import re
from collections import OrderedDict
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
_BESIDE = 2_000  # bytes of a trace beside its texts, about
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

    def make(rollout: Rollout) -> Trace:
        return make_trace(rollout, _detail(rollout, detail), redact)

    return arranged(nodes, make, total)


def arranged(
    nodes: Sequence[Node], make: Callable[[Rollout], Trace], total: int = TOTAL
) -> tuple[Trace, ...]:
    """As :func:`make_traces`, with ``make`` for the trace of a rollout, uncut."""
    whole = [
        trace
        for node in reversed(nodes)
        for trace in sorted(map(make, node.rollouts), key=lambda one: not one.failed)
    ]
    wanted = [min(one.size, FAILING if one.failed else PASSING) for one in whole]
    shares = share(wanted, total)
    return tuple(cut_trace(one, room) for one, room in zip(whole, shares, strict=True))


class Tracing:
    """Makes traces, and keeps those that are likely to be asked for again.

    Each step of a chain is told of all rollouts before it, and many iterations of the
    same ones of their parent. A detail is a file that is written once.

    Args:
        detail: reads the detail of a rollout that does not bring it.
        redact: takes secrets out of a text.
        most: bytes of the kept ones, about.
    """

    def __init__(
        self,
        detail: Callable[[Rollout], Detail],
        redact: Clean = str,
        most: int = 4_000_000,
    ) -> None:
        self._detail = detail
        self._redact = redact
        self._most = most
        self._size = 0
        self._kept: OrderedDict[str, tuple[Rollout, Trace]] = OrderedDict()

    def of(self, rollout: Rollout) -> Trace:
        """The trace of a rollout, uncut."""
        name = rollout.trace
        if name is None or rollout.detail is not None:
            return make_trace(rollout, rollout.detail, self._redact)
        kept = self._kept.get(name)
        if kept is not None and kept[0] == rollout:
            self._kept.move_to_end(name)
            return kept[1]
        detail = self._detail(rollout)
        trace = make_trace(rollout, detail, self._redact)
        if detail.phases:  # else it may be read another time
            self._keep(name, rollout, trace)
        return trace

    def _keep(self, name: str, rollout: Rollout, trace: Trace) -> None:
        before = self._kept.pop(name, None)
        if before is not None:
            self._size -= _weight(before[1])
        self._kept[name] = (rollout, trace)
        self._size += _weight(trace)
        while self._size > self._most:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._size -= _weight(dropped)


def _weight(trace: Trace) -> int:
    return trace.size + _BESIDE


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
