"""Keeps what a proposer must not know out of what it is told.

Two things are hidden in everything that a rollout said: texts of val and test cases,
which code of a candidate can print by importing their files, and, unless they are to
be shown, expected answers of train cases: all those of the case itself, of the others
those that are long enough to be told from other words. All are known by hashes only.
The ids of train cases hold parameters too, so evidence calls such a case by an alias.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_evo.diagnosis.comparisons import report_without_right_sides
from pytest_evo.diagnosis.comparisons import without_right_side
from pytest_evo.diagnosis.memo import by_identity
from pytest_evo.diagnosis.redacting import redacted
from pytest_evo.diagnosis.traces import without_decorators
from pytest_evo.models import Attempt
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import Detail
from pytest_evo.models import Diagnosis
from pytest_evo.models import Metric
from pytest_evo.models import Node
from pytest_evo.models import Phase
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import TraceStep
from pytest_evo.protocols import Diagnosed
from pytest_evo.protocols import Diagnoser
from pytest_evo.spots import hide
from pytest_evo.spots import is_long
from pytest_evo.spots import length
from pytest_evo.spots import split
from pytest_evo.spots import Spots
from pytest_evo.spots import spots_of
from pytest_evo.spots import windows

ANSWER = "\u2039expected answer\u203a"
HELD_OUT = "\u2039held-out case\u203a"
_COMPARED = "="
_NOTHING = Spots(())
_LEAST_WORDS = 3
_ESCAPE = re.compile(r"\\x[0-9a-f]{2}|\\u[0-9a-f]{4}|\\U[0-9a-f]{8}")


class Hiding:
    """What is hidden in one run.

    Args:
        marks: the collected cases with their hashes.
        cases: the same cases with their splits.
        answer_params: names of parameters, keys and attributes that hold answers.
        answers: whether the answers of train cases are hidden.
    """

    def __init__(
        self,
        marks: Sequence[CaseMark],
        cases: Iterable[Case],
        answer_params: Collection[str],
        *,
        answers: bool,
    ) -> None:
        train = {case.id for case in cases if case.split is Split.TRAIN}
        names = frozenset(name.casefold() for name in answer_params)
        self._held_out = Spots(_held_out(marks, train))
        self._answers: dict[CaseId, Spots] = {}
        self._names: dict[CaseId, CaseId] = {}  # case -> alias
        others: set[str] = set()
        for mark in marks if answers else ():
            if mark.id in train:
                own = set(_answers(mark, names))
                self._answers[mark.id] = Spots(own)
                others.update(filter(_is_telling, own))
        self._all_answers = Spots(others)
        self._name_all()
        self._cases = {alias: case for case, alias in self._names.items()}
        self._attempt = by_identity(self._renamed)

    def _name_all(self) -> None:
        taken = set(self._answers)
        for case, spots in self._answers.items():
            alias = told = _named(case, spots)
            number = 1
            while alias != case and alias in taken:
                number += 1
                alias = f"{told}#{number}"
            if alias != case:
                taken.add(alias)
                self._names[case] = alias

    # -- texts -----------------------------------------------------------------------

    def text(self, case: CaseId, text: str) -> str:
        """A text that a rollout of a case gave, without what is hidden."""
        if not text:
            return text
        return hide(
            text,
            (self._answers.get(case, _NOTHING), ANSWER),
            (self._all_answers, ANSWER),
            (self._held_out, HELD_OUT),
        )

    def detail(self, case: CaseId, detail: Detail) -> Detail:
        """A detail without what is hidden, and without pytest's own form of it."""

        def clean(text: str) -> str:
            return self.text(case, text)

        return replace(
            detail,
            phases=tuple(self._phase(case, phase, clean) for phase in detail.phases),
            steps=tuple(
                TraceStep(clean(step.name), _data(step.data, clean))
                for step in detail.steps
            ),
            warnings=tuple(map(clean, detail.warnings)),
            serialized=(),
        )

    def _phase(self, case: CaseId, phase: Phase, clean: Callable[[str], str]) -> Phase:
        message = clean(phase.message)
        report = clean(without_decorators(phase.longrepr))
        if case in self._answers and ANSWER not in message:
            # none of the known answers was compared, so this one came from elsewhere
            message = without_right_side(message, ANSWER)
            report = report_without_right_sides(report, ANSWER)
        return replace(
            phase,
            message=message,
            longrepr=report,
            sections=_pairs(phase.sections, clean),
            properties=_pairs(phase.properties, clean),
        )

    # -- values ----------------------------------------------------------------------

    def case(self, case: CaseId) -> CaseId:
        """What a case is called."""
        return self._names.get(case, case)

    def cases(self, cases: Sequence[Case]) -> tuple[Case, ...]:
        """The same cases under their aliases."""
        return tuple(replace(case, id=self.case(case.id)) for case in cases)

    def nodes(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        """The same nodes; what their rollouts bring is hidden too."""
        return tuple(map(self._node, nodes))

    def _node(self, node: Node) -> Node:
        candidate, diagnoses = node.candidate, node.diagnoses
        if self._names:
            changelog = redacted(candidate.changelog, self.case)
            candidate = replace(candidate, changelog=changelog)
            diagnoses = redacted(diagnoses, self.case)
        rollouts = tuple(map(self._rollout, node.rollouts))
        return Node(candidate, rollouts, diagnoses, node.mean)

    def _rollout(self, rollout: Rollout) -> Rollout:
        case, detail, violation = rollout.case, rollout.detail, rollout.violation
        metrics = tuple([self._metric(case, one) for one in rollout.metrics])
        changes: dict[str, Any] = {}
        if self.case(case) != case:
            changes["case"] = self.case(case)
        if detail is not None:
            changes["detail"] = self.detail(case, detail)
        if violation:
            changes["violation"] = self.text(case, violation)
        if metrics != rollout.metrics:
            changes["metrics"] = metrics
        return replace(rollout, **changes) if changes else rollout

    def _metric(self, case: CaseId, metric: Metric) -> Metric:
        name = self.text(case, metric.name)
        return metric if name == metric.name else replace(metric, name=name)

    def detail_of(self, rollout: Rollout, read: Callable[[str], Detail]) -> Detail:
        """What ``read`` finds for a rollout that was hidden, hidden as well."""
        case = self._cases.get(rollout.case, rollout.case)
        return self.detail(case, read(rollout.trace or ""))

    def attempts(self, attempts: Sequence[Attempt]) -> Sequence[Attempt]:
        """The same attempts under the aliases of cases."""
        return list(map(self._attempt, attempts)) if self._names else attempts

    def _renamed(self, attempt: Attempt) -> Attempt:
        return replace(
            attempt,
            scores={self.case(case): score for case, score in attempt.scores.items()},
            changelog=redacted(attempt.changelog, self.case),
        )

    def real(self, diagnosis: Diagnosis) -> Diagnosis:
        """A diagnosis with the true ids of its cases."""
        cases = tuple(self._cases.get(case, case) for case in diagnosis.cases)
        return replace(diagnosis, cases=cases)


class HidingDiagnoser:
    """Shows a diagnoser what a proposer may be shown, and no more."""

    def __init__(self, diagnoser: Diagnoser, hiding: Callable[[], Hiding]) -> None:
        self._diagnoser = diagnoser
        self._hiding = hiding

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        """What the diagnoser says of the same nodes."""
        hiding = self._hiding()
        made = await self._diagnoser.diagnose(hiding.nodes(nodes))
        return replace(made, diagnoses=tuple(map(hiding.real, made.diagnoses)))


def _answers(mark: CaseMark, names: frozenset[str]) -> Iterator[str]:
    for path, spots in mark.texts:
        parts = re.split(r"[._\W]+", path.casefold())
        if path.startswith(_COMPARED) or not names.isdisjoint(parts):
            yield from split(spots)


def _held_out(marks: Sequence[CaseMark], train: Collection[CaseId]) -> set[str]:
    """Spots of val and test cases that no train case has, ids included."""
    held: set[str] = set()
    known: set[str] = set()
    for mark in marks:
        spots = {one for _, joined in mark.texts for one in split(joined)}
        if mark.id in train:
            known |= spots
            known.update(windows(mark.id))
        else:
            held.update(filter(_is_telling, spots))
            held.update(spots_of(mark.id))
    return held - known


def _is_telling(spot: str) -> bool:
    """Whether it is looked for outside its own case: shorter ones stand everywhere."""
    return is_long(spot) or length(spot) >= _LEAST_WORDS


def _named(case: CaseId, spots: Spots) -> CaseId:
    """The id without answers among its parameters, which pytest escapes."""
    name, bracket, parameters = case.partition("[")
    if not bracket:
        return case
    plain = _ESCAPE.sub(lambda found: chr(int(found[0][2:], 16)), parameters)
    told = spots.hide(plain, ANSWER)
    return case if told == plain else f"{name}[{told}"


def _pairs(
    pairs: Iterable[tuple[str, str]], clean: Callable[[str], str]
) -> tuple[tuple[str, str], ...]:
    return tuple((clean(name), clean(text)) for name, text in pairs)


def _data(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {clean(str(name)): _data(inner, clean) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_data(inner, clean) for inner in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        told = clean(f"{value}")
        return value if told == f"{value}" else told
    return value
