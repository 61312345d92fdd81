"""The questions and their gold passages, checked against the corpus."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from corpus import load_passages


@dataclass(frozen=True, slots=True)
class Question:
    """A question and the ids of the passages that answer it, in no order."""

    id: str
    text: str
    gold: tuple[str, ...]


def load_questions() -> tuple[Question, ...]:
    """Read `questions.toml`; raises ValueError for ids that name nothing or two."""
    path = Path(__file__).with_name("questions.toml")
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    questions = tuple(
        Question(entry["id"], entry["text"], tuple(entry["gold"]))
        for entry in table["question"]
    )
    known = {passage.id for passage in load_passages()}
    missing = [
        f"{question.id}: {gold}"
        for question in questions
        for gold in question.gold
        if gold not in known
    ]
    if missing:
        raise ValueError(
            f"{path.name} names passages that this Python's library does not have: "
            f"{', '.join(missing)}; correct their ids"
        )
    for what in ("id", "text"):
        counts = Counter(getattr(question, what) for question in questions)
        twice = [value for value, count in counts.items() if count > 1]
        if twice:
            raise ValueError(f"{path.name} has the same {what} twice: {twice}")
    return questions
