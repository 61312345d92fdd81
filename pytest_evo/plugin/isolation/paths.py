"""Names of files below a root, whatever links and byte code they came by."""

# Thousands of names a pass: strings, not Path objects.
# ruff: noqa: PTH100, PTH112, PTH114, PTH118, PTH119, PTH120, PTH206

from __future__ import annotations

import os
import re
import sys
from functools import cache
from pathlib import Path

SKIPPED = frozenset(
    {
        ".eggs",
        ".evo",
        ".git",
        ".hg",
        ".hypothesis",
        ".jj",
        ".mypy_cache",
        ".nox",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "evo-reports",
        "node_modules",
        "site-packages",
        "venv",
    }
)
"""Folders of a project that hold nothing of the project itself."""

_BYTECODE = re.compile(r"\.[a-z]+\d*-\d+t?(?:\.opt-\w+|-pytest-[\w.+]+)*\.py[co]$")


def below(path: str, root: str) -> str | None:
    """The name of ``path`` relative to ``root``, "" for itself, None if not below."""
    if path == root:
        return ""
    start = root if root.endswith(os.sep) else root + os.sep
    return path[len(start) :] if path.startswith(start) else None


@cache
def real(path: str) -> str:
    """The real path, looked up once in a process and those that are forked from it."""
    return os.path.realpath(path)


def real_name(path: str) -> str:
    """The real path of something new in a folder that is well known."""
    if os.path.islink(path):
        return os.path.realpath(path)
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(real(folder), name)


def source_of(path: str) -> str:
    """The source file that a byte code file in ``__pycache__`` stands for."""
    prefix = sys.pycache_prefix
    if prefix and path.startswith(prefix + os.sep) and path.endswith(".pyc"):
        folder, name = os.path.split(path[len(prefix) :])
        return os.path.join(folder, _BYTECODE.sub(".py", name))
    folder, name = os.path.split(path)
    if os.path.basename(folder) != "__pycache__":
        return path
    return os.path.join(os.path.dirname(folder), _BYTECODE.sub(".py", name))


def is_virtualenv(folder: Path) -> bool:
    """Whether a folder is a virtual environment, whatever its name."""
    return (folder / "pyvenv.cfg").is_file() or (folder / "conda-meta").is_dir()


@cache
def _holds_foreign(top: str, folder: str) -> bool:
    return is_virtualenv(Path(top, folder))


def is_foreign_folder(top: str, name: str) -> bool:
    """Whether a file lies in a skipped folder or a virtual environment below top."""
    parts = name.split(os.sep)[:-1]
    if not SKIPPED.isdisjoint(parts):
        return True
    return any(
        _holds_foreign(top, os.sep.join(parts[: length + 1]))
        for length in range(len(parts))
    )


class Resolver:
    """Resolves many paths of few folders; keep it no longer than one pass."""

    def __init__(self) -> None:
        self._folders: dict[str, str] = {}

    def real(self, path: str) -> str:
        """``os.path.realpath`` with the folders remembered."""
        spelled = self._spelled(path)
        return os.path.realpath(spelled) if os.path.islink(spelled) else spelled

    def names(self, path: str, root: Path, *, folder: bool = False) -> set[str]:
        """The names below ``root`` that reading ``path`` depends on; none: not below.

        These are the file itself and the links that led to it. A folder is named with
        a slash at its end.
        """
        given = os.fspath(root)
        top = self._folder(given)
        real = self.real(path)
        name = below(real, top)
        found = self._links(path, real, top)
        if given != top:
            found |= self._links(path, real, given)
        if name is not None:
            if folder or os.path.isdir(real):
                name = f"{name}/" if name else "./"
            found.add(name.replace(os.sep, "/"))
        return found

    def _links(self, path: str, real: str, top: str) -> set[str]:
        """The names below ``top`` of links that led from ``path`` to ``real``."""
        name = below(os.path.normpath(path), top)
        if not name or below(real, top) == name:
            return set()
        parts = name.split(os.sep)
        steps = (os.sep.join(parts[: count + 1]) for count in range(len(parts)))
        return {
            step.replace(os.sep, "/")
            for step in steps
            if os.path.islink(os.path.join(top, step))
        }

    def _spelled(self, path: str) -> str:
        """The path with its folder resolved and its last name as given."""
        head, tail = os.path.split(path)
        if tail in ("", ".", ".."):
            return os.path.realpath(path)
        return os.path.join(self._folder(head), tail)

    def _folder(self, folder: str) -> str:
        known = self._folders.get(folder)
        if known is None:
            known = self._folders[folder] = os.path.realpath(folder)
        return known
