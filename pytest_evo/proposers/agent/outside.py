"""Without a sandbox: whether an agent changed what judges its work.

Only files that decide how cases are judged are watched: Python files, configuration of
pytest and of this plugin, the gate's baseline. They are not put back, because a person
may be working on them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

Watched: TypeAlias = Mapping[str, str]
_NAMES = frozenset(
    {
        *("pyproject.toml", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
        *("tox.ini", "setup.cfg", "pytest_evo.toml", "evo-baseline.json"),
    }
)
_LEFT_OUT = frozenset({"__pycache__", "node_modules", "site-packages"})
_MOST_FILES = 20_000
_LARGEST = 5_000_000


def look(project: Path) -> Watched:
    """Digests of the watched files of a project, by their names in it."""
    seen: dict[str, str] = {}
    for path in _files(project):
        if len(seen) >= _MOST_FILES:
            break
        try:
            if path.stat().st_size <= _LARGEST:
                digest = hashlib.sha256(path.read_bytes()).hexdigest()
                seen[path.relative_to(project).as_posix()] = digest
        except OSError:
            continue
    return seen


def changed(before: Watched, after: Watched) -> tuple[str, ...]:
    """Names of files that are not as they were, added and deleted ones included."""
    names = {*before, *after}
    return tuple(sorted(name for name in names if before.get(name) != after.get(name)))


def _files(project: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(project):
        here = Path(folder)
        folders[:] = [
            name
            for name in folders
            if name not in _LEFT_OUT
            and not name.startswith(".")
            and not (here / name / "pyvenv.cfg").exists()
        ]
        for name in names:
            if name.endswith(".py") or name in _NAMES:
                yield here / name
