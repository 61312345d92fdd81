"""Where a project is, and setting one up."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path

import tomlkit

from pytest_evo.errors import SettingsProblem
from pytest_evo.settings_files import misnamed_tables
from pytest_evo.settings_files import OWN_FILE
from pytest_evo.settings_files import PYPROJECT

LIKELY = ("prompts", "skills", "pipeline", "agent", "agents", "prompt")
"""Directories that are usually what a project wants to improve."""


_EXAMPLES = (
    "What files are for, told to whatever edits them:",
    "[[tool.pytest_evo.file]]",
    'path = "*.md"',
    'about = "who reads it, and when"',
    "",
    "What the proposer search may turn. Without a knob, name one of:",
    'model = "PROVIDER/NAME", agent = "NAME", scripted = "proposals.py".',
    "[[tool.pytest_evo.file]]",
    'path = "settings.toml"',
    "[[tool.pytest_evo.file.knob]]",
    'key = "section.name"',
    'type = "float"',
    "low = 0.0",
    "high = 1.0",
)


def find_rootdir(start: Path) -> Path:
    """The nearest directory upwards that has settings or runs, else ``start``."""
    for directory in (start, *start.parents):
        if (directory / OWN_FILE).is_file() or (directory / ".evo/runs").is_dir():
            return directory
        if _has_table(directory / PYPROJECT):
            return directory
    return start


def _has_table(pyproject: Path) -> bool:
    try:
        tool = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool")
    except (OSError, ValueError):
        return False
    if not isinstance(tool, dict):
        return False
    return "pytest_evo" in tool or bool(misnamed_tables(tool))


# -- init --------------------------------------------------------------------------


def init_project(rootdir: Path, artifact: str | None = None) -> str:
    """Add a minimal ``[tool.pytest_evo]`` to pyproject.toml; return what was added.

    Everything that is in the file stays as it is, byte for byte. Without an artifact
    the first likely directory is taken, and the likeliest name where there is none.

    Raises:
        SettingsProblem: there are settings already, the artifact is no directory, or
            the file cannot be extended.
    """
    if artifact is not None:
        _insist_on_directory(rootdir, artifact)
    path = rootdir / PYPROJECT
    for file, there in ((rootdir / OWN_FILE, True), (path, _has_table(path))):
        if there and file.exists():
            raise SettingsProblem(
                f"{file} has settings already. Edit them there; to check them, type: "
                "pytest-evo doctor"
            )
    try:
        before = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    line_end = b"\r\n" if b"\r\n" in before else b"\n"
    table = settings_table(artifact or guess_artifact(rootdir))
    gap = b"" if not before else line_end * (1 if before.endswith(b"\n") else 2)
    after = before + gap + table.encode().replace(b"\n", line_end)
    _check_extension(path, before, after)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(after)
        if before:
            draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise _unusable(path, error.strerror or str(error)) from error
    return table


def _insist_on_directory(rootdir: Path, artifact: str) -> None:
    root, place = rootdir.resolve(), (rootdir / artifact).resolve()
    if place.is_dir() and place.is_relative_to(root) and place != root:
        return
    there = [path.name for path in root.iterdir() if path.is_dir()]
    close = difflib.get_close_matches(artifact.strip("./"), sorted(there), 1)
    hint = (
        f"Did you mean --artifact={close[0]}?" if close else "Type one, or create it."
    )
    raise SettingsProblem(
        f"--artifact={artifact} is no directory below {root}. Nothing was written. "
        f"{hint}"
    )


def guess_artifact(rootdir: Path) -> str:
    """The first of the likely directories that is there, else the likeliest name."""
    return next((name for name in LIKELY if (rootdir / name).is_dir()), LIKELY[0])


def settings_table(artifact: str) -> str:
    """The minimal table, as text."""
    table = tomlkit.table()
    table.add("artifact", artifact)
    table["artifact"].comment("the directory that may change")
    table.add("objective", "")
    table["objective"].comment("what a better one does, in a sentence or two")
    table.add(tomlkit.nl())
    for text in _EXAMPLES:
        table.add(tomlkit.comment(text) if text else tomlkit.nl())
    document = tomlkit.document()
    document.add("tool", tomlkit.table(is_super_table=True).add("pytest_evo", table))
    return tomlkit.dumps(document)


def _check_extension(path: Path, before: bytes, after: bytes) -> None:
    """Nothing may be written that does not mean the old settings plus the new."""
    try:
        old = tomllib.loads(before.decode())
        new = tomllib.loads(after.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _unusable(path, str(error)) from error
    new["tool"].pop("pytest_evo")
    old.setdefault("tool", {})
    if old != new:
        raise _unusable(path, "adding a table at its end would change another one")


def _unusable(path: Path, why: str) -> SettingsProblem:
    return SettingsProblem(
        f"{path} cannot be extended: {why}. Nothing was written. Correct it, or put "
        f"the settings into {path.with_name(OWN_FILE)}."
    )
