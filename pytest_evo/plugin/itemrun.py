"""Runs items as rollouts, inside a process that is theirs alone.

Each item runs as pytest runs it, with one difference: after every item its own fixtures
are torn down, and only then those that it shares with other items (class, module,
package, session), where the next run does not need them. A failure of the latter is
recorded and named as theirs, and is never the outcome of the item that happened to run
last: which one that is depends on how runs are put together.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from collections.abc import Generator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextlib import nullcontext
from dataclasses import dataclass
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any
from typing import Literal
from typing import TypeAlias

import pytest
from _pytest.outcomes import Exit

from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import TraceStep
from pytest_evo.models import Usage
from pytest_evo.plugin.child import prepare_child
from pytest_evo.plugin.child import reseed
from pytest_evo.plugin.declared import ARTIFACT_VARIABLE
from pytest_evo.plugin.declared import declared_text
from pytest_evo.plugin.declared import REPEAT_VARIABLE
from pytest_evo.plugin.environment import set_variable
from pytest_evo.plugin.hooks import score_from_hook
from pytest_evo.plugin.modelwatch import counting
from pytest_evo.plugin.modelwatch import watch_models
from pytest_evo.plugin.outages import chain_of
from pytest_evo.plugin.outages import named_types
from pytest_evo.plugin.outages import outage
from pytest_evo.plugin.outcomes import is_subtest
from pytest_evo.plugin.outcomes import metrics_of
from pytest_evo.plugin.outcomes import outcome_of
from pytest_evo.plugin.outcomes import phases_of
from pytest_evo.plugin.outcomes import RunningUsage
from pytest_evo.plugin.outcomes import score_of
from pytest_evo.plugin.outcomes import Unscorable
from pytest_evo.plugin.outcomes import usage_of
from pytest_evo.plugin.plain import cut
from pytest_evo.plugin.plain import plain
from pytest_evo.plugin.rawrollout import RawRollout
from pytest_evo.plugin.recording import CURRENT
from pytest_evo.plugin.recording import Current
from pytest_evo.plugin.recording import NOTES
from pytest_evo.plugin.recording import Notes
from pytest_evo.plugin.recording import refused_as_score

__all__ = ["Emit", "ItemRunner", "RawRollout", "SHARED_TEARDOWN", "prepare_child"]

Emit: TypeAlias = Callable[[str, CaseId, int, RawRollout | None], None]
"""``("started", case, repeat, None)``, then ``("finished", case, repeat, rollout)``."""
SHARED_TEARDOWN = "shared teardown"
"""``Phase.when`` of a tear-down that belongs to a class, module, package or session."""

_When: TypeAlias = Literal["setup", "call", "teardown"]
_MOST_WARNINGS = 200
_MOST_SUBTESTS = 200  # that passed; the others are all kept
_ENDS_SESSION = (pytest.exit.Exception, KeyboardInterrupt)


class _OnceMore(Exit):
    """Unwinds a plugin that would run a failed test again: the engine repeats cases."""


class ItemRunner:
    """Runs items one after the other and tells how each of them ended."""

    def __init__(self, config: pytest.Config, session: pytest.Session) -> None:
        self._config = config
        self._recorder = _Recorder(session)
        config.pluginmanager.register(self._recorder)
        watch_models(config)
        self._properties: dict[pytest.Item, list[tuple[str, object]]] = {}
        self.left_early = False
        """Whether ``leave`` ended the last ``run`` before all cases had run."""

    def run(
        self,
        runs: Sequence[tuple[CaseId, int]],
        items: Mapping[CaseId, pytest.Item],
        *,
        seed: int,
        artifact: Path,
        emit: Emit,
        leave: Callable[[], bool] = lambda: False,
        spent: Callable[[CaseId, int, Callable[[], Usage]], None] | None = None,
    ) -> None:
        """Run cases in the given order; a case without an item is ``missing``.

        Args:
            runs: case and repeat; a case may come several times.
            items: what was collected, by case.
            seed: where the random numbers of all rollouts start.
            artifact: the candidate's directory.
            emit: called when a set-up starts and when the tear-down is over.
            leave: asked when an item is over; true: the others are not run here.
            spent: told whenever what a rollout has spent changes, with what adds it up.
        """
        self._recorder.leave = leave
        set_variable(ARTIFACT_VARIABLE, str(artifact))
        present = [(case, repeat) for case, repeat in runs if case in items]
        following = [items[case] for case, _ in present[1:]]
        for case, repeat in runs:
            if case not in items:
                emit("finished", case, repeat, RawRollout(Outcome.MISSING, None))
        for (case, repeat), after in zip(present, [*following, None], strict=True):
            item = items[case]
            set_variable(REPEAT_VARIABLE, str(repeat))
            self._config.stash[CURRENT] = Current(artifact, case, repeat)
            self._reset(item)
            if spent is not None:
                notes = item.stash[NOTES]
                total = RunningUsage(notes).total
                notes.on_spend = partial(spent, case, repeat, total)
            reseed(seed, case, repeat)
            emit("started", case, repeat, None)
            emit("finished", case, repeat, self._rollout(self._recorded(item, after)))
            item.stash[NOTES].on_spend = _nobody  # a thread may be left
            if self._recorder.leaving and after is not None:
                self.left_early = True
                break

    def outcome_of(self, item: pytest.Item) -> Outcome:
        """Run one more item, told to nobody."""
        self._reset(item)
        return self._outcome(self._recorded(item, None))

    def _reset(self, item: pytest.Item) -> None:
        """Forget what an earlier repeat left on the item."""
        first = self._properties.setdefault(item, list(item.user_properties))
        item.user_properties[:] = first
        item._report_sections.clear()
        item.stash[NOTES] = Notes()
        session: Any = item.session
        for flag in ("_shouldstop", "_shouldfail"):  # one run does not end the others
            if hasattr(session, flag):
                setattr(session, flag, False)

    def _recorded(self, item: pytest.Item, after: pytest.Item | None) -> _Record:
        record = self._recorder.begin(item, after)
        hook = self._config.hook.pytest_runtest_protocol
        with counting(item.stash[NOTES]):
            crash = pytest.CallInfo.from_call(
                lambda: hook(item=item, nextitem=record.sibling), when="call"
            )
        self._recorder.end()
        if crash.excinfo is not None:  # a plugin failed, not the test
            record.broken.append(crash.excinfo.exconly())
        return record

    def _outcome(self, record: _Record) -> Outcome:
        return Outcome.ERROR if record.broken else outcome_of(record.reports)

    def _rollout(self, record: _Record) -> RawRollout:
        item = record.item
        notes = item.stash[NOTES]
        outcome = self._outcome(record)
        score, problem = self._score(record, outcome)
        if problem is not None:
            outcome = Outcome.ERROR
            record.broken.append(problem)
        tests = [report for report in record.reports if not is_subtest(report)]
        kept = record.kept_reports()
        rootdir = self._config.rootpath
        phases = [*phases_of(kept, rootdir), *record.shared]
        phases += [
            Phase("protocol", "failed", 0.0, text, text) for text in record.broken
        ]
        return RawRollout(
            outcome=outcome,
            score=score,
            seconds=max(0.0, sum(map(_duration, tests)) - record.shared_seconds),
            metrics=metrics_of(notes),
            usage=usage_of(notes),
            detail=Detail(
                phases=tuple(phases),
                steps=tuple(TraceStep(name, data) for name, data in notes.steps),
                warnings=tuple(record.warnings),
                fixtures=dict(record.fixtures),
                serialized=tuple(self._serialized(kept)),
            ),
            problem=problem or record.refused,
        )

    def _score(
        self, record: _Record, outcome: Outcome
    ) -> tuple[float | None, str | None]:
        """The score, and why there is none where there should be one."""
        if outcome not in (Outcome.PASSED, Outcome.FAILED):
            return None, None
        asked = pytest.CallInfo.from_call(
            lambda: score_from_hook(self._config, record.item, record.reports),
            when="call",
        )
        if asked.excinfo is not None:
            return None, f"pytest_evo_score: {asked.excinfo.exconly()}"
        if asked.result is not None:
            return asked.result, None
        score_from = declared_text(self._config, "score_from")
        try:
            return score_of(outcome, record.item.stash[NOTES], score_from), None
        except Unscorable as error:
            return None, str(error)

    def _serialized(self, reports: Sequence[pytest.TestReport]) -> list[dict[str, Any]]:
        hook = self._config.hook.pytest_report_to_serializable
        texts = []
        for report in reports:
            report.sections = [(title, cut(text)) for title, text in report.sections]
            # a chain of exceptions is nested deeper than values of tests may be
            data = hook(config=self._config, report=report)
            texts.append(plain(data, depth=_REPORT_DEPTH))
        return texts


_REPORT_DEPTH = -16


def _nobody() -> None:
    """Nobody is told of what a rollout spends that is over."""


def _duration(report: pytest.TestReport) -> float:
    return report.duration


@dataclass
class _Record:
    """What is seen of one run of one item."""

    item: pytest.Item
    after: pytest.Item | None
    sibling: pytest.Item
    reports: list[pytest.TestReport] = field(default_factory=list)
    shared: list[Phase] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fixtures: dict[str, float] = field(default_factory=dict)
    shared_seconds: float = 0.0
    broken: list[str] = field(default_factory=list)
    refused: str | None = None  # what evo_score said of a value that is no score
    made: list[pytest.TestReport] = field(default_factory=list)

    def end_first_attempt(self) -> None:
        """Take the reports that a plugin has kept back until it is content."""
        if all(is_subtest(report) for report in self.reports):
            self.reports += self.made

    def interrupted_phase(self) -> _When:
        """Where the run was when no report came any more."""
        seen = {report.when for report in self.reports if not is_subtest(report)}
        if "setup" not in seen:
            return "setup"
        return "teardown" if "call" in seen else "call"

    def kept_reports(self) -> list[pytest.TestReport]:
        """All reports, less the subtests that passed beyond the first few hundred."""
        kept, passed = [], 0
        for report in self.reports:
            passed += is_subtest(report) and report.passed
            if not (is_subtest(report) and report.passed and passed > _MOST_SUBTESTS):
                kept.append(report)
        return kept


class _Recorder:
    """The plugin that listens while an item runs; deaf in between."""

    hears_rollouts = True  # see child.Deafened

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._record: _Record | None = None
        self.leave: Callable[[], bool] = lambda: False
        self.leaving = False
        self._nested: list[float] = []
        self._outages = named_types(session.config)

    def begin(self, item: pytest.Item, after: pytest.Item | None) -> _Record:
        """Listen to a run of ``item`` that ``after`` follows."""
        # pytest tears down what the next item does not need; a copy needs everything
        # but the item's own fixtures
        self._record = _Record(item, after, copy.copy(item))
        return self._record

    def end(self) -> None:
        """Stop listening."""
        self._record = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report."""
        if self._record is not None:
            self._record.reports.append(report)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, call: pytest.CallInfo[None]
    ) -> Generator[None, Any, Any]:
        """Keep a report that its plugin may not log."""
        report = yield
        if self._record is not None:
            self._record.made.append(report)
            if call.excinfo is not None:
                self._note_refusal(self._record, call.excinfo.value)
            if report.when == "call" and report.failed:
                self._note_outage(self._record, call)
        return report

    def _note_refusal(self, record: _Record, error: BaseException) -> None:
        """Keep what ``evo_score`` said of a value that is no score, once a run."""
        if record.refused is None:
            refused = filter(refused_as_score, chain_of(error))
            record.refused = next(map(str, refused), None)

    def _note_outage(self, record: _Record, call: pytest.CallInfo[None]) -> None:
        if call.excinfo is None:  # a subtest failed
            return
        current = record.item.config.stash.get(CURRENT, None)
        if current is not None:
            why = outage(call.excinfo.value, self._outages, current.artifact)
            record.broken += [why] if why is not None else []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """End a second attempt at once."""
        if self._record is not None and self._record.made:
            raise _OnceMore("a plugin runs the test again")

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: Any, when: str) -> None:
        """Keep a warning as text."""
        record = self._record
        if record is not None and len(record.warnings) < _MOST_WARNINGS:
            name = warning_message.category.__name__
            place = f"{warning_message.filename}:{warning_message.lineno}"
            record.warnings.append(cut(f"{place}: {name}: {warning_message.message}"))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, Any, Any]:
        """Measure a fixture's set-up, less that of fixtures it asked for meanwhile."""
        self._nested.append(0.0)
        start = time.perf_counter()
        try:
            return (yield)
        finally:
            whole = time.perf_counter() - start
            own = max(0.0, whole - self._nested.pop())
            if self._nested:
                self._nested[-1] += whole
            if self._record is not None:
                self._note_fixture(self._record, fixturedef, own)

    def _note_fixture(
        self, record: _Record, fixturedef: pytest.FixtureDef[Any], seconds: float
    ) -> None:
        before = record.fixtures.get(fixturedef.argname, 0.0)
        record.fixtures[fixturedef.argname] = before + seconds
        if fixturedef.scope != "function":
            record.shared_seconds += seconds

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Finish what a test that ends the session left, then the shared fixtures."""
        record = self._record
        if record is None:
            return (yield)
        try:
            return (yield)
        except _OnceMore:
            record.end_first_attempt()
            return True
        except _ENDS_SESSION as end:
            self._interrupted(record, end)
            return True
        finally:
            self._close_shared(record)

    def _interrupted(self, record: _Record, end: BaseException) -> None:
        """Report the phase that ``pytest.exit`` or Ctrl-C ended, and tear down."""
        item, phase = record.item, record.interrupted_phase()

        def again() -> None:
            raise end

        self._report(record, again, phase)
        if phase != "teardown":
            hook = item.ihook.pytest_runtest_teardown
            self._report(
                record, lambda: hook(item=item, nextitem=record.sibling), "teardown"
            )

    def _report(
        self, record: _Record, function: Callable[[], object], when: _When
    ) -> None:
        call = pytest.CallInfo.from_call(function, when=when)
        hook = record.item.ihook.pytest_runtest_makereport
        record.reports.append(hook(item=record.item, call=call))

    def _close_shared(self, record: _Record) -> None:
        """Tear down what only earlier runs needed; tell a failure as its owner's."""
        self.leaving = self.leave()
        if self.leaving:
            record.after = None
        state = self._session._setupstate
        needed = record.after.listchain() if record.after is not None else []
        stack = list(state.stack)
        if stack == needed[: len(stack)]:
            return
        item = record.item
        item._report_sections.clear()
        call = pytest.CallInfo.from_call(
            lambda: self._torn_down(item, record.after), when="teardown"
        )
        if call.excinfo is None:
            return
        gone = [node.nodeid or "session" for node in stack if node not in needed]
        report = pytest.TestReport.from_item_and_call(item, call)
        for phase in phases_of([report], item.config.rootpath):
            record.shared.append(
                Phase(
                    when=SHARED_TEARDOWN,
                    outcome="failed",
                    seconds=phase.seconds,
                    message=f"in the tear-down of {' or '.join(gone)}: {phase.message}",
                    longrepr=phase.longrepr,
                    sections=phase.sections,
                    file=phase.file,
                    line=phase.line,
                )
            )

    def _torn_down(self, item: pytest.Item, after: pytest.Item | None) -> None:
        manager: Any = item.config.pluginmanager.get_plugin("capturemanager")
        captured: AbstractContextManager[None] = (
            nullcontext() if manager is None else manager.item_capture("teardown", item)
        )
        with captured:
            self._session._setupstate.teardown_exact(after)
