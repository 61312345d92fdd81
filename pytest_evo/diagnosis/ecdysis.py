"""Diagnosis across cases: what recurs in a batch, refined by three roles.

Failures are grouped; each group is judged a systematic defect or a quirk of the model
behind the system under test. Then one role says the cause, one attacks it with evidence
of the other cases, and one specifies the change.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from pytest_evo.diagnosis.asking import Answer
from pytest_evo.diagnosis.asking import Asker
from pytest_evo.diagnosis.asking import in_order
from pytest_evo.diagnosis.asking import Question
from pytest_evo.diagnosis.brief import failures_text
from pytest_evo.diagnosis.briefing import Briefing
from pytest_evo.diagnosis.briefing import Versions
from pytest_evo.diagnosis.failures import failure_line
from pytest_evo.diagnosis.mara import as_diagnosis
from pytest_evo.diagnosis.quality import class_faults
from pytest_evo.diagnosis.quality import file_faults
from pytest_evo.diagnosis.quality import quote_faults
from pytest_evo.diagnosis.quality import vague_parts
from pytest_evo.diagnosis.readings import Cause
from pytest_evo.diagnosis.readings import Group
from pytest_evo.diagnosis.readings import Grouping
from pytest_evo.diagnosis.readings import Objection
from pytest_evo.diagnosis.readings import Specification
from pytest_evo.diagnosis.rendering import cell
from pytest_evo.diagnosis.rendering import said
from pytest_evo.diagnosis.templates import Prompts
from pytest_evo.evidence import Trace
from pytest_evo.hostile import one_line
from pytest_evo.models import CaseId
from pytest_evo.models import Diagnosis
from pytest_evo.models import Node
from pytest_evo.models import Usage
from pytest_evo.protocols import ChatModel
from pytest_evo.protocols import Diagnosed
from pytest_evo.replies import schema_of

T = TypeVar("T", bound=BaseModel)

UNGROUPED = "ungrouped"

SYSTEM, AGAIN = "ecdysis-system.md", "again.md"
GROUPS = "ecdysis-groups.md"
CAUSE = "ecdysis-cause.md"
OBJECTION = "ecdysis-objection.md"
SPECIFICATION = "ecdysis-specification.md"
_OF_GROUP = {"chain", "node", "title", "cases", "kind", "why", "pattern", "schema"}
VARIABLES = {
    SYSTEM: frozenset({"objective", "declared"}),
    GROUPS: frozenset({"chain", "node", "traces", "cases", "schema"}),
    CAUSE: frozenset(_OF_GROUP | {"files", "traces"}),
    OBJECTION: frozenset(_OF_GROUP | {"cause", "file", "traces", "others"}),
    SPECIFICATION: frozenset(
        _OF_GROUP | {"cause", "verdict", "objection", "earlier", "files"}
    ),
    AGAIN: frozenset({"faults"}),
}


@dataclass(frozen=True, slots=True)
class _Read:
    """What came of one group."""

    diagnosis: Diagnosis | None
    usage: Usage
    problems: tuple[str, ...]


class AcrossCases:
    """Groups the failures of the newest node and reads each group by three roles.

    Args:
        model: that plays all roles.
        versions: the candidates' files.
        objective: what the artifact is for.
        prompts: a directory with prompts of one's own.

    Raises:
        SettingsProblem: a prompt is missing or malformed.
    """

    def __init__(
        self,
        model: ChatModel,
        versions: Versions,
        objective: str = "",
        prompts: Path | None = None,
    ) -> None:
        self._asker = Asker(model)
        self._versions = versions
        self._prompts = Prompts(VARIABLES, prompts)
        self._system = self._prompts.render(
            SYSTEM, objective=objective, declared=versions.declared()
        )

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        """One diagnosis a group: defects before quirks, else in the order of cases."""
        briefing = Briefing.of(nodes, self._versions)
        failing = briefing.failing()
        if not failing:
            return Diagnosed()
        grouped = await self._group(briefing, failing)
        if grouped.value is None:
            return Diagnosed((), grouped.usage, (grouped.problem,))
        groups = as_partition(grouped.value.groups, failing)
        read = await in_order(
            [partial(self._read, briefing, one, grouped.doubts) for one in groups]
        )
        problems = [problem for one in read for problem in one.problems]
        if grouped.problem:
            problems.insert(0, grouped.problem)
        return Diagnosed(
            tuple(one.diagnosis for one in read if one.diagnosis is not None),
            sum((one.usage for one in read), grouped.usage),
            tuple(problems),
        )

    async def _group(
        self, briefing: Briefing, failing: Sequence[CaseId]
    ) -> Answer[Grouping]:
        lines = briefing.newest(failing)
        traces = [
            trace
            for trace in briefing.evidence.traces
            if trace.node == briefing.node and trace.case in failing
        ]

        def values(budget: int) -> dict[str, object]:
            return {
                "chain": briefing.chain_text(budget // 3),
                "node": briefing.node,
                "traces": failures_text(traces, 2 * budget // 3),
                "cases": [
                    f"`{cell(case)}`: {said(failure_line(trace))}"
                    for case, trace in lines.items()
                ],
            }

        def faults(grouping: Grouping) -> list[str]:
            return grouping_faults(grouping, failing, traces)

        return await self._ask(GROUPS, Grouping, values, faults)

    async def _read(
        self, briefing: Briefing, group: Group, doubts: Sequence[str]
    ) -> _Read:
        """Three roles, one after the other."""
        own = briefing.traces(group.cases)
        texts = [text for trace in own for text in trace.texts()]
        group = group.model_copy(update={"quotes": _found(group.quotes, texts)})
        cause = await self._cause(briefing, group, own, texts)
        usage = cause.usage
        if cause.value is None:
            return _Read(None, usage, (f"{group.title}: {cause.problem}",))
        objection = await self._objection(briefing, group, cause.value, own)
        usage += objection.usage
        problems = [cause.problem, objection.problem]
        specification = await self._specification(
            briefing, group, cause.value, objection.value, own
        )
        usage += specification.usage
        problems.append(specification.problem)
        told = tuple(f"{group.title}: {one}" for one in problems if one)
        if specification.value is None:
            return _Read(None, usage, told)
        held = cause.value.model_copy(
            update={"quotes": _found(cause.value.quotes, texts)}
        )
        diagnosis = merged(group, held, objection.value, specification.value)
        known = [one for one in doubts if _is_about(one, group)]
        every = (*known, *cause.doubts, *objection.doubts, *specification.doubts)
        return _Read(as_diagnosis(diagnosis, every), usage, told)

    async def _cause(
        self, briefing: Briefing, group: Group, own: list[Trace], texts: list[str]
    ) -> Answer[Cause]:
        def values(budget: int) -> dict[str, object]:
            return {
                **_of_group(briefing, group, budget // 3),
                "files": briefing.files_text(group.cases, budget // 3),
                "traces": failures_text(own, budget // 3),
            }

        def faults(cause: Cause) -> list[str]:
            return [
                *vague_parts(cause=cause.cause),
                *quote_faults(cause.quotes, texts),
                *file_faults(cause.file, briefing.files),
            ]

        return await self._ask(CAUSE, Cause, values, faults)

    async def _objection(
        self, briefing: Briefing, group: Group, cause: Cause, own: list[Trace]
    ) -> Answer[Objection]:
        others = [
            trace
            for trace in briefing.evidence.traces
            if trace.node == briefing.node and trace.case not in group.cases
        ]
        texts = [text for trace in (*own, *others) for text in trace.texts()]

        def values(budget: int) -> dict[str, object]:
            return {
                **_of_group(briefing, group, budget // 3),
                "cause": one_line(cause.cause),
                "file": cell(cause.file),
                "traces": failures_text(own, budget // 3),
                "others": failures_text(others, budget // 3),
            }

        def faults(objection: Objection) -> list[str]:
            found = vague_parts(objection=objection.objection)
            if objection.verdict != "stands" or objection.counter_quotes:
                found += quote_faults(objection.counter_quotes, texts)
            if objection.verdict != "stands" and objection.cause == cause.cause:
                found.append(
                    f"the cause is {objection.verdict} and yet the same. Give the "
                    "cause that the evidence speaks for."
                )
            return found

        return await self._ask(OBJECTION, Objection, values, faults)

    async def _specification(
        self,
        briefing: Briefing,
        group: Group,
        cause: Cause,
        objection: Objection | None,
        own: list[Trace],
    ) -> Answer[Specification]:
        ground = briefing.ground(group.cases, own)
        held = cause.cause if objection is None else objection.cause

        def values(budget: int) -> dict[str, object]:
            return {
                **_of_group(briefing, group, budget // 2),
                "cause": one_line(held),
                "verdict": "none made" if objection is None else objection.verdict,
                "objection": one_line(objection.objection) if objection else "none",
                "earlier": list(ground.earlier),
                "files": briefing.files_text(group.cases, budget // 2),
            }

        def faults(specification: Specification) -> list[str]:
            return [
                *vague_parts(change=specification.change),
                *file_faults(specification.file, ground.files),
                *class_faults(merged(group, cause, objection, specification), ground),
            ]

        return await self._ask(SPECIFICATION, Specification, values, faults)

    async def _ask(
        self,
        name: str,
        kind: type[T],
        values: Callable[[int], Mapping[str, object]],
        faults: Callable[[T], Sequence[str]],
    ) -> Answer[T]:
        schema = json.dumps(schema_of(kind))

        def prompt(budget: int) -> tuple[str, str]:
            filled = {**values(budget), "schema": schema}
            return self._system, self._prompts.render(name, **filled)

        return await self._asker.ask(
            Question(
                prompt=prompt,
                kind=kind,
                faults=faults,
                again=lambda found: self._prompts.render(AGAIN, faults=list(found)),
            )
        )


def _found(quotes: Sequence[str], texts: Sequence[str]) -> list[str]:
    """The quotes that are in the traces."""
    return [quote for quote in quotes if not quote_faults([quote], texts)]


def _is_about(doubt: str, group: Group) -> bool:
    """Whether a doubt of the grouping is about this group or its cases."""
    title = one_line(group.title, 80)
    return doubt.startswith(f"group {title!r}: ") or any(
        f"{cell(case)!r} is in " in doubt for case in group.cases
    )


def _of_group(briefing: Briefing, group: Group, budget: int) -> dict[str, object]:
    return {
        "chain": briefing.chain_text(budget),
        "node": briefing.node,
        "title": cell(group.title),
        "cases": [f"`{cell(case)}`" for case in group.cases],
        "kind": group.kind,
        "why": one_line(group.why),
        "pattern": one_line(group.pattern),
    }


def grouping_faults(
    grouping: Grouping, failing: Sequence[CaseId], traces: Sequence[Trace]
) -> list[str]:
    """What is wrong with a grouping: each case in one group, quotes of its cases."""
    names = {cell(case): case for case in failing}
    found: list[str] = []
    seen: list[str] = []
    for group in grouping.groups:
        title = one_line(group.title, 80)
        cases = {names.get(cell(case), case) for case in group.cases}
        seen += sorted(cases)
        texts = [text for t in traces if t.case in cases for text in t.texts()]
        told = vague_parts(pattern=group.pattern)
        told += quote_faults(group.quotes, texts)
        found += [f"group {title!r}: {one}" for one in told]
    known = set(failing)
    found += [
        f"there is no failing case {one_line(case, 200)!r}."
        for case in dict.fromkeys(seen)
        if case not in known
    ]
    found += [f"the case {cell(c)!r} is in no group." for c in failing if c not in seen]
    found += [
        f"the case {cell(case)!r} is in several groups."
        for case in failing
        if seen.count(case) > 1
    ]
    return found


def as_partition(groups: Sequence[Group], failing: Sequence[CaseId]) -> list[Group]:
    """Each failing case in exactly one group: defects first, in the order of cases.

    A case belongs to the first group that names it; those that none names are a group.
    """
    names = {cell(case): case for case in failing}
    left = dict.fromkeys(failing)
    kept: list[Group] = []
    for group in groups:
        own = {names.get(cell(case), case) for case in group.cases}
        cases = [case for case in left if case in own]
        for case in cases:
            del left[case]
        if cases:
            kept.append(group.model_copy(update={"cases": cases}))
    if left:
        rest = Group(
            title=UNGROUPED,
            cases=list(left),
            pattern="no group was found for these failing cases",
            quotes=[],
            kind="quirk",
            why="they share nothing that was noticed",
        )
        kept.append(rest)
    place = {case: number for number, case in enumerate(failing)}
    return sorted(kept, key=lambda one: (one.kind == "quirk", place[one.cases[0]]))


def merged(
    group: Group,
    cause: Cause,
    objection: Objection | None,
    specification: Specification,
) -> Diagnosis:
    """What the roles made of a group, as one diagnosis."""
    verdict = "" if objection is None else f"{objection.verdict}: {objection.objection}"
    return Diagnosis(
        cases=tuple(group.cases),
        observation=group.pattern,
        cause=cause.cause if objection is None else objection.cause,
        file=specification.file,
        change=specification.change,
        quotes=tuple(dict.fromkeys((*group.quotes, *cause.quotes))),
        classes={one.diagnosis: one.letter for one in specification.earlier},
        confidence=specification.confidence,
        methods=specification.methods.model_dump(),
        kind=group.kind,
        objection=verdict,
    )
