"""What an agent is told: a template that a person may replace, filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path

from pytest_evo.artifact.schema import editable
from pytest_evo.artifact.schema import kind_of
from pytest_evo.artifact.schema import rule_for
from pytest_evo.errors import SettingsProblem
from pytest_evo.hostile import fenced
from pytest_evo.hostile import one_line
from pytest_evo.models import Node
from pytest_evo.proposers.agent.presets import CHANGELOG
from pytest_evo.protocols import ProposalRequest

_TEMPLATE = Path(__file__).with_name("prompt.md")
_MOST_TEMPLATE = 100_000
_MOST_FILES = 200
_MOST_ENTRIES = 40
_PLACES = re.compile(r"\{(objective|files|history|changelog|feedback)\}")
_ALWAYS = ("changelog", "feedback")  # added where a template forgets them
_FORMAT = f"""\
# When you have edited

Write `{CHANGELOG}` beside `artifact/` (not into it): a JSON list with one object for
each file that you added, changed or deleted, and nothing else. An edit without it is
not evaluated.

```json
[
  {{
    "file": "path inside artifact/",
    "reason": "the cause that you found, and what you changed about it",
    "evidence": ["case id: what was seen there"],
    "expected": "which cases should change, and how"
  }}
]
```
"""


def read_template(path: str | None, rootdir: Path) -> str:
    """The template of a person's, or ours.

    Raises:
        SettingsProblem: it is not there, not text, or much too long.
    """
    place = _TEMPLATE if path is None else rootdir / path
    key = "[tool.pytest_evo.agent_options] prompt"
    try:
        text = place.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsProblem(
            f"{key} = {path!r}: {place} cannot be read ({error}). Name a text file "
            "relative to the rootdir, or leave the setting out."
        ) from error
    if len(text) > _MOST_TEMPLATE or not text.strip():
        raise SettingsProblem(
            f"{key} = {path!r}: {place} has {len(text)} characters. Write 1 to "
            f"{_MOST_TEMPLATE}, or leave the setting out."
        )
    return text


def write_prompt(template: str, request: ProposalRequest, files: Sequence[str]) -> str:
    """The whole prompt for one request.

    Args:
        template: with ``{objective}`` and the like where they belong.
        request: what is proposed for.
        files: of the artifact, relative to it.
    """
    parts = {
        "objective": request.objective.strip() or "More evals pass, none gets worse.",
        "files": "\n".join(_files(request, files)),
        "history": "\n".join(_history(request.nodes)),
        "changelog": _FORMAT,
        "feedback": _feedback(request.feedback),
    }
    text = template
    for name in _ALWAYS:
        if f"{{{name}}}" not in text:
            text += f"\n{{{name}}}\n"
    # in one pass: what is filled in is not looked at again
    return _PLACES.sub(lambda found: parts[found[1]], text).rstrip() + "\n"


def _files(request: ProposalRequest, files: Sequence[str]) -> Iterator[str]:
    yield "| file in `artifact/` | kind | may be changed | what it is |"
    yield "| --- | --- | --- | --- |"
    for path in files[:_MOST_FILES]:
        rule = rule_for(request.schema, path)
        yield _row(
            f"`{one_line(path, 200).replace('`', '?')}`",
            kind_of(request.schema, path).value,
            "yes" if editable(request.schema, path) else "no",
            rule.about if rule is not None else "",
        )
    if len(files) > _MOST_FILES:
        yield f"\n{len(files) - _MOST_FILES} more files are there."
    new = [rule.path for rule in request.schema.files if rule.edit and "*" in rule.path]
    if new:
        yield f"\nNew files may be added where they fit {', '.join(new)}."
    elif request.schema.files:
        yield "\nNo file may be added."


def _row(*cells: str) -> str:
    plain = (one_line(cell, 300).replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(plain)} |"


def _history(nodes: Sequence[Node]) -> Iterator[str]:
    if len(nodes) < 2:
        return
    yield "# This chain so far"
    yield ""
    yield "Each step began with the files of the one before, and was not good enough."
    for node in nodes:
        mean = "not measured" if node.mean is None else f"mean {node.mean:.3f}"
        kind = "the parent" if node is nodes[0] else f"step {node.candidate.step}"
        yield f"- {node.candidate.id} ({kind}): {mean}"
        for entry in node.candidate.changelog[:_MOST_ENTRIES]:
            if node is not nodes[0]:
                yield f"  - {one_line(entry.file, 200)}: {one_line(entry.reason, 500)}"
    yield ""


def _feedback(text: str | None) -> str:
    if text is None:
        return ""
    return (
        "# Your answer before this one was refused\n\nIts edits are gone, the files "
        f"are as they were. What was wrong:\n\n{fenced(text, 4_000)}\n"
    )
