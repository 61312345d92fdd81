"""How people write settings, and what they are told when one cannot be used.

Values are read as they are typed in a TOML file or on the command line; problems are
told as where, what, why and what to type.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Mapping
from collections.abc import Sequence
from enum import Enum
from typing import Annotated
from typing import get_args
from typing import get_origin
from typing import Literal

from pydantic import AfterValidator
from pydantic import BaseModel
from pydantic import BeforeValidator
from pydantic import Field
from pydantic import ValidationInfo
from pydantic_core import ErrorDetails

_DIGITS = re.compile(r"[0-9]{1,18}")
_DECIMAL = re.compile(r"[0-9]{1,18}(\.[0-9]{1,18})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_DURATION = re.compile(
    r"(?:(?P<h>[0-9]+(?:\.[0-9]+)?)h)?"
    r"(?:(?P<m>[0-9]+(?:\.[0-9]+)?)m)?"
    r"(?:(?P<s>[0-9]+(?:\.[0-9]+)?)s)?"
)


def _was_typed(info: ValidationInfo) -> bool:
    return info.field_name in (info.context or {}).get("overrides", ())


def _whole(value: object, info: ValidationInfo) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and _was_typed(info) and _DIGITS.fullmatch(value):
        return int(value)
    raise ValueError("a whole number is needed, in digits")


def _number(value: object, info: ValidationInfo) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
    elif isinstance(value, str) and _was_typed(info) and _DECIMAL.fullmatch(value):
        return float(value)
    raise ValueError("a number is needed")


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        if math.isfinite(value):
            return float(value)
    elif isinstance(value, str):
        if _DECIMAL.fullmatch(value):
            return float(value)
        parts = _DURATION.fullmatch(value)
        if value and parts:
            hours, minutes, seconds = (float(part or 0) for part in parts.groups())
            return hours * 3600 + minutes * 60 + seconds
    raise ValueError("a time is needed: seconds, or hours, minutes and seconds")


def _name(value: object) -> str:
    if isinstance(value, str) and value.strip() and "\0" not in value:
        return value
    raise ValueError("a text that is not empty is needed")


def _variable(value: str) -> str:
    if _VARIABLE.fullmatch(value):
        return value
    # the value may be a key, so it is not repeated by this text
    raise ValueError(
        "the name of an environment variable is needed, never the key itself"
    )


_ANY_FAILURE = ("AssertionError", "Exception", "BaseException", "Failed")


def _exception(value: str) -> str:
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError("the name of an exception type is needed")
    if value.removeprefix("builtins.") in _ANY_FAILURE:
        raise ValueError("a wrong answer raises that too, so no candidate would fail")
    return value


def check_prices(
    *, input_usd: float | None, cached_usd: float | None, output_usd: float | None
) -> None:
    """Prices of a model are all there or none is; only the cached one may be missing.

    Raises:
        ValueError: one is missing.
    """
    if (input_usd is None) is not (output_usd is None):
        raise ValueError("input_usd and output_usd go together: write both")
    if cached_usd is not None and input_usd is None:
        raise ValueError("cached_usd needs input_usd and output_usd")


def as_list(value: object) -> object:
    """Take a list for a tuple, and never a text for a list of letters.

    Raises:
        ValueError: it is no list.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError("a list is needed, in brackets")
    return tuple(value)


def as_tables(value: object) -> object:
    """Take a list of tables.

    Raises:
        ValueError: it is no list.
    """
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError("tables are needed, each with a heading in double brackets")
    return tuple(value)


def as_text_or_list(value: object) -> object:
    """Take one text, or a list.

    Raises:
        ValueError: it is neither.
    """
    return value if isinstance(value, str) else as_list(value)


def _amount(value: object, info: ValidationInfo) -> int | float:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return _number(value, info)


Text = Annotated[str, BeforeValidator(_name)]
Variable = Annotated[Text, AfterValidator(_variable)]
ErrorName = Annotated[Text, AfterValidator(_exception)]
Count = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
Positive = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
Number = Annotated[float, BeforeValidator(_number)]
Amount = Annotated[int | float, BeforeValidator(_amount)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(ge=0)]
TextOrTexts = Annotated[Text | tuple[Text, ...], BeforeValidator(as_text_or_list)]
Texts = Annotated[tuple[Text, ...], BeforeValidator(as_list)]
ErrorNames = Annotated[tuple[ErrorName, ...], BeforeValidator(as_list)]
Choice = bool | int | float | str


def explain(
    detail: ErrorDetails,
    settings: type[BaseModel],
    source: str,
    given: Mapping[str, object],
) -> str:
    """One problem as: where, what, why, what to type."""
    model, field, spot = _follow(settings, detail["loc"])
    root = str(detail["loc"][0]) if detail["loc"] else ""
    typed = root in given
    where = f"the command line: {option_name(root)}" if typed else f"{source}: {spot}"
    if detail["type"] == "extra_forbidden":
        return _unknown(detail, model, source, spot, typed)
    if detail["type"] == "missing":
        return f"{where} is missing. Write {field} = {_example(model, field)}."
    reason = detail["msg"].removeprefix("Value error, ")
    reason = reason.replace("Input should be", "it should be")
    better = _nearest(model, field, detail["input"]) or _example(model, field)
    if typed:
        told = better.strip('"')
        hint = f"Type {option_name(root)}={told}"
    elif field in model.model_fields and model.model_fields[field].examples:
        hint = f"Write {field} = {better}"
    else:
        hint = f"Correct it in {source}"
    if isinstance(detail["input"], dict) and detail["type"] == "value_error":
        return f"{where}: {reason}."
    # somebody may have written a key where the name of its variable belongs
    value = "not usable" if field.endswith("_env") else short(detail["input"])
    return f"{where} is {value}: {reason}. {hint}."


def _unknown(
    detail: ErrorDetails, model: type[BaseModel], source: str, spot: str, typed: bool
) -> str:
    name = str(detail["loc"][-1])
    known = [*model.model_fields]
    if "targets" in known:  # its name in a file is "target"
        known.remove("targets")
    bare = name.replace("-", "_").removeprefix("__").removeprefix("evo_")
    close = difflib.get_close_matches(bare, known, 1, 0.5)
    hint = f"Did you mean {close[0]!r}?" if close else "Remove it."
    if not close and len(known) < 12:
        hint = f"Known here: {', '.join(known)}."
    if typed:
        return f"the command line: unknown setting {name!r}. {hint}"
    return f"{source}: unknown key {spot!r}. {hint}"


def _follow(
    model: type[BaseModel], loc: Sequence[int | str]
) -> tuple[type[BaseModel], str, str]:
    """The model and field that a location names, and the location as people write."""
    field, spot = "", ""
    for part in loc:
        if isinstance(part, int):
            spot += f"[{part}]"
            continue
        if field in model.model_fields:
            inner = _inner_model(model.model_fields[field].annotation)
            if inner is None:
                break  # what follows names a branch of a union
            model = inner
        field = part
        spot += f".{'target' if part == 'targets' else part}"
    return model, field, spot.removeprefix(".") or "settings"


def _inner_model(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    found = (_inner_model(argument) for argument in get_args(annotation))
    return next((model for model in found if model is not None), None)


def _nearest(model: type[BaseModel], field: str, value: object) -> str | None:
    """The permitted value that a mistyped one was probably meant to be."""
    if field not in model.model_fields or not isinstance(value, str):
        return None
    permitted = _permitted(model.model_fields[field].annotation)
    close = difflib.get_close_matches(value.strip().lower(), permitted, 1, 0.55)
    return json.dumps(close[0]) if close else None


def _permitted(annotation: object) -> list[str]:
    """The texts that a field takes, where it takes only some."""
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return [str(member.value) for member in annotation]
    if get_origin(annotation) is Literal:
        return [value for value in get_args(annotation) if isinstance(value, str)]
    found = (_permitted(argument) for argument in get_args(annotation))
    return [text for texts in found for text in texts]


def _example(model: type[BaseModel], field: str) -> str:
    examples = model.model_fields[field].examples
    return json.dumps(examples[0]) if examples else "..."


def option_name(setting: str) -> str:
    """The command-line option of a setting."""
    prefix = "" if setting.startswith("budget_") else "evo-"
    return f"--{prefix}{setting.replace('_', '-')}"


def short(value: object) -> str:
    """A value as it can stand in a message."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
