"""Whether a failed call is infrastructure's: an exception type that the project names.

A candidate must not excuse its failures, so an exception counts only where no code of
the artifact was under way when it was raised, or what it followed from, and no code
that belongs to no module: what an artifact generates carries whatever file name it
likes.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import pytest

from pytest_evo.plugin.declared import declared

SETTING = "infrastructure"


def named_types(config: pytest.Config) -> tuple[str, ...]:
    """The exception types that the project calls infrastructure."""
    found = declared(config).get(SETTING)
    return tuple(filter(_is_text, found)) if isinstance(found, list) else ()


def outage_notes(names: Sequence[str]) -> list[str]:
    """What a person should know before a run where the project names types."""
    if not names:
        return []
    return [
        f"infrastructure: {', '.join(names)} too (where no code of the artifact was "
        "under way)"
    ]


def outage(error: BaseException, names: Collection[str], artifact: Path) -> str | None:
    """Why a failure is infrastructure's, or None.

    Args:
        error: what a call raised.
        names: exception types, as ``TimeoutError`` or ``httpx.ConnectError``; one
            stands for its subclasses too.
        artifact: the candidate's directory.
    """
    if not names:
        return None
    name = next((name for name in _names_of(type(error)) if name in names), None)
    if name is None:
        return None
    inside = f"{artifact.resolve()}/", f"{artifact}/"
    for frame in (frame for one in chain_of(error) for frame in _frames(one)):
        file = frame.f_code.co_filename
        if file.startswith(inside) or not _is_of_a_module(frame):
            return None
    return f"infrastructure: {name} is in the setting {SETTING}"


def _names_of(kind: type[BaseException]) -> Iterator[str]:
    for one in kind.__mro__:
        yield one.__name__
        yield f"{one.__module__}.{one.__qualname__}"


def chain_of(error: BaseException) -> Iterator[BaseException]:
    """An exception, and all that it followed from or that it groups."""
    waiting: list[BaseException | None] = [error]
    met = set[int]()
    while waiting:
        one = waiting.pop()
        if one is None or id(one) in met:
            continue
        met.add(id(one))
        yield one
        waiting += [one.__cause__, one.__context__]
        if isinstance(one, BaseExceptionGroup):
            waiting += one.exceptions


def _frames(error: BaseException) -> Iterator[FrameType]:
    traceback = error.__traceback__
    while traceback is not None:
        yield traceback.tb_frame
        traceback = traceback.tb_next


def _is_of_a_module(frame: FrameType) -> bool:
    module = sys.modules.get(str(frame.f_globals.get("__name__")))
    return (
        module is not None
        and vars(module) is frame.f_globals
        and getattr(module, "__file__", None) == frame.f_code.co_filename
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str)
