"""A scripted model that diagnoses, and files for what it diagnoses."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.diagnosis.briefing import Versions
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import FileRule
from pytest_evo.models import Kind
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry
from pytest_evo.testing.diagnoser_contract import FAILURE
from pytest_evo.testing.diagnoser_contract import FILES
from pytest_evo.testing.models import ScriptedModel

SCHEMA = ArtifactSchema(
    "art",
    (
        FileRule("prompt.md", "what the model is told", Kind.PROSE),
        FileRule("steps.py", "run at every question", Kind.EXTENSION),
    ),
)
METHODS = {
    "incremental_evidence_tracing": "one node so far",
    "success_extraction": "the search itself works",
    "oscillation_detection": "nothing turned",
    "inconsistency_patterns": "none between equal questions",
    "run_corroboration": "prompt.md was read",
}
READING: dict[str, Any] = {
    "methods": METHODS,
    "earlier": [],
    "observation": "the answer is given without any source",
    "quotes": [FAILURE.removeprefix("E       ")],
    "cause": "prompt.md never asks for the source of an answer",
    "file": "prompt.md",
    "change": "add the line 'Name the passage that the answer is from' to prompt.md",
    "confidence": 0.8,
}


def versions(files: Mapping[str, bytes] = FILES, **changes: Any) -> Versions:
    """Files of every candidate, whatever its tree is called."""
    blobs = MemoryBlobs()
    entries = tuple(
        TreeEntry(path, "file", blob=blobs.put(data), size=len(data))
        for path, data in files.items()
    )
    return Versions(
        tree=lambda name: Tree(name, entries),
        blob=blobs.get,
        schema=changes.pop("schema", SCHEMA),
        **changes,
    )


def earlier_in(request: ChatRequest) -> list[str]:
    """The earlier diagnoses that a prompt asks a class for."""
    found = re.search(r"earlier diagnoses a class: (.*)\.$", asked(request), re.M)
    return found[1].split(", ") if found else []


def asked(request: ChatRequest) -> str:
    """The question of a request, without what was said about it later."""
    return request.messages[1].text


def classed(request: ChatRequest, letter: str = "B") -> list[dict[str, str]]:
    """A class for each earlier diagnosis that is asked for."""
    return [
        {"diagnosis": name, "letter": letter, "why": "the line was read and ignored"}
        for name in earlier_in(request)
    ]


def reading(**changes: Any) -> Callable[[ChatRequest], str]:
    """Answers every case alike."""
    return lambda request: json.dumps(
        {**READING, "earlier": classed(request), **changes}
    )


def scripted(answer: Callable[[ChatRequest], str | ChatReply | Exception]) -> Any:
    """A model that answers by what it is asked, not by when."""
    return ScriptedModel(answer)


def group_answers(request: ChatRequest) -> str:
    """Plays the grouping and the three roles of a diagnosis across cases."""
    text = asked(request)
    if "Group these failing cases" in text:
        cases = re.findall(
            r"^- `(.*)`: ", text.partition("a group of its own:")[2], re.M
        )
        return json.dumps({"groups": [group(cases)]})
    if "Your role: cause" in text:
        return json.dumps(
            {k: READING[k] for k in ("cause", "file", "quotes", "confidence")}
        )
    if "Your role: objection" in text:
        return json.dumps(OBJECTION)
    assert "Your role: specification" in text
    kept = {k: READING[k] for k in ("methods", "file", "change", "confidence")}
    return json.dumps({**kept, "earlier": classed(request)})


OBJECTION = {
    "objection": "test_a reads the same prompt and passes by luck of its question",
    "counter_quotes": [],
    "verdict": "stands",
    "cause": READING["cause"],
}


def group(cases: list[str], **changes: Any) -> dict[str, Any]:
    """One group."""
    return {
        "title": "no source",
        "cases": cases,
        "pattern": "answers come without naming any source",
        "quotes": READING["quotes"],
        "kind": "defect",
        "why": "unrelated questions fail in the same way",
        **changes,
    }


def digest(text: str) -> int:
    """A number for a text, the same in every process."""
    return int(sha256(text.encode()).hexdigest()[:8], 16)
