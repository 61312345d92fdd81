"""What controller and workers say to each other: versioned, validated on receipt.

On the wire a message is one ``bytes`` object, so that every transport can carry it: the
length of the header, the header as ASCII JSON (lone surrogates survive as escapes),
then the payload as it is: a blob's content, or the JSON of a rollout that nobody
between the test process and the controller needs to read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from dataclasses import fields
from dataclasses import is_dataclass
from dataclasses import MISSING
from enum import StrEnum
from types import NoneType
from types import UnionType
from typing import Any
from typing import ClassVar
from typing import get_args
from typing import get_origin
from typing import get_type_hints
from typing import TypeAlias
from typing import TypeVar
from typing import Union

from pytest_evo.errors import MessageRefused
from pytest_evo.models import CandidateId
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import Json
from pytest_evo.models import Reach
from pytest_evo.models import TreeEntry
from pytest_evo.models import TreeHash

VERSION = 1
BASE = "base"
"""The candidate that may have a project of its own around it."""
DIRECTORY_PREFIX = "evo-"
"""How the names of workers' temporary directories begin."""
NO_REACH = Reach()
UNKNOWN_REACH = Reach(exact=False)
"""Of a rollout whose process could not tell: it may have read anything."""
_LENGTH = 4  # bytes of the header's length


class Mode(StrEnum):
    """In what kind of process a request runs."""

    FORK = "fork"
    FRESH = "fresh"
    WORKSPACE = "workspace"


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """What every worker is told once, before it collects; plain data on the way."""

    artifact: str  # the directory, relative to the rootdir
    files: tuple[str, ...] = ()  # the globs of ``include``; empty: everything
    concurrency: int = 1  # requests at the same time in one worker
    run: str = ""  # the run's id
    hidden: tuple[str, ...] = ()  # environment variables (globs) no rollout may see
    allow: tuple[str, ...] | None = None  # the only ones that rollouts may see
    warm_fixtures: tuple[str, ...] = ()
    check_cassettes: bool = True
    protect: tuple[str, ...] = ()  # globs of project files no rollout may change
    writable: tuple[str, ...] = ()  # globs of those that rollouts may change after all
    covered: tuple[str, ...] = ()  # folders that rollouts must not see, absolute
    base_project: str = ""  # what stands for the project around the gate's base


# -- controller to worker ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """Run these cases of one candidate, in order, in one isolated process."""

    kind: ClassVar[str] = "run"
    id: str
    candidate: CandidateId
    tree: TreeHash
    manifest: tuple[TreeEntry, ...]
    runs: tuple[tuple[CaseId, int], ...]  # (case, repeat)
    timeouts: tuple[float, ...]  # seconds, one per run
    mode: Mode = Mode.FORK
    mount: bool = False
    seed: int = 0
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Blob:
    """The content of one file, asked for with :class:`Need`."""

    kind: ClassVar[str] = "blob"
    id: str  # sha256 of the content
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Cancel:
    """Kill a request; its unfinished runs are not reported any more."""

    kind: ClassVar[str] = "cancel"
    id: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Leave the loop; ``now`` kills what runs instead of waiting for it."""

    kind: ClassVar[str] = "stop"
    id: str = ""
    now: bool = False


@dataclass(frozen=True, slots=True)
class Configure:
    """Settings that became known after the worker had started."""

    kind: ClassVar[str] = "configure"
    id: str = ""
    settings: Mapping[str, Json] = field(default_factory=dict)


# -- worker to controller ----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hello:
    """A worker has collected and waits for requests."""

    kind: ClassVar[str] = "hello"
    id: str  # the worker's name
    pid: int
    host: str
    marks: tuple[CaseMark, ...] = ()
    how: str = ""  # how the cases were chosen
    collected: tuple[str, ...] = ()  # ids of all items, in this worker's order
    errors: tuple[str, ...] = ()  # collection errors
    problem: str = ""  # why what was collected cannot be measured; ours, not pytest's
    reach: Reach = NO_REACH  # artifact files reached during collection
    mount: str | None = None  # why the artifact cannot be mounted; None: it can
    fork: str | None = None  # why this process must not fork; None: it may
    threads: tuple[str, ...] = ()  # the project's own threads, alive after collection
    descriptors: tuple[str, ...] = ()  # artifact files that are open after collection
    token: str = ""  # in the environment of everything that test processes start
    directory: str = ""  # the worker's temporary files
    memory: str = ""  # those that live for one request, in memory where there is room
    signals_kept: bool = False  # no test process can end the worker by a signal
    warmable: tuple[str, ...] = ()  # fixtures that all candidates could share


@dataclass(frozen=True, slots=True)
class Need:
    """Contents that the worker lacks for a request."""

    kind: ClassVar[str] = "need"
    id: str  # the request
    hashes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Started:
    """The set-up of a case begins: from here on the rollout counts."""

    kind: ClassVar[str] = "started"
    id: str
    case: CaseId
    repeat: int


@dataclass(frozen=True, slots=True)
class Finished:
    """A rollout ended; ``payload`` is the JSON of an ``itemrun.RawRollout``."""

    kind: ClassVar[str] = "rollout"
    id: str
    case: CaseId
    repeat: int
    started: bool = True
    reach: Reach = NO_REACH
    project_files: tuple[str, ...] = ()
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class Farewell:
    """The last word of a test process that has run all its cases, to its worker.

    ``tampered`` tells what the code under test did to what runs and judges it.
    ``early``: the last case wrote into the candidate's files, so those that were to
    follow want a process with a copy of its own.
    """

    kind: ClassVar[str] = "farewell"
    id: str = ""
    tampered: tuple[str, ...] = ()
    early: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """A child of a request is gone and its copy of the candidate was checked.

    ``violation`` holds for the rollouts since the last such message. ``more`` tells
    that the request goes on in another child, ``unchecked`` why nothing is known of
    how those rollouts left their process: they have to be run again.
    """

    kind: ClassVar[str] = "done"
    id: str
    violation: str | None = None
    more: bool = False
    unchecked: str | None = None


@dataclass(frozen=True, slots=True)
class Log:
    """Something a person should know of a worker."""

    kind: ClassVar[str] = "log"
    id: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Trouble:
    """The worker cannot go on before a person has changed something; ends the run."""

    kind: ClassVar[str] = "trouble"
    id: str = ""
    text: str = ""


ToWorker: TypeAlias = Run | Blob | Cancel | Stop | Configure
ToController: TypeAlias = (
    Hello | Need | Started | Finished | Farewell | Done | Log | Trouble
)
Message: TypeAlias = ToWorker | ToController

_KINDS: Mapping[str, type[Message]] = {
    cls.kind: cls for cls in (*get_args(ToWorker), *get_args(ToController))
}


def encode(message: Message) -> bytes:
    """The wire form of a message."""
    header: dict[str, Any] = {"v": VERSION, "kind": message.kind}
    payload = b""
    for name in _names(type(message)):
        value = getattr(message, name)
        if name == "payload":
            payload = value
        else:
            header[name] = plain(value)
    head = json.dumps(header, separators=(",", ":")).encode("ascii")
    return len(head).to_bytes(_LENGTH, "big") + head + payload


def decode(data: object) -> Message:
    """Read a message back.

    Raises:
        MessageRefused: the bytes are no message of this version.
    """
    if not isinstance(data, bytes):
        raise MessageRefused(f"a message came as {type(data).__name__}, not as bytes")
    end = _LENGTH + int.from_bytes(data[:_LENGTH], "big")
    try:
        header = json.loads(data[_LENGTH:end].decode("ascii"))
    except (ValueError, RecursionError) as error:
        raise MessageRefused(f"a message header is not JSON: {error}") from None
    if not isinstance(header, dict) or header.pop("v", None) != VERSION:
        raise MessageRefused(
            f"a message is not of version {VERSION}; controller and workers must have "
            "the same pytest-evo installed"
        )
    cls = _KINDS.get(str(header.pop("kind", None)))
    if cls is None:
        raise MessageRefused("a message is of no known kind")
    if "payload" in _names(cls):
        header["payload"] = data[end:]
    return read(cls, header)


_T = TypeVar("_T")


def plain(value: Any) -> Any:
    """A value of the models as JSON-like data."""
    if isinstance(value, (str, int, float, bool, NoneType)):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(getattr(value, name)) for name in _names(type(value))}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value]


def read(cls: type[_T], data: object) -> _T:
    """Build a frozen dataclass from plain data, checking every field.

    Raises:
        MessageRefused: a field is unknown, absent or of another type.
    """
    if not isinstance(data, dict):
        raise MessageRefused(f"{cls.__name__} came as {type(data).__name__}")
    hints, required = _shape(cls)
    if unknown := data.keys() - hints.keys():
        raise MessageRefused(f"{cls.__name__} has no field {min(unknown)!r}")
    if absent := required - data.keys():
        raise MessageRefused(f"{cls.__name__} came without {min(absent)!r}")
    return cls(
        **{
            name: _check(hints[name], value, f"{cls.__name__}.{name}")
            for name, value in data.items()
        }
    )


def _names(cls: Any) -> tuple[str, ...]:
    return tuple(_shape(cls)[0])


_Shape: TypeAlias = tuple[dict[str, Any], frozenset[str]]
_SHAPES: dict[Any, _Shape] = {}


def _shape(cls: Any) -> _Shape:
    """The fields of a dataclass with their types, and which of them are required."""
    if cls not in _SHAPES:
        hints = get_type_hints(cls)
        required = frozenset(
            item.name
            for item in fields(cls)
            if item.default is MISSING and item.default_factory is MISSING
        )
        named = {item.name: hints[item.name] for item in fields(cls)}
        _SHAPES[cls] = (named, required)
    return _SHAPES[cls]


def _check(hint: Any, value: object, where: str) -> Any:
    """Return ``value`` as ``hint`` wants it, lists as tuples."""
    if hint in _SCALARS:
        if type(value) in _SCALARS[hint]:
            return float(value) if hint is float else value  # type: ignore[arg-type]
    elif isinstance(hint, type) and issubclass(hint, StrEnum):
        if isinstance(value, str) and value in list(hint):
            return hint(value)
    elif is_dataclass(hint):
        return read(hint, value)  # type: ignore[arg-type]
    else:
        return _check_generic(hint, value, where)
    raise MessageRefused(f"{where} came as {str(value)[:40]!r}")


_SCALARS: Mapping[Any, tuple[type, ...]] = {
    str: (str,),
    int: (int,),
    float: (float, int),
    bool: (bool,),
    bytes: (bytes,),
    NoneType: (NoneType,),
}


def _check_generic(hint: Any, value: object, where: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (UnionType, Union):
        if value is None and NoneType in args:
            return None
        (inner,) = (arg for arg in args if arg is not NoneType)
        return _check(inner, value, where)
    if origin is tuple and isinstance(value, (list, tuple)):
        if args[-1] is Ellipsis:
            return tuple(_check(args[0], item, where) for item in value)
        if len(value) == len(args):
            return tuple(map(_check, args, value, (where,) * len(args)))
    if origin is Mapping and isinstance(value, dict):
        return value
    raise MessageRefused(f"{where} came as {type(value).__name__}")
