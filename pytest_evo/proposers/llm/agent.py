"""One proposal by a model with tools: it looks, edits, checks and finishes."""

from __future__ import annotations

from collections.abc import Callable

from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Finish as End
from pytest_evo.chat import ToolCall
from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import ProposalRefused
from pytest_evo.models import ChangelogEntry
from pytest_evo.proposers.llm.conversation import Conversation
from pytest_evo.proposers.llm.tools import act
from pytest_evo.proposers.llm.tools import BadCall
from pytest_evo.proposers.llm.tools import Ending
from pytest_evo.proposers.llm.tools import Finish
from pytest_evo.proposers.llm.tools import read_call
from pytest_evo.proposers.llm.workbench import MOST_SHOWN
from pytest_evo.proposers.llm.workbench import Workbench

Ask = Callable[[ChatRequest], ChatReply]
"""Asks the model within the budget."""

_MOST_BAD = 8
_MOST_SAME = 4
_MOST_CALLS = 32  # of one answer
_NUDGE = (
    "Use the tools: nothing outside of them is read. Edit files, then call finish with "
    "one changelog entry for each changed file."
)


def usable(reply: ChatReply) -> ChatReply:
    """The reply, if it may be acted on.

    Raises:
        ProposalRefused: it is cut, refused or empty; nothing of it is used.
    """
    if reply.finish is End.LENGTH:
        raise ProposalRefused(
            "the model's answer was cut at its token limit (max_tokens), and nothing "
            "of it was used; make smaller edits"
        )
    if reply.finish is End.REFUSED:
        raise ProposalRefused("the model refused to answer")
    if reply.finish is End.EMPTY:
        raise ProposalRefused("the model's answer was empty")
    return reply


def ask_shortening(ask: Ask, conversation: Conversation) -> ChatReply:
    """Ask; where the context is too short, cut and ask again.

    Raises:
        ProposalRefused: also a short request is too long.
    """
    while True:
        try:
            return ask(conversation.request())
        except ContextOverflow as error:
            if not conversation.shorten():
                raise ProposalRefused(f"{error} Cutting did not help.") from error


class ToolAgent:
    """Talks with a model until it finishes, or is refused.

    Args:
        ask: asks the model.
        bench: the files.
        conversation: with its opening.
        steps: answers of the model at most.
    """

    def __init__(
        self, ask: Ask, bench: Workbench, conversation: Conversation, steps: int
    ) -> None:
        self._ask = ask
        self._bench = bench
        self._conversation = conversation
        self._steps = steps
        self._ending = Ending(bench)
        self._bad = 0
        self._nudged = False
        self._last: tuple[str, str] = ("", "")
        self._same = 0

    def run(self) -> tuple[ChangelogEntry, ...]:
        """The changelog of what was edited.

        Raises:
            ProposalRefused: there will be no proposal.
        """
        for _ in range(self._steps):
            reply = usable(ask_shortening(self._ask, self._conversation))
            self._conversation.hear(reply)
            if not reply.calls:
                self._nudge()
                continue
            changelog = self._carry_out(reply)
            if changelog is not None:
                return changelog
        raise ProposalRefused(
            f"no finish within {self._steps} answers (steps); finish earlier"
        )

    def _nudge(self) -> None:
        if self._nudged:
            raise ProposalRefused("the model only talked, it did not call finish")
        self._nudged = True
        self._conversation.say(_NUDGE)

    def _carry_out(self, reply: ChatReply) -> tuple[ChangelogEntry, ...] | None:
        """Each call in its order; a bad one is told, the others count."""
        changelog: tuple[ChangelogEntry, ...] | None = None
        for number, call in enumerate(reply.calls):
            if number >= _MOST_CALLS or changelog is not None:
                self._conversation.answer(call, "Not carried out: too many calls.")
                continue
            told = self._result(call)
            if isinstance(told, tuple):
                changelog = told
                told = "Finished."
            self._conversation.answer(call, told[: MOST_SHOWN + 1_000])
        return changelog

    def _result(self, call: ToolCall) -> str | tuple[ChangelogEntry, ...]:
        self._count_same(call)
        try:
            arguments = read_call(call)
        except BadCall as bad:
            self._bad += 1
            if self._bad > _MOST_BAD:
                raise ProposalRefused(f"too many calls were wrong: {bad}") from bad
            return str(bad)
        if isinstance(arguments, Finish):
            return self._ending.accept(arguments.changelog)
        try:
            return act(arguments, self._bench)
        except ProposalRefused as refusal:
            return f"Not done. {refusal}"

    def _count_same(self, call: ToolCall) -> None:
        said = (call.name, call.arguments)
        self._same = self._same + 1 if said == self._last else 1
        self._last = said
        if self._same > _MOST_SAME:
            raise ProposalRefused(
                f"the model called {call.name} {self._same} times in a row with the "
                "same arguments"
            )
