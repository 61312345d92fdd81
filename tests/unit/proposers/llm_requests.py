"""Requests for the ``llm`` proposer, and calls as a scripted model makes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from pytest_evo.chat import ChatReply
from pytest_evo.chat import Finish
from pytest_evo.chat import ToolCall
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Candidate
from pytest_evo.models import Node
from pytest_evo.models import START
from pytest_evo.models import Usage
from pytest_evo.protocols import ProposalRequest

FILES = {"prompt.txt": "be brief\n", "sub/deep.txt": "one\ntwo\nthree\n"}
COST = Usage(calls=1, input_tokens=1_000, output_tokens=50, usd=0.01)


def request_in(
    workspace: Path,
    files: Mapping[str, str | bytes] | None = None,
    schema: ArtifactSchema | None = None,
    **fields: Any,
) -> ProposalRequest:
    """A first request with these files in its workspace."""
    for path, content in (FILES if files is None else files).items():
        place = workspace / "artifact" / path
        place.parent.mkdir(parents=True, exist_ok=True)
        data = content if isinstance(content, bytes) else content.encode()
        place.write_bytes(data)
    (workspace / "artifact").mkdir(exist_ok=True, parents=True)
    (workspace / "evidence").mkdir(exist_ok=True)
    start = Candidate(START, "tree-start")
    request = ProposalRequest(
        iteration=1,
        step=0,
        workspace=workspace,
        schema=schema or ArtifactSchema("artifact"),
        objective="Be polite.",
        parent=start,
        batch=("t.py::a", "t.py::b"),
        nodes=(Node(start, mean=0.5),),
        history=(),
        feedback=None,
        rng=Random(1),
        knobs=(),
    )
    return replace(request, **fields)


def call(name: str, number: int = 0, /, **arguments: Any) -> ToolCall:
    """A call with arguments as JSON."""
    return ToolCall(f"call_{number}", name, json.dumps(arguments))


def calls(*found: ToolCall, text: str = "", usage: Usage = COST) -> ChatReply:
    """An answer that calls tools."""
    numbered = tuple(
        replace(one, id=f"call_{number}") for number, one in enumerate(found)
    )
    return ChatReply(text, Finish.TOOLS, numbered, usage)


def finish(*files: str, **fields: Any) -> ToolCall:
    """The call that ends a proposal."""
    entries = [{"file": file, "reason": "why not", **fields} for file in files]
    return call("finish", changelog=entries)


def held(workspace: Path) -> dict[str, str]:
    """The files of the artifact."""
    root = workspace / "artifact"
    return {
        path.relative_to(root).as_posix(): path.read_bytes().decode("utf-8", "replace")
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }
