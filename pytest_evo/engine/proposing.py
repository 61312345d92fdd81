"""Asks the proposer: at most one answer and one more with feedback."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import contextmanager

from pytest_evo.background import in_daemon_thread
from pytest_evo.chat import AnswersOver
from pytest_evo.chat import FaultAfterCalls
from pytest_evo.chat import spent_on
from pytest_evo.engine.budget import Budget
from pytest_evo.engine.budget import BudgetReached
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Plan
from pytest_evo.engine.scopelog import ScopeLog
from pytest_evo.engine.setup import Setup
from pytest_evo.engine.softstop import SoftStop
from pytest_evo.engine.state import Snapshot
from pytest_evo.engine.tabkeeping import kept_tab
from pytest_evo.errors import EvoError
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import ProposerExhausted
from pytest_evo.errors import ProposerFault
from pytest_evo.events import ProposalMade
from pytest_evo.hostile import one_line
from pytest_evo.models import Candidate
from pytest_evo.models import candidate_id
from pytest_evo.models import CandidateId
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Node
from pytest_evo.models import Proposal
from pytest_evo.models import Usage
from pytest_evo.protocols import Edit
from pytest_evo.protocols import ProposalKey
from pytest_evo.protocols import ProposalRequest
from pytest_evo.tabs import current_tab

ATTEMPTS = 2


class Proposing:
    """Turns a node into the next candidate of an iteration."""

    def __init__(
        self,
        number: int,
        parts: Parts,
        plan: Plan,
        setup: Setup,
        snapshot: Snapshot,
        budget: Budget,
        log: ScopeLog,
        stop: SoftStop,
    ) -> None:
        self._number = number
        self._parts = parts
        self._plan = plan
        self._setup = setup
        self._snapshot = snapshot
        self._budget = budget
        self._log = log
        self._stop = stop

    async def propose(
        self, step: int, base: Node, nodes: Sequence[Node], batch: Sequence[Case]
    ) -> Candidate | str:
        """The next candidate, or why the proposer has none.

        Raises:
            ProposerExhausted: it will never have one again.
            BudgetReached: time, tokens or money are used up.
            ModelProblem: asking the model again is vain.
            ModelFailed: the model gave no answer, and none when asked again.
        """
        feedback: str | None = None
        for attempt in range(ATTEMPTS):
            key = ProposalKey(self._number, step, attempt)
            made = self._log.proposal(step, attempt)
            failure: EvoError | None = None
            if made is None:
                self._budget.ask()
                try:
                    made = await self._ask(key, base, nodes, batch, feedback)
                except (ModelFailed, ModelProblem, AnswersOver) as error:
                    failure = error
                    made = self._unanswered(key, base, error)
            self._budget.charge_usage(made)
            self._log.write(made)
            self._parts.observer.notice(made)
            if isinstance(failure, AnswersOver):
                raise BudgetReached(failure.axis, str(failure))
            vain = isinstance(failure, ModelProblem) or attempt == ATTEMPTS - 1
            if failure is not None and vain:
                raise failure
            if made.exhausted:
                raise ProposerExhausted(made.refusal or "nothing left to propose")
            if made.tree is not None:
                return self._candidate(made, base, nodes)
            feedback = made.refusal
        return feedback or "refused"

    def _unanswered(
        self,
        key: ProposalKey,
        base: Node,
        error: EvoError,
        usage: Usage = NO_USAGE,
    ) -> ProposalMade:
        return ProposalMade(
            key.iteration,
            key.step,
            key.attempt,
            base.candidate.id,
            None,
            str(error),
            exhausted=isinstance(error, ProposerExhausted),
            usage=spent_on(error) + usage,
            fault=isinstance(error, ProposerFault),
        )

    def _candidate(
        self, made: ProposalMade, base: Node, nodes: Sequence[Node]
    ) -> Candidate:
        assert made.tree is not None
        return Candidate(
            id=candidate_id(self._number, made.step),
            tree=made.tree,
            parent=nodes[0].candidate.id,
            base=base.candidate.id,
            iteration=self._number,
            step=made.step,
            changelog=made.changelog,
            data=made.data,
        )

    async def _ask(
        self,
        key: ProposalKey,
        base: Node,
        nodes: Sequence[Node],
        batch: Sequence[Case],
        feedback: str | None,
    ) -> ProposalMade:
        request = self._request(key, base, nodes, batch, feedback)
        answer: Proposal | str = ""
        try:
            answer = await self._answered(key, request)
            edit = self._closed(key, base, nodes, answer)
        except (ProposalRefused, ProposerExhausted) as error:
            self._parts.workshop.discard(key)
            return self._unanswered(key, base, error, _usage_of(answer))
        except BaseException:
            self._parts.workshop.discard(key)
            raise
        return ProposalMade(
            key.iteration,
            key.step,
            key.attempt,
            base.candidate.id,
            edit.tree,
            changelog=edit.changelog,
            usage=_usage_of(answer),
            data=answer.data if isinstance(answer, Proposal) else {},
            warnings=(*edit.warnings, *unknown_cases(edit.changelog, _told(request))),
        )

    def _closed(
        self,
        key: ProposalKey,
        base: Node,
        nodes: Sequence[Node],
        answer: Proposal | str,
    ) -> Edit:
        """The edit that a workspace holds; files that were tried are refused."""
        edit = self._parts.workshop.close(key, base.candidate.tree, answer)
        twin = self._twin(edit.tree, nodes)
        if twin is None:
            return edit
        raise ProposalRefused(
            f"these are exactly the files of {twin}, which was tried already; "
            "propose something else"
        )

    def _request(
        self,
        key: ProposalKey,
        base: Node,
        nodes: Sequence[Node],
        batch: Sequence[Case],
        feedback: str | None,
    ) -> ProposalRequest:
        tree = base.candidate.tree
        evidence = self._parts.gather(nodes, batch, self._snapshot.history)
        workspace = self._parts.workshop.open(key, tree, nodes, batch, evidence)
        return ProposalRequest(
            iteration=key.iteration,
            step=key.step,
            workspace=workspace,
            schema=self._plan.schema,
            objective=self._plan.objective,
            parent=nodes[0].candidate,
            batch=tuple(case.id for case in batch),
            nodes=tuple(nodes),
            history=self._snapshot.history,
            feedback=feedback,
            rng=self._parts.draws.rng("proposal", key.iteration, key.step, key.attempt),
            knobs=self._parts.workshop.knobs(tree),
            start=self._setup.start_scores,
            tokens_left=self._budget.tokens_left(),
            usd_left=self._budget.usd_left(),
            evidence=evidence,
        )

    async def _answered(
        self, key: ProposalKey, request: ProposalRequest
    ) -> Proposal | str:
        with kept_tab(self._log, key.iteration, key.step, "proposer"):
            return await self._stop.unless(self._answer(key, request))

    async def _answer(
        self, key: ProposalKey, request: ProposalRequest
    ) -> Proposal | str:
        propose = self._parts.proposer.propose

        def asked() -> Proposal | str | Awaitable[Proposal | str]:
            with self._faults(key):  # in the thread: no future can carry StopIteration
                return propose(request)

        answer = await in_daemon_thread(asked)
        if inspect.isawaitable(answer):
            with self._faults(key):
                answer = await answer
        if isinstance(answer, Proposal | str):
            return answer
        raise FaultAfterCalls(
            f"the proposer returned {type(answer).__name__}, not a Proposal or a "
            "string",
            current_tab().total(),
        )

    @contextmanager
    def _faults(self, key: ProposalKey) -> Iterator[None]:
        """Have what a proposer raises of its own told, and count as no answer."""
        try:
            yield
        except EvoError:
            raise
        except (Exception, SystemExit) as error:
            told = self._parts.fault(key, error)
            cost = current_tab().total()
            raise FaultAfterCalls(f"the proposer raised {told}", cost) from error

    def _twin(self, tree: str, nodes: Sequence[Node]) -> CandidateId | None:
        for node in nodes:
            if node.candidate.tree == tree:
                return node.candidate.id
        return self._snapshot.seen(tree)


def _usage_of(answer: Proposal | str) -> Usage:
    """What an answer cost, also one that is refused."""
    return answer.usage if isinstance(answer, Proposal) else NO_USAGE


def _told(request: ProposalRequest) -> list[CaseId]:
    """The cases of a request by their ids, and as its evidence calls them."""
    return [*request.batch, *(row.case for row in request.evidence.histories)]


def unknown_cases(
    changelog: Sequence[ChangelogEntry], batch: Sequence[CaseId]
) -> list[str]:
    """Evidence in a changelog that names a case, and none that the proposer saw."""
    return [
        f"changelog: the evidence for {entry.file!r} names no case of the batch: "
        f"{one_line(seen, 200)}"
        for entry in changelog
        for seen in entry.evidence
        if "::" in seen and not any(case in seen for case in batch)
    ]
