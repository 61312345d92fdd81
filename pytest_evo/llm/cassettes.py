"""The file of a cassette: a header, then one exchange a line, in JSON.

A run that is killed loses no exchange that was answered: each is written at once, and
the rest of a torn line is dropped by whoever opens the file next.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from typing import Literal

from pydantic import Field
from pydantic import ValidationError

from pytest_evo.errors import ModelProblem
from pytest_evo.llm.exchanges import Exchange
from pytest_evo.llm.exchanges import MessageRecord
from pytest_evo.llm.exchanges import Record

VERSION = 1
_OWNER_ONLY = 0o600


class Header(Record):
    """The first line: whose traffic this is, and what decides a run's questions."""

    kind: Literal["cassette"] = "cassette"
    version: Literal[1] = 1
    run: str
    made_by: str
    seed: int
    slots: int = Field(ge=1)


class Resumed(Record):
    """From here on another session of the same run is written."""

    kind: Literal["resumed"] = "resumed"


@dataclass(slots=True)
class Cassette:
    """What is on a cassette; ``lines`` are those of the exchanges in the file.

    ``answers`` are the exchanges by key in the order of asking. Where a resumed run
    asked a question again, only what was answered then counts: what it had made of the
    earlier answers was lost.
    """

    path: Path
    header: Header
    exchanges: list[Exchange] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    answers: dict[str, list[Exchange]] = field(default_factory=dict)
    messages: dict[str, MessageRecord] = field(default_factory=dict)
    forms: dict[str, Any] = field(default_factory=dict)
    sessions: int = 1
    end: int = 0
    """Bytes of the sound lines."""

    @property
    def count(self) -> int:
        """How many exchanges can be asked for."""
        return sum(len(found) for found in self.answers.values())


# -- reading -----------------------------------------------------------------------


def read_cassette(path: Path, option: str) -> Cassette:
    """Read a cassette; ``option`` is what named it, for messages.

    Raises:
        ModelProblem: it is not there, is none, or is damaged before its last line.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise ModelProblem(
            f"{option}={path}: there is no such cassette. Record one with a key: "
            f"pytest --evolve --evo-record={path}"
        ) from None
    except OSError as error:
        raise ModelProblem(
            f"{option}={path}: it cannot be read: {error.strerror}. Name a file that "
            "can."
        ) from error
    lines = data.split(b"\n")[:-1]  # what follows the last line end is torn
    if not lines:
        raise ModelProblem(_no_cassette(path, option, "it is empty"))
    cassette = Cassette(path, _header(path, option, lines[0]), end=len(lines[0]) + 1)
    newest: dict[str, int] = {}  # the session of each key
    for number, line in enumerate(lines[1:], 2):
        record = _record(line)
        if record is None and number == len(lines):
            break
        if record is None:
            raise ModelProblem(
                f"{option}={path}: line {number} is damaged. Put a sound copy there, "
                f"or delete the file and record again: pytest --evolve "
                f"--evo-record={path}"
            )
        cassette.end += len(line) + 1
        if isinstance(record, Resumed):
            cassette.sessions += 1
        else:
            _take(cassette, record, number, newest)
    for found in cassette.answers.values():
        found.sort(key=lambda exchange: exchange.nth)
    return cassette


def _header(path: Path, option: str, line: bytes) -> Header:
    data = _parsed(line)
    if data is None or data.get("kind") != "cassette":
        raise ModelProblem(_no_cassette(path, option, "its first line is not ours"))
    if data.get("version") != VERSION:
        raise ModelProblem(
            f"{option}={path}: it is of version {data.get('version')!r}, and this "
            f"pytest-evo reads version {VERSION}. Record it again, or install the "
            f"pytest-evo that made it ({data.get('made_by')!r})."
        )
    try:
        return Header.model_validate(data)
    except ValidationError as error:
        what = error.errors()[0]
        why = f"{'.'.join(map(str, what['loc']))}: {what['msg']}"
        raise ModelProblem(_no_cassette(path, option, why)) from None


def _no_cassette(path: Path, option: str, why: str) -> str:
    return (
        f"{option}={path}: this is no cassette of pytest-evo ({why}). Name one, or "
        f"another file to record into: pytest --evolve --evo-record=FILE"
    )


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _record(line: bytes) -> Exchange | Resumed | None:
    data = _parsed(line)
    if data is None:
        return None
    kind = Resumed if data.get("kind") == "resumed" else Exchange
    try:
        return kind.model_validate(data)
    except ValidationError:
        return None


def _take(
    cassette: Cassette, exchange: Exchange, line: int, newest: dict[str, int]
) -> None:
    cassette.exchanges.append(exchange)
    cassette.lines.append(line)
    cassette.messages.update(exchange.said)
    cassette.forms.update(exchange.forms)
    if newest.get(exchange.key) != cassette.sessions:
        newest[exchange.key] = cassette.sessions
        cassette.answers[exchange.key] = []
    cassette.answers[exchange.key].append(exchange)


# -- writing -----------------------------------------------------------------------


class CassetteFile:
    """A cassette that is being written; not safe for threads."""

    def __init__(self, path: Path, descriptor: int, known: set[str]) -> None:
        self._path = path
        self._descriptor = descriptor
        self._known = known

    @classmethod
    def create(cls, path: Path, header: Header) -> CassetteFile:
        """Begin a cassette that only its owner can read.

        Raises:
            ModelProblem: something is there already, or the disk refuses.
        """
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(path, flags, _OWNER_ONLY)
        except FileExistsError:
            raise ModelProblem(exists(path)) from None
        except OSError as error:
            raise _refused(path, error) from error
        made = cls(path, descriptor, set())
        made.append(header)
        return made

    @classmethod
    def go_on(cls, cassette: Cassette) -> CassetteFile:
        """Go on with a cassette behind its last sound line.

        Raises:
            ModelProblem: the disk refuses.
        """
        path = cassette.path
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
            os.ftruncate(descriptor, cassette.end)
        except OSError as error:
            raise _refused(path, error) from error
        made = cls(path, descriptor, {*cassette.messages, *cassette.forms})
        made.append(Resumed())
        return made

    def append(self, record: Record) -> None:
        """Write a line.

        Raises:
            ModelProblem: the disk refuses.
        """
        plain = record.model_dump(mode="json", exclude_defaults=True)
        plain = {"kind": getattr(record, "kind"), **plain}  # noqa: B009 - each has one
        if isinstance(record, Header):
            plain["version"] = VERSION
        if isinstance(record, Exchange):
            self._leave_out_known(plain)
        line = json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
        try:
            self._write(line + b"\n")
        except OSError as error:
            raise _refused(self._path, error) from error

    def _leave_out_known(self, plain: dict[str, Any]) -> None:
        for name in ("said", "forms"):
            kept: Mapping[str, Any] = plain.pop(name, {})
            new = {key: row for key, row in kept.items() if key not in self._known}
            if new:
                plain[name] = new
            self._known.update(new)

    def _write(self, data: bytes) -> None:
        end = os.lseek(self._descriptor, 0, os.SEEK_END)
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            with contextlib.suppress(OSError):  # no line is left half written
                os.ftruncate(self._descriptor, end)
            raise

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._descriptor)


def exists(path: Path) -> str:
    """What is said where a cassette would be overwritten."""
    return (
        f"--evo-record={path}: there is a file already, and it is not overwritten. "
        f"Name another one, or delete it: rm {path}"
    )


def _refused(path: Path, error: OSError) -> ModelProblem:
    return ModelProblem(
        f"--evo-record={path}: it cannot be written: {error.strerror}. Make room or "
        "name another place; a run that has begun goes on with --evo-resume=last."
    )
