"""One proposal by a model without tools: blocks of text, applied together or not."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_evo.errors import ProposalRefused
from pytest_evo.models import ChangelogEntry
from pytest_evo.proposers.llm.agent import Ask
from pytest_evo.proposers.llm.agent import ask_shortening
from pytest_evo.proposers.llm.agent import usable
from pytest_evo.proposers.llm.conversation import Conversation
from pytest_evo.proposers.llm.tools import Ending
from pytest_evo.proposers.llm.tools import Entry
from pytest_evo.proposers.llm.tools import Finish
from pytest_evo.proposers.llm.workbench import Workbench
from pytest_evo.replies import parse_reply

_OPEN = re.compile(r"(`{3,}|~{3,})[ \t]*(edit|file|delete|changelog)\b[ \t]*(.*)")
_SEARCH = "<<<<<<< SEARCH"
_MIDDLE = "======="
_REPLACE = ">>>>>>> REPLACE"
_ROUNDS = 4
_MOST_BLOCKS = 200


@dataclass(frozen=True, slots=True)
class Block:
    """One block of an answer."""

    kind: str  # edit | file | delete | changelog
    path: str
    text: str


def parse_blocks(answer: str) -> list[Block]:
    """The blocks of an answer.

    Raises:
        ProposalRefused: a block does not end; the answer may be cut.
    """
    blocks: list[Block] = []
    rows = answer.split("\n")
    at = 0
    while at < len(rows):
        found = _OPEN.fullmatch(rows[at].strip())
        at += 1
        if found is None:
            continue
        fence, kind, rest = found.groups()
        end = _end_of(rows, at, fence)
        if end is None:
            raise ProposalRefused(
                f"The block '{kind} {rest.strip()[:80]}' does not end; nothing was "
                "done."
            )
        body = "\n".join(rows[at:end])
        text = f"{body}\n" if end > at else ""
        blocks.append(Block(kind, rest.strip().strip("`\"'"), text))
        at = end + 1
    if len(blocks) > _MOST_BLOCKS:
        raise ProposalRefused(f"There are {len(blocks)} blocks; send fewer.")
    return blocks


def _end_of(rows: list[str], start: int, fence: str) -> int | None:
    for at in range(start, len(rows)):
        plain = rows[at].strip()
        if len(plain) >= len(fence) and set(plain) == {fence[0]}:
            return at
    return None


def replacements(block: Block) -> list[tuple[str, str]]:
    """The (old, new) parts of an ``edit`` block.

    Raises:
        ProposalRefused: the markers are not as they should be.
    """
    parts: list[tuple[str, str]] = []
    old: list[str] = []
    new: list[str] = []
    place = ""  # "", old, new
    for row in block.text.splitlines():
        mark = row.strip()
        if not place and mark == _SEARCH:
            old, new, place = [], [], "old"
        elif place == "old" and mark == _MIDDLE:
            place = "new"
        elif place == "new" and mark == _REPLACE:
            parts.append(("\n".join(old), "\n".join(new)))
            place = ""
        elif place:
            (old if place == "old" else new).append(row)
        elif mark:
            raise _unmarked(block)
    if place or not parts:
        raise _unmarked(block)
    return parts


def _unmarked(block: Block) -> ProposalRefused:
    return ProposalRefused(
        f"The block for {block.path!r} needs the lines '{_SEARCH}', '{_MIDDLE}' and "
        f"'{_REPLACE}', each alone on its line."
    )


class BlockWriter:
    """Asks for blocks until they can be used, a few times at most.

    Args:
        ask: asks the model.
        bench: the files.
        conversation: with its opening.
    """

    def __init__(self, ask: Ask, bench: Workbench, conversation: Conversation) -> None:
        self._ask = ask
        self._bench = bench
        self._conversation = conversation
        self._ending = Ending(bench)

    def run(self) -> tuple[ChangelogEntry, ...]:
        """The changelog of what was edited.

        Raises:
            ProposalRefused: there will be no proposal.
        """
        problem = ""
        for _ in range(_ROUNDS):
            reply = usable(ask_shortening(self._ask, self._conversation))
            self._conversation.hear(reply)
            try:
                entries = self._apply(parse_blocks(reply.text))
            except ProposalRefused as refusal:
                problem = f"Nothing of your answer was used. {refusal}"
            else:
                told = self._ending.accept(entries)
                if isinstance(told, tuple):
                    return told
                problem = told
            self._conversation.say(f"{problem}\n\nAnswer again with blocks.")
        raise ProposalRefused(problem)

    def _apply(self, blocks: list[Block]) -> list[Entry]:
        """All blocks or none; what they say of the reasons."""
        edits = [block for block in blocks if block.kind != "changelog"]
        logs = [block for block in blocks if block.kind == "changelog"]
        entries: list[Entry] = []
        for log in logs:
            try:
                entries += parse_reply(log.text, Finish).changelog
            except ValueError as error:
                raise ProposalRefused(
                    f"The changelog cannot be read: {error}"
                ) from None
        if not edits and not self._bench.changed():
            raise ProposalRefused("There is no block that edits a file.")
        with self._bench.together():
            for block in edits:
                self._edit(block)
        return entries

    def _edit(self, block: Block) -> None:
        if not block.path:
            raise ProposalRefused(f"A block of kind {block.kind!r} names no file.")
        if block.kind == "delete":
            self._bench.delete(block.path)
        elif block.kind == "file":
            self._bench.write(block.path, block.text)
        else:
            for old, new in replacements(block):
                self._bench.edit(block.path, old, new)
