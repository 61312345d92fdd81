"""The ``llm`` proposer."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pytest_evo.chat import AnswerRefused
from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Message
from pytest_evo.chat import ToolsRefused
from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import ProposalRefused
from pytest_evo.models import candidate_id
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Json
from pytest_evo.models import Proposal
from pytest_evo.proposers.archive import Archive
from pytest_evo.proposers.llm.agent import ToolAgent
from pytest_evo.proposers.llm.blocks import BlockWriter
from pytest_evo.proposers.llm.conversation import Conversation
from pytest_evo.proposers.llm.prompting import Prompts
from pytest_evo.proposers.llm.purse import Account
from pytest_evo.proposers.llm.purse import LEAST_ANSWER
from pytest_evo.proposers.llm.purse import Purse
from pytest_evo.proposers.llm.tools import all_tools
from pytest_evo.proposers.llm.workbench import Workbench
from pytest_evo.protocols import ChatModel
from pytest_evo.protocols import ProposalRequest
from pytest_evo.settings_model import ModelSettings


class LlmProposer:
    """Lets a model edit the files: with tools, or with blocks of text without them.

    One object serves all slots.

    Args:
        model: the model.
        options: how much it may say.
        rootdir: a relative folder of prompts starts here.
        archive: keeps the conversations, and takes secrets out of what is read.

    Raises:
        SettingsProblem: the folder of prompts is not there.
    """

    def __init__(
        self,
        model: ChatModel,
        options: ModelSettings,
        *,
        rootdir: Path | None = None,
        archive: Archive | None = None,
    ) -> None:
        self._model = model
        self._options = options
        self._archive = archive or Archive()
        self._hide = self._archive.redact
        folder = options.prompts
        base = rootdir or Path()
        self._prompts = Prompts(None if folder is None else base / folder)
        self._purse = Purse()
        self._tools = options.tools != "never"

    def propose(self, request: ProposalRequest) -> Proposal:
        """Edit the files of the request's workspace.

        Raises:
            AnswerRefused: the model gave nothing that can be used.
            AnswersOver: the budget does not pay for a further call.
            AskedInVain, AnswerFailed: the model cannot be asked.
        """
        account = self._purse.open(request)
        try:
            changelog = self._changelog(request, account)
        except ProposalRefused as refusal:
            raise AnswerRefused(str(refusal), account.usage) from refusal
        finally:
            usage = account.close()
        data: dict[str, Json] = {"model": self._model.name, "calls": usage.calls}
        return Proposal(changelog, usage, data)

    def _changelog(
        self, request: ProposalRequest, account: Account
    ) -> tuple[ChangelogEntry, ...]:
        if self._tools:
            try:
                return self._with_tools(request, account)
            except ToolsRefused:
                self._tools = False  # for the rest of the run
        return self._with_blocks(request, account)

    def _with_tools(
        self, request: ProposalRequest, account: Account
    ) -> tuple[ChangelogEntry, ...]:
        bench = Workbench(request.workspace, request.schema, self._hide)
        conversation = Conversation(
            self._opening(request, bench, tools=True),
            self._options.prompt_bytes,
            all_tools(),
        )
        agent = ToolAgent(
            self._asking(request, account), bench, conversation, self._options.steps
        )
        with self._kept(request, conversation):
            return agent.run()

    def _with_blocks(
        self, request: ProposalRequest, account: Account
    ) -> tuple[ChangelogEntry, ...]:
        bench = Workbench(request.workspace, request.schema, self._hide)
        conversation = Conversation(
            self._opening(request, bench, tools=False), self._options.prompt_bytes
        )
        with self._kept(request, conversation):
            asking = self._asking(request, account)
            return BlockWriter(asking, bench, conversation).run()

    @contextmanager
    def _kept(
        self, request: ProposalRequest, conversation: Conversation
    ) -> Iterator[None]:
        """Keep the conversation, however it ends."""
        try:
            yield
        finally:
            self._archive.keep(_name(request), {"talk.md": conversation.transcript()})

    def _opening(
        self, request: ProposalRequest, bench: Workbench, *, tools: bool
    ) -> Callable[[int], tuple[Message, ...]]:
        def opening(budget: int) -> tuple[Message, ...]:
            return self._prompts.opening(request, bench, budget, tools=tools)

        return opening

    def _asking(
        self, proposal: ProposalRequest, account: Account
    ) -> Callable[[ChatRequest], ChatReply]:
        most = self._options.max_tokens
        asker = _name(proposal)

        def ask(request: ChatRequest) -> ChatReply:
            nonlocal most
            try:
                return account.ask(self._model, replace(request, asker=asker), most)
            except ContextOverflow:
                # request and answer share the context of many models
                most = max(LEAST_ANSWER, most // 2)
                raise

        return ask


def _name(request: ProposalRequest) -> str:
    """The candidate that is to come, and whether it is asked for once more."""
    again = "-again" if request.feedback is not None else ""
    return candidate_id(request.iteration, request.step) + again
