"""Where the settings of a project stand: ``pytest_evo.toml`` or ``pyproject.toml``."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_evo.errors import SettingsProblem
from pytest_evo.settings_text import short

PYPROJECT = "pyproject.toml"
OWN_FILE = "pytest_evo.toml"
TABLE = "tool.pytest_evo"
_OTHERS = frozenset({"pytestenv"})  # tables of other plugins that look like ours


def read_table(rootdir: Path) -> tuple[str, Mapping[str, object]]:
    """The name of the file that holds the settings, and its table.

    Raises:
        SettingsProblem: a file cannot be used, both hold settings, or settings stand
            where nobody reads them.
    """
    own = _parse(rootdir / OWN_FILE)
    tool = (_parse(rootdir / PYPROJECT) or {}).get("tool")
    tools = tool if isinstance(tool, dict) else {}
    _refuse_misplaced(rootdir, tools)
    table = tools.get("pytest_evo")
    if own is not None and table is not None:
        raise SettingsProblem(
            f"{OWN_FILE} and [{TABLE}] in {PYPROJECT} both hold settings "
            f"(in {rootdir}). Keep one: move everything into {OWN_FILE} and remove "
            f"[{TABLE}] from {PYPROJECT}, or delete {OWN_FILE}."
        )
    if own is not None:
        nested = own.get("tool")
        if own.keys() == {"tool"} and isinstance(nested, dict):
            own = nested.get("pytest_evo", own)
        return OWN_FILE, own
    if table is not None and not isinstance(table, dict):
        raise SettingsProblem(
            f"{PYPROJECT}: tool.pytest_evo is {short(table)}, not a table. "
            f'Write [{TABLE}] and below it artifact = "DIRECTORY".'
        )
    return f"{PYPROJECT} [{TABLE}]", table or {}


def misnamed_tables(tools: Mapping[str, object]) -> list[str]:
    """Tables below ``[tool]`` that are meant for us and called something else."""
    return [name for name in tools if name != "pytest_evo" and _is_near(name)]


def _is_near(name: str) -> bool:
    letters = re.sub(r"[^a-z]", "", name.lower())
    if letters in _OTHERS:
        return False
    return letters == "pytestevolve" or bool(
        difflib.get_close_matches(letters, ["pytestevo"], 1, 0.85)
    )


def _refuse_misplaced(rootdir: Path, tools: Mapping[str, object]) -> None:
    for name in misnamed_tables(tools):
        raise SettingsProblem(
            f"{PYPROJECT}: nobody reads [tool.{name}]. Write [{TABLE}] instead."
        )
    for path in rootdir.glob("*.toml"):
        if path.name != OWN_FILE and _is_near(path.stem):
            raise SettingsProblem(
                f"{path.name}: nobody reads this file (in {rootdir}). Call it "
                f"{OWN_FILE}."
            )


def _parse(path: Path) -> dict[str, Any] | None:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except FileNotFoundError:
        return None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsProblem(
            f"{path.name} is not valid TOML: {error}. Correct {path}."
        ) from error
    except OSError as error:
        raise SettingsProblem(
            f"{path} cannot be read: {error.strerror}. Make it a readable file."
        ) from error
