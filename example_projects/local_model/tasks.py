"""The two tasks: their texts, the answers that can be given, and which are right."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")
TOPICS = ("sport", "health", "money", "travel")
FIELDS = ("name", "age", "city")

# What the model can say at all, in GBNF. No free white space: a base model that may
# write blanks in JSON writes nothing else.
TOPIC_GRAMMAR = f'root ::= " "? ({" | ".join(json.dumps(topic) for topic in TOPICS)})'
PERSON_GRAMMAR = r"""
root ::= " "? "{\"name\": \"" words "\", \"age\": " age ", \"city\": \"" words "\"}"
words ::= [^"\\\n]{1,40}
age ::= [1-9] [0-9]{0,2}
""".strip()


@dataclass(frozen=True, slots=True)
class Example:
    """A text with its answer, to be shown in a prompt."""

    text: str
    answer: str


@dataclass(frozen=True, slots=True)
class Task:
    """What prompts for one task are made from."""

    name: str  # also of its artifact and its file of texts
    grammar: str
    examples: Mapping[str, Example]


@dataclass(frozen=True, slots=True)
class TopicCase:
    """A text and the one right topic."""

    id: str
    text: str
    topic: str


@dataclass(frozen=True, slots=True)
class PersonCase:
    """A sentence, and what it says about a person."""

    text: str
    name: str
    age: int
    city: str

    @property
    def id(self) -> str:
        """The name, which no two cases share."""
        return self.name.lower().replace(" ", "-")


def topics_task() -> Task:
    """Name the topic of a text."""
    return _task("topics", TOPIC_GRAMMAR)


def extraction_task() -> Task:
    """Write name, age and city of a person as JSON."""
    return _task("extraction", PERSON_GRAMMAR)


def topic_cases() -> tuple[TopicCase, ...]:
    """Read the cases of `data/topics.toml`; raises ValueError for an unknown topic."""
    table = _read("topics")["cases"]
    if set(table) != set(TOPICS):
        raise ValueError(f"data/topics.toml: has {sorted(table)}, not {sorted(TOPICS)}")
    return tuple(
        TopicCase(name, text, topic)
        for topic, texts in table.items()
        for name, text in texts.items()
    )


def person_cases() -> tuple[PersonCase, ...]:
    """Read the cases of `data/extraction.toml`."""
    return tuple(PersonCase(**entry) for entry in _read("extraction")["case"])


def is_topic(answer: str, case: TopicCase) -> bool:
    """Whether the answer is the topic and nothing else; `Money` is `money`."""
    return answer.strip().lower() == case.topic


def right_fields(answer: str, case: PersonCase) -> tuple[str, ...]:
    """Which fields are right; none if the answer is not one JSON object."""
    try:
        found = json.loads(answer)
    except ValueError:
        return ()
    if not isinstance(found, dict):
        return ()
    return tuple(
        field
        for field in FIELDS
        if type(found.get(field)) is type(getattr(case, field))
        and found[field] == getattr(case, field)
    )


def _task(name: str, grammar: str) -> Task:
    examples = {
        entry["id"]: Example(entry["text"], entry["answer"])
        for entry in _read(name)["example"]
    }
    return Task(name, grammar, examples)


@cache
def _read(name: str) -> dict[str, Any]:
    return tomllib.loads((DATA / f"{name}.toml").read_text(encoding="utf-8"))
