"""Knob values inside TOML, YAML and JSON files; everything else stays as it is.

A key is a dotted path (``bm25.k1``), with numbers for places in a list
(``stages.0.k1``) and quotes around a name with dots (``models."gpt-5.1".top_k``). In
YAML and JSON only the characters of the value are replaced, in TOML tomlkit does it.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

import tomlkit
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError
from ruamel.yaml.nodes import MappingNode
from ruamel.yaml.nodes import Node
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.nodes import SequenceNode
from tomlkit.exceptions import TOMLKitError

from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Knob
from pytest_evo.wording import a_kind

Scalar = bool | int | float | str
SUFFIXES = (".toml", ".yaml", ".yml", ".json")
_PART = re.compile(r'"((?:[^"\\]|\\.)*)"|([^."]+)')
_PLAIN_YAML = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_NOT_PLAIN = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_COMMENT = re.compile(r"""([^\n"'#]*?)( {2,})#""")  # behind a value, not in a text
_BLANK = re.compile(r"[ \t\n\r]*")


def read_knob(text: str, suffix: str, key: str) -> Scalar:
    """The value at a key.

    Raises:
        ArtifactProblem: the file cannot be parsed, or the key is not there or holds
            something else than a number, a text, true or false.
    """
    value: object
    if suffix == ".toml":
        value = _toml_value(_toml(text), key)
    else:
        _, _, value = _span(text, suffix, key)
    if isinstance(value, bool | int | float | str):
        return value
    raise ArtifactProblem(
        f"The knob {key!r} is {a_kind(value)}, not a number, a text, true or false. "
        "Write the key of a single value."
    )


def write_knob(text: str, suffix: str, key: str, value: Scalar) -> str:
    """The text with another value at a key; comments, order and layout stay.

    Raises:
        ArtifactProblem: see :func:`read_knob`; or the value cannot be written.
    """
    if isinstance(value, float) and not math.isfinite(value):
        raise ArtifactProblem(f"The knob {key!r} cannot be {value}. Use a number.")
    old = read_knob(text, suffix, key)
    if suffix == ".toml":
        changed = _write_toml(text, key, value)
    else:
        start, end, _ = _span(text, suffix, key)
        shown = json.dumps(value, ensure_ascii=False)
        if suffix != ".json":
            shown = _yaml_scalar(value, text[start:end])
        changed = text[:start] + shown + text[end:]
    changed = _in_column(text, changed)
    written = read_knob(changed, suffix, key)
    if written != value or isinstance(written, bool) is not isinstance(value, bool):
        raise ArtifactProblem(
            f"The knob {key!r} was {old!r} and would read as {written!r} instead of "
            f"{value!r}. Write the value in the file in a simpler form."
        )
    return changed


def knob_problem(knob: Knob, value: Scalar) -> str | None:
    """Why a value is none that the knob may have, or None."""
    said = f"{knob.file}: {knob.key} is {value!r}"
    if knob.type == "choice":
        same = (
            value == choice and type(value) is type(choice) for choice in knob.choices
        )
        return None if any(same) else f"{said}, not one of {list(knob.choices)}"
    if knob.type == "bool":
        return None if isinstance(value, bool) else f"{said}, not true or false"
    if isinstance(value, bool | str) or (
        knob.type == "int" and not isinstance(value, int)
    ):
        return f"{said}, not a number of type {knob.type}"
    low = -math.inf if knob.low is None else knob.low
    high = math.inf if knob.high is None else knob.high
    if not low <= value <= high:
        return f"{said}, outside {low:g} to {high:g}"
    return None


def parts_of(key: str) -> tuple[str, ...]:
    """The names of a dotted key.

    Raises:
        ArtifactProblem: the key is empty or its quotes do not match.
    """
    parts: list[str] = []
    at = 0
    while found := _PART.match(key, at):
        quoted, plain = found.groups()
        parts.append(plain if quoted is None else re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
        if at == len(key):
            return tuple(parts)
        if key[at] != ".":
            break
        at += 1
    raise ArtifactProblem(
        f"{key!r} is no key. Write names with dots between, like bm25.k1."
    )


def _place(key: str, part: str, size: int) -> int:
    if re.fullmatch("[0-9]{1,6}", part) and int(part) < size:
        return int(part)
    raise ArtifactProblem(
        f"The knob {key!r}: {part!r} is no place in a list of {size}. Write a number "
        f"from 0 to {size - 1}."
    )


def _missing(key: str, part: str, known: Sequence[object]) -> ArtifactProblem:
    names = ", ".join(str(name) for name in known[:20]) or "nothing"
    return ArtifactProblem(
        f"The knob {key!r} is not in the file: there is no {part!r}, but {names}. "
        "Correct the key, or add the value to the file."
    )


def _unparsable(kind: str, error: Exception) -> ArtifactProblem:
    return ArtifactProblem(f"This is no {kind}: {' '.join(str(error).split())}.")


# -- TOML ----------------------------------------------------------------------------


def _toml(text: str) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(text)
    except (TOMLKitError, ValueError, RecursionError) as error:
        raise _unparsable("TOML", error) from error


def _toml_inner(holder: Any, key: str, part: str) -> Any:
    if isinstance(holder, list):
        return holder[_place(key, part, len(holder))]
    if isinstance(holder, dict):
        if part in holder:
            return holder[part]
        raise _missing(key, part, list(holder))
    raise _missing(key, part, [])


def _toml_value(document: tomlkit.TOMLDocument, key: str) -> object:
    value: Any = document
    for part in parts_of(key):
        value = _toml_inner(value, key, part)
    return value.unwrap() if hasattr(value, "unwrap") else value


def _in_column(old: str, new: str) -> str:
    """The new text with the comment behind the value in its old column.

    Only where more than one blank keeps them apart, as in columns of comments.
    """
    grown = len(new) - len(old)
    ends = enumerate(zip(reversed(old), reversed(new), strict=False))
    same = next((at for at, (was, now) in ends if was != now), min(len(old), len(new)))
    head, tail = new[: len(new) - same], new[len(new) - same :]
    found = _COMMENT.match(tail)
    if found is None:
        return new
    blanks = " " * max(1, len(found[2]) - grown)
    return head + found[1] + blanks + tail[found.end(2) :]


def _write_toml(text: str, key: str, value: Scalar) -> str:
    document = _toml(text)
    *parents, last = parts_of(key)
    holder: Any = document
    for part in parents:
        holder = _toml_inner(holder, key, part)
    place = _place(key, last, len(holder)) if isinstance(holder, list) else last
    holder[place] = value
    return tomlkit.dumps(document)


# -- YAML and JSON: where the characters of a value are -------------------------------


def _span(text: str, suffix: str, key: str) -> tuple[int, int, object]:
    if suffix == ".json":
        return _json_span(text, key)
    if suffix in (".yaml", ".yml"):
        return _yaml_span(text, key)
    raise ArtifactProblem(
        f"Knobs are values in {', '.join(SUFFIXES)} files, not in {suffix!r} files."
    )


def _yaml_span(text: str, key: str) -> tuple[int, int, object]:
    try:
        node = YAML(typ="safe", pure=True).compose(io.StringIO(text))
    except (YAMLError, ValueError, RecursionError) as error:
        raise _unparsable("YAML", error) from error
    # an alias is the node it stands for, which lies before its key
    after = 0
    for part in parts_of(key):
        after, node = _yaml_inner(node, key, part)
        if node.start_mark.index < after:
            raise ArtifactProblem(
                f"The knob {key!r} goes through an alias (*name): a change would reach "
                "other places too. Write the value out."
            )
    start, end = node.start_mark.index, node.end_mark.index
    if not isinstance(node, ScalarNode):
        return start, end, {} if isinstance(node, MappingNode) else []
    if text[start : start + 1] in "&!|>" or not text[start:end].strip():
        raise ArtifactProblem(
            f"The knob {key!r} is empty, a block, or has an anchor or a tag. Write a "
            "plain value."
        )
    return start, end, YAML(typ="safe", pure=True).load(text[start:end])


def _yaml_inner(node: Node | None, key: str, part: str) -> tuple[int, Node]:
    """The value below a name, and the place that it has to lie behind."""
    if isinstance(node, MappingNode):
        for name, value in node.value:
            if isinstance(name, ScalarNode) and name.value == part:
                return name.end_mark.index, value
        raise _missing(key, part, [name.value for name, _ in node.value])
    if isinstance(node, SequenceNode):
        place = _place(key, part, len(node.value))
        before = node.value[place - 1].end_mark.index if place else 0
        return max(before, node.start_mark.index), node.value[place]
    raise _missing(key, part, [])


def _yaml_scalar(value: Scalar, old: str) -> str:
    """A value that YAML 1.1 and 1.2 read alike."""
    if isinstance(value, float):
        shown = repr(value)
        # without the dot, YAML 1.1 reads 1e-05 as a text
        return shown.replace("e", ".0e") if "e" in shown and "." not in shown else shown
    if isinstance(value, str):
        plain = _PLAIN_YAML.fullmatch(value) and value.lower() not in _NOT_PLAIN
        if plain and old[:1] not in ("'", '"'):
            return value
        if old[:1] == "'" and "\n" not in value:
            return "'" + value.replace("'", "''") + "'"
    return json.dumps(value, ensure_ascii=False)


def _json_span(text: str, key: str) -> tuple[int, int, object]:
    try:
        json.loads(text)
        start = _after_blank(text, 0)
        for part in parts_of(key):
            start = _json_inner(text, start, key, part)
        value, end = json.JSONDecoder().raw_decode(text, start)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _unparsable("JSON", error) from error
    return start, end, value


def _json_inner(text: str, start: int, key: str, part: str) -> int:
    """Where the value below a name begins; of two equal names the last counts."""
    decoder = json.JSONDecoder()
    if text[start] not in "{[":
        raise _missing(key, part, [])
    found: dict[str, int] = {}
    at = _after_blank(text, start + 1)
    while text[at] not in "}]":
        name = str(len(found))
        if text[start] == "{":
            name, at = scanstring(text, at + 1, False)
            at = _after_blank(text, _after_blank(text, at) + 1)
        found.pop(name, None)
        found[name] = at
        at = _after_blank(text, decoder.raw_decode(text, at)[1])
        if text[at] == ",":
            at = _after_blank(text, at + 1)
    if text[start] == "[":
        return found[str(_place(key, part, len(found)))]
    if part not in found:
        raise _missing(key, part, list(found))
    return found[part]


def _after_blank(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at
