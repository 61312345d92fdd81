"""The changelog that an agent writes: ``changelog.json`` beside ``artifact/``."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import Field
from pydantic import TypeAdapter
from pydantic import ValidationError

from pytest_evo.errors import ProposalRefused
from pytest_evo.hostile import one_line
from pytest_evo.hostile import visible
from pytest_evo.models import ChangelogEntry
from pytest_evo.proposers.agent.listening import read_plain
from pytest_evo.proposers.agent.presets import CHANGELOG

_LARGEST = 1_000_000
_MOST_ERRORS = 5


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    file: str = Field(min_length=1, max_length=1_000)
    reason: str = Field(min_length=1, max_length=10_000)
    evidence: list[str] = Field(default_factory=list, max_length=100)
    expected: str = Field(default="", max_length=10_000)


_ENTRIES = TypeAdapter(list[_Entry])


def read_changelog(workspace: Path) -> tuple[ChangelogEntry, ...] | None:
    """What an agent wrote; None if there is no file, or an empty one.

    Raises:
        ProposalRefused: it is no plain file, too big, no JSON, or of another form.
    """
    path = workspace / CHANGELOG
    if not path.is_symlink() and not path.exists():
        return None
    data = read_plain(path, _LARGEST)
    if data is None:
        raise _refused(f"it is no plain file of at most {_LARGEST} bytes")
    if not data.strip():
        return None
    try:
        entries = _ENTRIES.validate_json(data)
    except ValidationError as error:
        raise _refused(_explain(error)) from None
    return tuple(
        ChangelogEntry(
            file=entry.file,
            reason=visible(entry.reason),
            evidence=tuple(visible(text) for text in entry.evidence),
            expected=visible(entry.expected),
        )
        for entry in entries
    )


def _explain(error: ValidationError) -> str:
    problems = []
    for detail in error.errors()[:_MOST_ERRORS]:
        where = ".".join(str(part) for part in detail["loc"]) or "the file"
        problems.append(f"{where}: {detail['msg']}")
    return "; ".join(problems)


def _refused(problem: str) -> ProposalRefused:
    return ProposalRefused(
        f"{CHANGELOG} cannot be used: {one_line(problem, 1_000)}. Write a JSON list of "
        'objects with "file", "reason", "evidence" (a list of texts) and "expected".'
    )
