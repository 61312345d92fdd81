"""Checks of diagnoses against what is measured; no model is asked."""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_evo.evidence import Evidence
from pytest_evo.hostile import one_line
from pytest_evo.models import CaseId
from pytest_evo.models import Diagnosis
from pytest_evo.models import EPSILON
from pytest_evo.models import Node

SHORTEST_QUOTE = 8
"""Characters of a quote, at least: shorter ones occur anywhere."""
LEAST_WORDS = 3
"""Words of a statement that say something, at least."""
EXHAUSTED = 2
"""Edits of a file before its direction can be called exhausted."""

_EMPTY_WORDS = """
    a an and any are as at be been being better bug by can change correct correctly
    clear clearer clearly code could detail detailed details do does enhance ensure
    error errors fail failed fails failing failure fix fixed for from further general
    get good handle handled handles handling have how improve improved improvement in
    instruction instructions is issue issues it its logic make makes may might model
    modify more must need needed needs not of on optimize or output properly problem
    problems prompt prompts quality refine response result results robust should so some
    something specific such system test tests that the there these thing things this to
    update use used was well were when where which will with work works wrong
"""
_EMPTY = frozenset(_EMPTY_WORDS.split())
"""Words that say nothing of one failure in particular."""
_WORD = re.compile(r"[^\W_]+(?:[.'_/-][^\W_]+)*")
_WIDE = re.compile(r"[\u2e80-\u9fff\uac00-\ud7af\u3040-\u30ff]")


@dataclass(frozen=True, slots=True)
class Ground:
    """What a diagnosis is checked against.

    ``traces`` are the texts it may quote, ``files`` those of the newest node, and
    ``earlier`` the names of the diagnoses that it has to class.
    """

    evidence: Evidence
    traces: Sequence[str]
    files: Collection[str]
    earlier: Sequence[str]


def faults_of(diagnosis: Diagnosis, ground: Ground) -> list[str]:
    """What is wrong with a diagnosis, as sentences for whoever made it."""
    return [
        *vague_parts(
            observation=diagnosis.observation,
            cause=diagnosis.cause,
            change=diagnosis.change,
        ),
        *quote_faults(diagnosis.quotes, ground.traces),
        *file_faults(diagnosis.file, ground.files),
        *class_faults(diagnosis, ground),
    ]


# -- vague -------------------------------------------------------------------------


def vague_parts(**parts: str) -> list[str]:
    """Parts that would fit any failure."""
    return [
        f"{name} is too vague: {one_line(text, 120)!r} would fit any failure. Name "
        "what exactly, where and under which condition."
        for name, text in parts.items()
        if is_vague(text)
    ]


def is_vague(text: str) -> bool:
    """Whether fewer than three words of a text say something of this failure."""
    if len(_WIDE.findall(text)) >= 2 * LEAST_WORDS + 2:
        return False  # written without spaces between words
    words = {word.lower() for word in _WORD.findall(text)}
    return len(words - _EMPTY) < LEAST_WORDS


# -- quotes and files --------------------------------------------------------------


def quote_faults(quotes: Sequence[str], traces: Sequence[str]) -> list[str]:
    """Quotes that are missing, too short, or not in the traces."""
    texts = [_squeezed(text) for text in traces if text.strip()]
    if not texts:
        return []
    if not quotes:
        return ["there is no quote. Quote the lines of the trace that show it."]
    found = []
    for quote in quotes:
        plain = _squeezed(quote)
        if len(plain) < SHORTEST_QUOTE and plain not in texts:
            found.append(
                f"the quote {one_line(quote, 80)!r} is too short to show anything. "
                "Quote a whole line."
            )
        elif not any(plain in text for text in texts):
            found.append(
                f"the quote {one_line(quote, 120)!r} is not in the trace. Copy it "
                "word for word."
            )
    return found


def _squeezed(text: str) -> str:
    return " ".join(text.split())


def file_faults(file: str, files: Collection[str]) -> list[str]:
    """Whether the file at fault is one of the artifact."""
    if file in files:
        return []
    known = ", ".join(sorted(files)[:12])
    return [
        f"the file {one_line(file, 120)!r} does not exist in the artifact. It has: "
        f"{known}. Where a file is missing, name the one that has to refer to it."
    ]


# -- classes -----------------------------------------------------------------------


def class_faults(diagnosis: Diagnosis, ground: Ground) -> list[str]:
    """Classes that are missing, of nothing, or contradicted by what is measured."""
    named = dict(ground.evidence.diagnoses)
    found = [
        f"the earlier diagnosis {name} has no class. Give it one from A to I."
        for name in ground.earlier
        if name not in diagnosis.classes
    ]
    for name, letter in diagnosis.classes.items():
        if name not in named:
            found.append(
                f"there is no earlier diagnosis {one_line(name, 80)!r}. There are: "
                f"{', '.join(ground.earlier) or 'none'}."
            )
            continue
        said = _contradiction(letter, name, named[name], diagnosis.cases, ground)
        if said:
            found.append(f"class {letter} for {name} is contradicted: {said}")
    return found


def _contradiction(
    letter: str,
    name: str,
    earlier: Diagnosis,
    cases: Sequence[CaseId],
    ground: Ground,
) -> str:
    """The measured fact that rules a class out; empty where none does."""
    edits = _edits_after(name, earlier.file, ground.evidence.nodes)
    if letter == "H":
        fell = {row.case for row in ground.evidence.histories if _fell(row.scores)}
        if fell.isdisjoint(cases):
            return "no score of these cases ever fell. Nothing was won that is lost."
        return ""
    if not edits:
        return ""
    where = f"{earlier.file} was edited on {', '.join(n.candidate.id for n in edits)}"
    if letter == "F" and len(edits) < EXHAUSTED:
        return f"{where} only. A direction is exhausted after several variants."
    read = _was_read(earlier.file, edits, cases)
    if letter == "A" and read:
        return f"{where}, and these cases read it there. It was triggered."
    if letter in "BCDI" and read is False:
        return f"{where}, and none of these cases read it there. It never took effect."
    return ""


def _edits_after(name: str, file: str, nodes: Sequence[Node]) -> list[Node]:
    """Nodes after the one of a diagnosis that edited the file it blames."""
    ids = [node.candidate.id for node in nodes]
    of = name.rpartition("/")[0]
    begin = ids.index(of) + 1 if of in ids else 0
    return [
        node
        for node in nodes[begin:]
        if any(
            entry.file == file and entry.change != "deleted"
            for entry in node.candidate.changelog
        )
    ]


def _was_read(file: str, nodes: Iterable[Node], cases: Sequence[CaseId]) -> bool | None:
    """Whether the cases read a file; None where nobody knows."""
    rollouts = [r for node in nodes for r in node.rollouts if r.case in cases]
    if any(file in rollout.reach.files for rollout in rollouts):
        return True
    if rollouts and all(rollout.reach.exact for rollout in rollouts):
        return False
    return None


def _fell(scores: Sequence[float | None]) -> bool:
    known = [score for score in scores if score is not None]
    best = float("-inf")
    for score in known:
        if score < best - EPSILON:
            return True
        best = max(best, score)
    return False
