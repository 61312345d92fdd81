"""Files of the project that no rollout may change: remembered, compared, put back."""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

import pytest

from pytest_evo.artifact.globs import matches
from pytest_evo.artifact.guard import forbidden
from pytest_evo.plugin.isolation.paths import below
from pytest_evo.plugin.isolation.paths import is_foreign_folder

_CONFIGURATION = (
    "pyproject.toml",
    "pytest_evo.toml",
    "pytest.ini",
    ".pytest.ini",
    "pytest.toml",
    ".pytest.toml",
    "setup.cfg",
    "tox.ini",
)
_KEPT_BYTES = 64 * 1024 * 1024  # of contents that can be put back, per worker
_MOST_BYTES = 8 * 1024 * 1024  # of one file
SET_ASIDE = ".evo-set-aside"
"""What is put beside a protected file: the version that a rollout had made of it."""

_Mark: TypeAlias = tuple[int, ...] | None


def protected_paths(
    session: pytest.Session,
    artifact: Path,
    named: Sequence[str] = (),
    writable: Sequence[str] = (),
) -> tuple[Path, ...]:
    """What judges candidates, most important first.

    pytest's configuration, conftests and test files of a session that has collected,
    files that ``named`` globs select, and the project's own loaded modules; nothing in
    the artifact, and nothing that ``writable`` globs select.
    """
    root = session.config.rootpath
    found: dict[Path, None] = {}
    for path in _candidates(session, named):
        name = _name_below(path, root)
        if name is None or _name_below(path, artifact) is not None:
            continue
        if not any(matches(pattern, name) for pattern in writable) and path.is_file():
            found[path] = None
    return tuple(found)


def _candidates(session: pytest.Session, named: Sequence[str]) -> Iterator[Path]:
    root = session.config.rootpath
    for name in _CONFIGURATION:
        yield root / name
    if session.config.inipath is not None:
        yield session.config.inipath
    for item in session.items:
        for folder in (item.path.parent, *item.path.parent.parents):
            yield folder / "conftest.py"
            yield folder / "__init__.py"
            if folder == root:
                break
    yield from dict.fromkeys(item.path for item in session.items)
    for pattern in named:
        yield from sorted(root.glob(pattern))
    top = os.path.realpath(root)
    for module in list(sys.modules.values()):
        file = vars(module).get("__file__") if hasattr(module, "__dict__") else None
        inside = below(file, top) if isinstance(file, str) else None
        if inside and not is_foreign_folder(top, inside):
            yield root / inside


def _name_below(path: Path, top: Path) -> str | None:
    try:
        return path.relative_to(top).as_posix()
    except ValueError:
        return None


@dataclass
class _File:
    mark: _Mark
    digest: bytes
    content: bytes | None  # None: too large to keep
    mode: int


@dataclass
class ProtectedFiles:
    """Compares the files with what they were, and puts them back."""

    root: Path
    paths: tuple[Path, ...]
    _files: dict[Path, _File] = field(default_factory=dict)
    _folders: dict[Path, frozenset[str]] = field(default_factory=dict)
    _identities: dict[Path, _Mark] = field(default_factory=dict)
    _bytecode: dict[Path, _Mark] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Read all files."""
        left = _KEPT_BYTES
        for path in self.paths:
            content = _read(path)
            if content is None:
                continue
            small = len(content) <= min(_MOST_BYTES, left)
            left -= len(content) if small else 0
            self._files[path] = _File(
                _mark(path),
                sha256(content).digest(),
                content if small else None,
                stat.S_IMODE(path.stat().st_mode),
            )
        for folder in {path.parent for path in self._files}:
            self._folders[folder] = _suspicious(folder)
            self._identities[folder] = _identity(folder)
            self._bytecode.update((path, _mark(path)) for path in _cached(folder))

    def check(
        self, *, blame: bool = True, frozen: frozenset[Path] = frozenset()
    ) -> tuple[str | None, str | None]:
        """Look at all files.

        Args:
            blame: whether a change is the rollout's; else it is taken over.
            frozen: files that the rollout could not write: a change of these is
                somebody else's, unless their folder was moved away.

        Returns:
            What the rollout changed, put back by now; and what somebody else changed,
            taken over.
        """
        self._drop_bytecode()
        moved = {
            folder
            for folder, known in self._identities.items()
            if _identity(folder) != known
        }
        mine: list[str] = []
        others: list[str] = []
        for path, known in self._files.items():
            mark = _mark(path)
            if mark == known.mark:
                continue
            content = _read(path)
            if content is not None and sha256(content).digest() == known.digest:
                known.mark = mark
                continue
            free = path in frozen and path.parent not in moved
            if not blame or free:
                others.append(self._told(path))
                self._adopt(path, known, content, mark)
            else:
                mine.append(self._told(path))
                self._put_back(path, known)
        for name in self._new_names(blame=blame):
            (mine if blame else others).append(name)
        for folder in moved:
            self._identities[folder] = _identity(folder)
        return _text("changed", mine), _text("", others)

    def _told(self, path: Path) -> str:
        return _name_below(path, self.root) or str(path)

    def _adopt(
        self, path: Path, known: _File, content: bytes | None, mark: _Mark
    ) -> None:
        known.mark = mark
        known.content = content
        known.digest = sha256(content or b"").digest()

    def _put_back(self, path: Path, known: _File) -> None:
        folder = path.parent
        with suppress(OSError):
            if folder.is_symlink() and folder != self.root:
                folder.replace(folder.with_name(folder.name + SET_ASIDE))
            if os.path.lexists(path):
                path.replace(path.with_name(path.name + SET_ASIDE))
        if known.content is None:
            return
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            number, part = tempfile.mkstemp(dir=folder)  # follows no planted link
            with open(number, "wb") as file:  # noqa: PTH123, a descriptor
                file.write(known.content)
            Path(part).chmod(known.mode)
            Path(part).replace(path)
        known.mark = _mark(path)

    def _new_names(self, *, blame: bool) -> Iterator[str]:
        """Files that act by themselves and were not there; set aside if blamed."""
        for folder, known in self._folders.items():
            now = _suspicious(folder)
            for name in sorted(now - known):
                yield f"{self._told(folder / name)} (new)"
                if blame:
                    with suppress(OSError):
                        (folder / name).replace(folder / f"{name}{SET_ASIDE}")
            if not blame:
                self._folders[folder] = now | known

    def _drop_bytecode(self) -> None:
        """Delete byte code that is new or other: no rollout writes any honestly."""
        for folder in self._folders:
            for path in _cached(folder):
                if self._bytecode.get(path) != _mark(path):
                    with suppress(OSError):
                        path.unlink()


def _suspicious(folder: Path) -> frozenset[str]:
    """Names of files in a folder that pytest or python would load by themselves."""
    try:
        names = [entry.name for entry in os.scandir(folder) if not entry.is_dir()]
    except OSError:
        return frozenset()
    return frozenset(
        name for name in names if forbidden(name) or name in _CONFIGURATION
    )


def _cached(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder / "__pycache__")]
    except OSError:
        return []


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except OSError:
        return None


def _identity(folder: Path) -> _Mark:
    try:
        status = folder.lstat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino)


def _mark(path: Path) -> _Mark:
    """What cannot stay the same when a file is written."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (
        status.st_mode,
        status.st_size,
        status.st_ino,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def _text(what: str, names: Iterable[str]) -> str | None:
    found = list(names)
    if not found:
        return None
    more = f" and {len(found) - 5} more" if len(found) > 5 else ""
    return f"{what} {', '.join(found[:5])}{more} of the project".strip()
