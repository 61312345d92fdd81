"""The proposer that lets a coding agent edit a workspace."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from dataclasses import asdict
from dataclasses import replace

from pytest_evo.chat import AnswerRefused
from pytest_evo.models import candidate_id
from pytest_evo.models import Json
from pytest_evo.models import Proposal
from pytest_evo.proposers.agent.boxes import Boxes
from pytest_evo.proposers.agent.gateway_meter import Meter
from pytest_evo.proposers.agent.judging import facts
from pytest_evo.proposers.agent.judging import how_it_ended
from pytest_evo.proposers.agent.judging import judge
from pytest_evo.proposers.agent.judging import stray_names
from pytest_evo.proposers.agent.session import Agent
from pytest_evo.proposers.agent.session import Conditions
from pytest_evo.proposers.agent.session import Session
from pytest_evo.proposers.agent.session import Work
from pytest_evo.proposers.archive import Archive
from pytest_evo.protocols import ProposalRequest


class AgentProposer:
    """Runs one agent for each request; may be asked from several threads.

    An agent is judged by its own events, by the files and by the clock; its exit status
    alone says nothing (several end with 0 after they did nothing).

    Args:
        agent: that is there.
        conditions: that it works under.
        meter: counts what it spends.
        archive: keeps prompt, output and model calls of each proposal.
        notice: told what a person should look at.
    """

    def __init__(
        self,
        agent: Agent,
        conditions: Conditions,
        *,
        meter: Meter | None = None,
        archive: Archive | None = None,
        notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._agent = agent
        self._conditions = conditions
        self._meter = meter or Meter()
        self._archive = archive or Archive()
        self._notice = notice
        self._boxes = Boxes()
        weakref.finalize(self, self._boxes.close)

    def propose(self, request: ProposalRequest) -> Proposal:
        """Have the agent edit ``request.workspace / "artifact"``; blocks.

        Raises:
            AnswerRefused: it gave no answer, with why and with what it cost.
        """
        with self._boxes.open() as box:
            session = Session(
                self._agent,
                self._conditions,
                self._meter,
                request,
                box,
                self._boxes.closing.is_set,
            )
            work = session.work()
        self._keep(request, work)
        if work.strayed:
            self._notice(
                f"while the agent {self._agent.name} worked without a sandbox, files "
                f"of the project changed: {stray_names(work)}. Its proposal is "
                "refused; look at these files (they were not put back)"
            )
        try:
            proposal = judge(self._agent.name, work, request.workspace)
        except AnswerRefused as refusal:
            text = self._archive.redact(str(refusal))
            raise AnswerRefused(text, refusal.usage) from None
        return self._without_secrets(proposal)

    def _without_secrets(self, proposal: Proposal) -> Proposal:
        redact = self._archive.redact
        entries = tuple(
            replace(
                entry,
                reason=redact(entry.reason),
                evidence=tuple(map(redact, entry.evidence)),
                expected=redact(entry.expected),
            )
            for entry in proposal.changelog
        )
        data = {name: _clean(value, redact) for name, value in proposal.data.items()}
        return replace(proposal, changelog=entries, data=data)

    def _keep(self, request: ProposalRequest, work: Work) -> None:
        name = candidate_id(request.iteration, request.step)
        again = "-again" if request.feedback is not None else ""
        report = {**facts(self._agent.name, work), "end": how_it_ended(work)}
        report |= {"seconds": work.ended.seconds, "usage": asdict(work.usage)}
        calls = (json.dumps(asdict(call), ensure_ascii=False) for call in work.calls)
        self._archive.keep(
            f"{name}{again}",
            {
                "prompt.md": work.prompt,
                "output.txt": work.output,
                "calls.jsonl": "".join(f"{call}\n" for call in calls),
                "report.json": json.dumps(report, indent=1, ensure_ascii=False) + "\n",
            },
        )


def _clean(value: Json, redact: Callable[[str], str]) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {key: _clean(inner, redact) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner, redact) for inner in value]
    return value
