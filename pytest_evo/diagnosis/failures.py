"""What a failure comes down to, and which of many failures to show."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest

from pytest_evo.evidence import Trace
from pytest_evo.hostile import one_line

_ERROR = re.compile(r"^E\s+(.*\S)", re.MULTILINE)
_VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-fA-F]+\b|\d+")
_LINE = 300
_KIND = 80


def failure_line(trace: Trace) -> str:
    """The line that says most of a failure: the assertion, else the last one."""
    found = _ERROR.search(trace.failure)
    if found is not None:
        return one_line(found[1], _LINE)
    lines = [line for line in trace.failure.splitlines() if line.strip()]
    return one_line(lines[-1], _LINE) if lines else str(trace.outcome)


def failure_kind(trace: Trace) -> str:
    """The same for failures that differ in values only."""
    return _VALUES.sub("*", f"{trace.outcome} {failure_line(trace)}")[:_KIND]


def by_kinds(traces: Sequence[Trace]) -> list[Trace]:
    """The same traces, so that each beginning has as many kinds of failure as it can.

    One of each kind, then a second one of each that has two, and so on; kinds and the
    traces of each keep their order.
    """
    kinds: dict[str, list[Trace]] = {}
    for trace in traces:
        kinds.setdefault(failure_kind(trace), []).append(trace)
    rounds = zip_longest(*kinds.values())
    return [trace for one in rounds for trace in one if trace is not None]
