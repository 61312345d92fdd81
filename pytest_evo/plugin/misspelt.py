"""Options of pytest-evo that do not exist: what was probably meant, and what to type.

Imported only where the command line has one.
"""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Iterator
from collections.abc import Sequence

import pytest
from pydantic import BaseModel
from pydantic import ValidationError

from pytest_evo.hostile import one_line
from pytest_evo.plugin.options import OPTIONS
from pytest_evo.settings import Settings
from pytest_evo.settings_text import option_name

_TABLE = "[tool.pytest_evo]"
_LIKENESS = 0.75
_LONGEST_VALUE = 200


def add_hints(parser: pytest.Parser, args: Sequence[str]) -> None:
    """Have pytest's own message on unknown options say what was probably meant.

    Args:
        parser: that every plugin and conftest file has added its options to.
        args: the command line.
    """
    _, unknown = parser.parse_known_and_unknown_args(args)
    hints = [hint for hint in map(hint_for, unknown) if hint is not None]
    if hints:
        parser.extra_info["pytest-evo"] = "; ".join(hints)


def hint_for(argument: str) -> str | None:
    """What to type in place of an unknown option; None where nothing is like it."""
    given, equals, value = argument.partition("=")
    if not given.startswith("--"):
        return None
    keys = {option_name(key): key for key in _keys_of_the_file()}
    wanted = given.lower().replace("_", "-")
    close = difflib.get_close_matches(wanted, [*OPTIONS, *keys], 1, _LIKENESS)
    if not close:
        return None
    shown = one_line(given, _LONGEST_VALUE)
    if close[0] not in keys:
        return f"for {shown}, did you mean {close[0]}?"
    key = keys[close[0]]
    setting = _as_written(key, value if equals else None)
    return f"{shown} is no option: the setting {key} has none, write {setting}"


def _keys_of_the_file() -> Iterator[str]:
    """The settings that the command line has no option for."""
    for key in Settings.model_fields:
        if key != "targets" and option_name(key) not in OPTIONS:
            yield key


def _as_written(key: str, value: str | None) -> str:
    """A setting as it stands in the file: with this value where it is a good one."""
    field = Settings.model_fields[key]
    if not field.examples:
        single = isinstance(field.default, BaseModel) or field.default is None
        heading = f"tool.pytest_evo.{key}"
        return f"the table [{heading}]" if single else f"tables [[{heading}]]"
    texts = [json.dumps(field.examples[0])]
    if value is not None and len(value) <= _LONGEST_VALUE and value.isprintable():
        quoted = json.dumps(value, ensure_ascii=False)
        texts = [value, quoted, f"[{quoted}]", *texts]
    return f"{_TABLE} {key} = {next(text for text in texts if _fits(key, text))}"


def _fits(key: str, text: str) -> bool:
    """Whether a text is one the file may have for a setting."""
    try:
        table = tomllib.loads(f"{key} = {text}")
        Settings.model_validate(table)
    except (tomllib.TOMLDecodeError, ValidationError):
        return False
    return list(table) == [key]
