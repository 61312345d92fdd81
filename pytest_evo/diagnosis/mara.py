"""Diagnosis of each failing case by itself, along the chain (arXiv 2609.35855)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from pytest_evo.diagnosis.asking import Answer
from pytest_evo.diagnosis.asking import Asker
from pytest_evo.diagnosis.asking import in_order
from pytest_evo.diagnosis.asking import Question
from pytest_evo.diagnosis.brief import failures_text
from pytest_evo.diagnosis.briefing import Briefing
from pytest_evo.diagnosis.briefing import Versions
from pytest_evo.diagnosis.failures import by_kinds
from pytest_evo.diagnosis.quality import faults_of
from pytest_evo.diagnosis.readings import CaseReading
from pytest_evo.diagnosis.rendering import cell
from pytest_evo.diagnosis.templates import Prompts
from pytest_evo.models import CaseId
from pytest_evo.models import Diagnosis
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Node
from pytest_evo.protocols import ChatModel
from pytest_evo.protocols import Diagnosed
from pytest_evo.replies import schema_of

SYSTEM, CASE, AGAIN = "mara-system.md", "mara-case.md", "again.md"
VARIABLES = {
    SYSTEM: frozenset({"objective", "declared", "schema"}),
    CASE: frozenset({"chain", "case", "node", "earlier", "files", "traces"}),
    AGAIN: frozenset({"faults"}),
}


MOST_CASES = 24
"""Cases that are read at one node at most, one question each."""


class CaseByCase:
    """Reads every failing case of the newest node, all at the same time.

    Args:
        model: that is asked, once or twice a case.
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
            SYSTEM,
            objective=objective,
            declared=versions.declared(),
            schema=json.dumps(schema_of(CaseReading)),
        )

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        """One diagnosis of each failing case, in the order the cases ran.

        Of more than ``MOST_CASES`` as many are read, of all kinds of failure.
        """
        briefing = Briefing.of(nodes, self._versions)
        failing = briefing.failing()
        cases = representative(briefing, failing)
        answers = await in_order([partial(self._read, briefing, one) for one in cases])
        found: list[Diagnosis] = []
        problems: list[str] = []
        for case, answer in zip(cases, answers, strict=True):
            if answer.problem:
                problems.append(f"{case}: {answer.problem}")
            if answer.value is not None:
                found.append(as_diagnosis(answer.value.diagnosis(case), answer.doubts))
        if len(failing) > len(cases):
            more = len(failing) - len(cases)
            problems.append(f"{more} more failing cases were not read: too many")
        usage = sum((answer.usage for answer in answers), NO_USAGE)
        return Diagnosed(tuple(found), usage, tuple(problems))

    async def _read(self, briefing: Briefing, case: CaseId) -> Answer[CaseReading]:
        traces = briefing.traces([case])
        ground = briefing.ground([case], traces)

        def prompt(budget: int) -> tuple[str, str]:
            chain = briefing.chain_text(budget // 3)
            files = briefing.files_text([case], budget // 3)
            left = budget - len(chain) - len(files)
            return self._system, self._prompts.render(
                CASE,
                chain=chain,
                case=cell(case),
                node=briefing.node,
                earlier=list(ground.earlier),
                files=files,
                traces=failures_text(traces, left),
            )

        return await self._asker.ask(
            Question(
                prompt=prompt,
                kind=CaseReading,
                faults=lambda one: faults_of(one.diagnosis(case), ground),
                again=lambda faults: self._prompts.render(AGAIN, faults=list(faults)),
            )
        )


def representative(briefing: Briefing, failing: Sequence[CaseId]) -> list[CaseId]:
    """The cases to read, in their order: all of them, or some of each kind."""
    traces = by_kinds(list(briefing.newest(failing).values()))
    chosen = {trace.case for trace in traces[:MOST_CASES]}
    return [case for case in failing if case in chosen]


def as_diagnosis(diagnosis: Diagnosis, doubts: Sequence[str]) -> Diagnosis:
    """The diagnosis, weak where checks found it wrong twice."""
    return replace(diagnosis, weak=bool(doubts), doubts=tuple(doubts))
