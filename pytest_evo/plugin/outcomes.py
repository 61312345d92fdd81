"""Reports and notes of one run of one test to its outcome, score and phases.

The rules, in the order they are asked:

* a failed set-up is an ``error``;
* a failed call is ``failed``, also where only a subtest failed, whatever the tear-down;
* a failed tear-down of the test's own fixtures is an ``error``;
* a test that failed as its ``xfail`` expects is ``failed``: the artifact does not do
  this yet. It is marked as expected in its phase. One that passes unexpectedly is
  ``passed``, or ``failed`` where the mark is strict, as pytest has it;
* anything skipped is ``skipped``, an ``xfail(run=False)`` too;
* the rest is ``passed``.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any
from typing import TYPE_CHECKING

import pytest

from pytest_evo.errors import SuiteProblem
from pytest_evo.models import Metric
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Rollout
from pytest_evo.models import Usage
from pytest_evo.plugin.plain import cut
from pytest_evo.plugin.plain import plain
from pytest_evo.plugin.recording import Notes
from pytest_evo.plugin.recording import SCORE
from pytest_evo.wording import count

if TYPE_CHECKING:
    from pytest_evo.plugin.modelcalls import ModelCall

_LONGEST_MESSAGE = 2_000
_SCORES = {Outcome.PASSED: 1.0, Outcome.FAILED: 0.0}
"""Of a test that gave none."""


class Unscorable(Exception):
    """The suite does not say which of several scores counts."""


def is_subtest(report: pytest.TestReport) -> bool:
    """Whether the report is of a subtest: they have a context, tests have none."""
    return hasattr(report, "context")


def outcome_of(reports: Sequence[pytest.TestReport]) -> Outcome:
    """The outcome by the rules above."""
    by_phase = {
        (report.when, report.outcome) for report in reports if not is_subtest(report)
    }
    sub_failed = any(is_subtest(report) and report.failed for report in reports)
    if ("setup", "failed") in by_phase:
        return Outcome.ERROR
    if ("call", "failed") in by_phase or sub_failed:
        return Outcome.FAILED
    if ("teardown", "failed") in by_phase:
        return Outcome.ERROR
    if any(_failed_as_expected(report) for report in reports):
        return Outcome.FAILED
    if any(outcome == "skipped" for _, outcome in by_phase):
        return Outcome.SKIPPED
    return Outcome.PASSED if ("call", "passed") in by_phase else Outcome.ERROR


def _failed_as_expected(report: pytest.TestReport) -> bool:
    return (
        report.when == "call"
        and report.skipped
        and hasattr(report, "wasxfail")
        and not is_subtest(report)
    )


def score_of(outcome: Outcome, notes: Notes, score_from: str | None) -> float | None:
    """The raw score: what ``evo_score`` gave, else 1 for passed and 0 for failed.

    A score that was given is kept when the test fails: it is partial credit.

    Raises:
        Unscorable: a test that passed gave several named scores and nothing says which
            one counts, or not the one that counts.
    """
    if outcome not in (Outcome.PASSED, Outcome.FAILED):
        return None
    named = {name: value for name, (value, audit) in notes.scores.items() if not audit}
    for wanted in (SCORE, score_from):
        if wanted in named:
            return named[wanted]
    if score_from is None and len(named) == 1:
        return next(iter(named.values()))
    if outcome is Outcome.FAILED:
        return 0.0 if score_from is not None or not named else _ask(named)
    if not named:
        return 1.0
    if score_from is None:
        return _ask(named)
    raise Unscorable(
        f"score_from is {score_from!r}, but this test gave only {_listed(named)}: give "
        f'evo_score("{score_from}", ...), or set score_from to one that all tests give'
    )


def check_score_from(score_from: str | None, start: Sequence[Rollout]) -> None:
    """Refuse a ``score_from`` that no test of the start gave: a typo scores 0.

    Scores that are neither 1 for passed nor 0 for failed came from somewhere else, as
    from a hook, and need no metric.

    Raises:
        SuiteProblem: no rollout gave the metric; it names those that were given.
    """
    rows = [row for row in start if row.outcome in _SCORES]
    names = {one.name for row in rows for one in row.metrics if not one.audit}
    if score_from is None or not rows or score_from in names:
        return
    unnamed = [row for row in rows if all(one.name != SCORE for one in row.metrics)]
    if any(row.score != _SCORES[row.outcome] for row in unnamed):
        return
    if names:
        raise SuiteProblem(
            f"score_from is {score_from!r}, and of {count(len(rows), 'case')} none "
            f"gave that metric; they gave {_listed(sorted(names))}. Correct score_from "
            "in [tool.pytest_evo], or leave it out"
        )
    raise SuiteProblem(
        f"score_from is {score_from!r}, and of {count(len(rows), 'case')} none gave "
        f'any metric. Give evo_score("{score_from}", value) before what may fail, so '
        "that the start has a score, or leave score_from out to select on passed "
        "and failed"
    )


def _ask(named: dict[str, float]) -> float:
    first = next(iter(named))
    raise Unscorable(
        f"this test gave several scores ({_listed(named)}) and nothing says which one "
        f'counts: set score_from = "{first}" in [tool.pytest_evo], give the others '
        "audit=True, or give evo_score(value) without a name"
    )


def _listed(named: Iterable[str]) -> str:
    return ", ".join(repr(name) for name in named)


def metrics_of(notes: Notes) -> tuple[Metric, ...]:
    """Everything that was given with ``evo_score``."""
    return tuple(
        Metric(name, value, audit) for name, (value, audit) in notes.scores.items()
    )


def usage_of(notes: Notes) -> Usage:
    """Everything that was given with ``evo_usage`` and the calls that were counted."""
    return RunningUsage(notes).total()


def _given(notes: Notes) -> Usage:
    return Usage(
        calls=notes.calls,
        input_tokens=notes.input_tokens,
        cached_tokens=notes.cached_tokens,
        output_tokens=notes.output_tokens,
        usd=notes.usd,
    )


class RunningUsage:
    """What notes add up to, again and again: calls that are over are added once."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._lock = Lock()
        self._read = 0  # of the calls
        self._over = NO_USAGE
        self._open: list[ModelCall] = []

    def total(self) -> Usage:
        """The sum as it is now."""
        with self._lock:  # tests ask models on several threads
            fresh = self._notes.model_calls[self._read :]
            self._read += len(fresh)
            still = []
            for call in (*self._open, *fresh):
                if call.is_over:
                    self._over += call.usage()
                else:
                    still.append(call)
            self._open = still
            return sum(
                (call.usage() for call in still), _given(self._notes) + self._over
            )


def phases_of(reports: Sequence[pytest.TestReport], rootdir: Path) -> tuple[Phase, ...]:
    """Reports as plain text; output that earlier phases showed is not repeated."""
    phases = []
    shown: set[tuple[str, str]] = set()
    for report in reports:
        fresh = [(title, text) for title, text in report.sections]
        fresh = [section for section in fresh if section not in shown]
        if not is_subtest(report):
            shown.update(fresh)
        phases.append(_phase(report, fresh, rootdir))
    return tuple(phases)


def _phase(
    report: pytest.TestReport, sections: Sequence[tuple[str, str]], rootdir: Path
) -> Phase:
    file, line = _place(report.longrepr, rootdir)
    subtest = _subtest_name(report)
    message = _message(report)
    return Phase(
        when=str(report.when),
        outcome=report.outcome,
        seconds=report.duration,
        message=cut(" ".join(filter(None, (subtest, message))), _LONGEST_MESSAGE),
        # making a text of none takes a terminal writer
        longrepr=cut(report.longreprtext) if report.longrepr is not None else "",
        sections=tuple((title, cut(text)) for title, text in sections),
        properties=tuple(
            (str(plain(name)), str(plain(value)))
            for name, value in report.user_properties
        ),
        xfail=getattr(report, "wasxfail", None),
        file=file,
        line=line,
    )


def _subtest_name(report: pytest.TestReport) -> str:
    context: Any = getattr(report, "context", None)
    if context is None:
        return ""
    given = ", ".join(
        f"{name}={plain(value)}" for name, value in context.kwargs.items()
    )
    message = f"[{context.msg}]" if context.msg is not None else ""
    return " ".join(filter(None, (message, f"({given})" if given else "")))


def _message(report: pytest.TestReport) -> str:
    long: Any = report.longrepr
    if long is None:
        return ""
    if isinstance(long, tuple):  # a skip: file, line, reason
        return str(long[2])
    crash = getattr(long, "reprcrash", None)
    if crash is not None:
        return str(crash.message)
    lines = report.longreprtext.strip().splitlines()
    return lines[-1] if lines else ""


def _place(long: Any, rootdir: Path) -> tuple[str, int | None]:
    if isinstance(long, tuple):
        name, line = long[0], long[1]
    else:
        crash = getattr(long, "reprcrash", None)
        if crash is None:
            return "", None
        name, line = crash.path, crash.lineno
    path = Path(str(name))
    if path.is_relative_to(rootdir):
        path = path.relative_to(rootdir)
    return path.as_posix(), line
