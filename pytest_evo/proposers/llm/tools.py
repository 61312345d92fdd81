"""The tools that a model may call, and what each call does to the workbench."""

from __future__ import annotations

import json
from collections.abc import Callable
from collections.abc import Mapping
from typing import Any
from typing import cast

from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import Field
from pydantic import StrictInt
from pydantic import StrictStr
from pydantic import ValidationError

from pytest_evo.chat import Tool
from pytest_evo.chat import ToolCall
from pytest_evo.errors import ProposalRefused
from pytest_evo.hostile import one_line
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Json
from pytest_evo.proposers.llm.workbench import MOST_LINES
from pytest_evo.proposers.llm.workbench import Workbench


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="forbid")


class ListFiles(_Arguments):
    """List files with size, kind and purpose. "evidence" lists the evidence."""

    folder: StrictStr = Field(default="", description="a folder, or empty for all")


class ReadFile(_Arguments):
    """Read a file of the artifact, or of the evidence as "evidence/NAME"."""

    path: StrictStr
    first: StrictInt = Field(default=1, description="the first line, from 1")
    lines: StrictInt = Field(default=MOST_LINES, description="how many lines at most")


class SearchFiles(_Arguments):
    """Find the lines that hold a text (no pattern), in the artifact or "evidence"."""

    text: StrictStr
    folder: StrictStr = ""


class WriteFile(_Arguments):
    """Write a whole file of the artifact; it is made if it is not there."""

    path: StrictStr
    content: StrictStr


class EditFile(_Arguments):
    """Replace a text in a file of the artifact. It has to occur exactly once."""

    path: StrictStr
    old: StrictStr = Field(description="the text as it is, with enough lines around")
    new: StrictStr


class MoveFile(_Arguments):
    """Give a file of the artifact another name."""

    path: StrictStr
    target: StrictStr


class DeleteFile(_Arguments):
    """Delete a file of the artifact."""

    path: StrictStr


class Check(_Arguments):
    """Check syntax, limits and what may change, as it is done before any test runs."""


class Entry(_Arguments):
    """Why one file changed."""

    file: StrictStr
    reason: StrictStr = Field(min_length=1, description="the cause that this removes")
    evidence: list[StrictStr] = Field(
        default_factory=list, description="cases, with what was seen in each"
    )
    expected: StrictStr = Field(
        default="", description="which cases get better, and how one will see it"
    )

    def as_entry(self) -> ChangelogEntry:
        """The entry as a value."""
        return ChangelogEntry(
            file=_plain(self.file, 1_000),
            reason=_plain(self.reason, 4_000),
            evidence=tuple(_plain(text, 1_000) for text in self.evidence[:20]),
            expected=_plain(self.expected, 2_000),
        )


class Finish(_Arguments):
    """End with one changelog entry for each changed file."""

    changelog: list[Entry] = Field(min_length=1)


def _plain(text: str, most: int) -> str:
    return text.encode("utf-8", "replace").decode()[:most].strip()


_KINDS: Mapping[str, type[_Arguments]] = {
    "list_files": ListFiles,
    "read_file": ReadFile,
    "search_files": SearchFiles,
    "write_file": WriteFile,
    "edit_file": EditFile,
    "move_file": MoveFile,
    "delete_file": DeleteFile,
    "check": Check,
    "finish": Finish,
}


def all_tools() -> tuple[Tool, ...]:
    """The tools as they are offered to a model."""
    return tuple(
        Tool(name, " ".join((kind.__doc__ or "").split()), _schema(kind))
        for name, kind in _KINDS.items()
    )


def _schema(kind: type[_Arguments]) -> Mapping[str, Json]:
    schema = kind.model_json_schema()
    schema.pop("description", None)
    return cast(Mapping[str, Json], _untitled(schema))


def _untitled(schema: Any) -> Any:
    """The schema without titles, which only repeat the names."""
    if isinstance(schema, dict):
        return {
            key: _untitled(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [_untitled(value) for value in schema]
    return schema


class BadCall(Exception):
    """A call that cannot be carried out as it was written; says why."""


def read_call(call: ToolCall) -> _Arguments:
    """The arguments of a call.

    Raises:
        BadCall: no such tool, no JSON object, or wrong arguments.
    """
    kind = _KINDS.get(call.name)
    if kind is None:
        raise BadCall(
            f"There is no tool {one_line(call.name, 80)!r}. "
            f"There are {', '.join(_KINDS)}."
        )
    try:
        data = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise BadCall(
            f"The arguments of {call.name} are no JSON ({one_line(str(error), 120)}). "
            "Nothing was done. Call it again with complete, valid JSON."
        ) from error
    if not isinstance(data, dict):
        raise BadCall(f"The arguments of {call.name} have to be a JSON object.")
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        rows = [
            f"{'.'.join(map(str, row['loc'])) or 'arguments'}: {row['msg']}"
            for row in error.errors()[:6]
        ]
        raise BadCall(
            f"The arguments of {call.name} do not fit; nothing was done. "
            f"{one_line('; '.join(rows), 600)}"
        ) from error


def act(arguments: _Arguments, bench: Workbench) -> str:
    """Carry out a call that is no ``finish``; what the model is told.

    Raises:
        ProposalRefused: it cannot be done; nothing was changed.
    """
    action = _ACTIONS[type(arguments)]
    return action(bench, arguments)


def _check(bench: Workbench, _: Any) -> str:
    changed = bench.changed()
    if not changed:
        return "Nothing has changed yet."
    bench.check()
    rows = [f"{change}: {path}" for path, change in changed.items()]
    return "All checks pass.\n" + "\n".join(rows)


_ACTIONS: Mapping[type[_Arguments], Callable[[Workbench, Any], str]] = {
    ListFiles: lambda bench, a: bench.listing(a.folder),
    ReadFile: lambda bench, a: bench.read(a.path, a.first, a.lines),
    SearchFiles: lambda bench, a: bench.search(a.text, a.folder),
    WriteFile: lambda bench, a: bench.write(a.path, a.content),
    EditFile: lambda bench, a: bench.edit(a.path, a.old, a.new),
    MoveFile: lambda bench, a: bench.move(a.path, a.target),
    DeleteFile: lambda bench, a: bench.delete(a.path),
    Check: _check,
}


class Ending:
    """Judges the end of a proposal: changes, checks, one entry for each file.

    Missing entries are asked for once; other problems ``most`` times.
    """

    def __init__(self, bench: Workbench, most: int = 3) -> None:
        self._bench = bench
        self._left = most
        self._asked = False

    def accept(self, entries: list[Entry]) -> tuple[ChangelogEntry, ...] | str:
        """The changelog, or what the model has to do first.

        Raises:
            ProposalRefused: it was told before.
        """
        try:
            changed = self._bench.changed()
            if not changed:
                return self._again("Nothing has changed. Edit a file, then finish.")
            self._bench.check()
        except ProposalRefused as refusal:
            return self._again(str(refusal))
        told = {_bare(entry.file): entry for entry in entries if entry.reason.strip()}
        missing = [path for path in changed if path not in told]
        if missing:
            text = (
                "The changelog has no entry with a reason for: "
                f"{', '.join(missing)}. There has to be one for each changed file."
            )
            if self._asked:
                raise ProposalRefused(text)
            self._asked = True
            return text + " Finish again with the whole changelog."
        return tuple(
            told[path].model_copy(update={"file": path}).as_entry() for path in changed
        )

    def _again(self, problem: str) -> str:
        self._left -= 1
        if self._left < 0:
            raise ProposalRefused(problem)
        return problem


def _bare(path: str) -> str:
    return path.strip().removeprefix("./").removeprefix("artifact/")
