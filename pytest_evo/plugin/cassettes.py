"""Replay-only cassettes: recorded answers cannot judge a new prompt."""

from __future__ import annotations

import os
from collections.abc import Iterable
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from pytest_evo.models import CaseId
from pytest_evo.plugin.cases import case_id
from pytest_evo.wording import count

_SUFFIXES = (".yaml", ".yml", ".json")
_FIXTURES = frozenset({"vcr", "vcr_cassette"})
# "once" records only where there is no cassette, so an existing one is replayed only
_REPLAYING = frozenset({"none", "once"})


class Replay(NamedTuple):
    """A case that hears recorded answers."""

    case: CaseId
    cassette: Path
    mode: str


def replayed_cases(items: Iterable[pytest.Item]) -> list[Replay]:
    """The items whose network answers come from an existing cassette."""
    found = []
    for item in items:
        if not _uses_cassettes(item):
            continue
        mode = _record_mode(item)
        if mode not in _REPLAYING:
            continue
        cassette = next(filter(os.path.exists, _cassettes(item)), None)
        if cassette is not None:
            found.append(Replay(case_id(item), cassette, mode))
    return found


def cassette_problem(items: Iterable[pytest.Item], rootdir: Path) -> str | None:
    """Why the run has to stop, or None where no case replays recorded answers."""
    replays = replayed_cases(items)
    if not replays:
        return None
    shown = [
        f"  {replay.case}: {_relative(replay.cassette, rootdir)} "
        f"(record mode {replay.mode!r})"
        for replay in replays[:5]
    ]
    if len(replays) > len(shown):
        shown.append(f"  and {len(replays) - len(shown)} more")
    return (
        f"recorded answers stay the same whatever a candidate asks, and "
        f"{count(len(replays), 'case')} would get some:\n"
        + "\n".join(shown)
        + "\nrecord anew with --record-mode=rewrite (pytest-recording) or "
        "--vcr-record=all (pytest-vcr), deselect them, or, if the answers do not "
        "depend on the artifact, set skip_cassette_check = true in [tool.pytest_evo]"
    )


def _uses_cassettes(item: pytest.Item) -> bool:
    if any(
        item.config.getoption(name, False)
        for name in ("--disable-recording", "--disable-vcr")
    ):
        return False
    fixtures = getattr(item, "fixturenames", ())
    return item.get_closest_marker("vcr") is not None or not _FIXTURES.isdisjoint(
        fixtures
    )


def _record_mode(item: pytest.Item) -> str:
    """The mode that the command line says, else the marker, else the default."""
    for option in ("--record-mode", "--vcr-record", "--vcr-record-mode"):
        given = item.config.getoption(option, None)
        if given:
            return str(getattr(given, "value", given))
    marker = item.get_closest_marker("vcr")
    mode = marker.kwargs.get("record_mode") if marker is not None else None
    return str(getattr(mode, "value", mode) or "none")


def _cassettes(item: pytest.Item) -> Iterator[Path]:
    """Where pytest-recording and pytest-vcr look for a test's cassettes."""
    folder = item.path.parent / "cassettes"
    folders = (folder / item.path.stem, folder)
    for name in _names(item):
        given = Path(name)
        if given.is_absolute():
            yield given
            continue
        for place in folders:
            yield place / given
            yield from (place / f"{name}{suffix}" for suffix in _SUFFIXES)


def _names(item: pytest.Item) -> Iterator[str]:
    for marker in item.iter_markers("vcr"):
        yield from (name for name in marker.args if isinstance(name, str))
    for marker in item.iter_markers("default_cassette"):
        yield from (name for name in marker.args if isinstance(name, str))
    name = item.name.replace("/", "-")
    owner = getattr(item, "cls", None)
    if owner is not None:
        yield f"{owner.__name__}.{name}"
    yield name


def _relative(path: Path, rootdir: Path) -> str:
    return str(path.relative_to(rootdir)) if path.is_relative_to(rootdir) else str(path)
