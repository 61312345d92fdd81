"""What a test says of itself while it runs: scores, trace steps, usage."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import Any
from typing import TYPE_CHECKING

import pytest

from pytest_evo.plugin.declared import ARTIFACT_VARIABLE
from pytest_evo.plugin.declared import project_artifact
from pytest_evo.plugin.plain import cut
from pytest_evo.plugin.plain import plain

if TYPE_CHECKING:
    from pytest_evo.plugin.modelcalls import ModelCall

SCORE = "score"
"""The name of the score that is given without one."""
_ROUNDING = 1e-9  # how far outside [0, 1] a sum of floats may land
_MOST_STEPS = 1_000


@dataclass
class Current:
    """Which rollout this process runs; absent in a plain run."""

    artifact: Path
    case: str = ""
    repeat: int = 0


@dataclass
class Notes:
    """What one run of one test noted."""

    scores: dict[str, tuple[float, bool]] = field(default_factory=dict)
    steps: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    calls: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    usd: float | None = 0.0
    model_calls: list[ModelCall] = field(default_factory=list)  # not those above
    on_spend: Callable[[], None] = lambda: None  # told whenever more is known

    def step(self, name: str, data: dict[str, Any]) -> int | None:
        """Add a step; its number, or None where there are too many."""
        if len(self.steps) < _MOST_STEPS:
            self.steps.append((name, data))
            return len(self.steps) - 1
        if len(self.steps) == _MOST_STEPS:
            self.steps.append((f"only the first {_MOST_STEPS} steps were kept", {}))
        return None


CURRENT = pytest.StashKey[Current]()
NOTES = pytest.StashKey[Notes]()


def artifact_path(config: pytest.Config) -> Path:
    """The candidate's directory under a rollout, else the project's own artifact.

    Raises:
        pytest.UsageError: none is declared, or it is no directory.
    """
    current = config.stash.get(CURRENT, None)
    if current is not None:
        return current.artifact
    inherited = os.environ.get(ARTIFACT_VARIABLE)
    return Path(inherited) if inherited else project_artifact(config)


def notes_of(item: pytest.Item) -> Notes:
    """The notes of the run that is going on."""
    return item.stash.setdefault(NOTES, Notes())


def _set_property(item: pytest.Item, name: str, value: object) -> None:
    # record_property warns under junit_family=xunit2; its list takes values as well
    kept = [pair for pair in item.user_properties if pair[0] != name]
    item.user_properties[:] = [*kept, (name, value)]


class Score:
    """The ``evo_score`` fixture: partial credit, named metrics."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def __repr__(self) -> str:
        return "evo_score"  # tracebacks show it

    def __call__(
        self, name: object, value: object = None, /, *, audit: bool = False
    ) -> None:
        """Record ``evo_score(0.7)`` or ``evo_score("recall", 0.4)``.

        Args:
            name: the metric's name, or the value if it is the only argument.
            value: a number from 0 to 1; a name given twice keeps the last value.
            audit: record the metric, and never select on it.

        Raises:
            TypeError: the name is no text, or the value no number.
            ValueError: the value is NaN or outside [0, 1], or the name is unusable.
        """
        if value is None and not isinstance(name, str):
            if audit:
                raise ValueError(
                    "evo_score(..., audit=True) needs a name: type "
                    'evo_score("name", value, audit=True)'
                )
            name, value = SCORE, name
        title = _metric_name(name)
        number = checked_score(title, value)
        notes_of(self._item).scores[title] = (number, bool(audit))
        label = "evo.audit" if audit else "evo.score"
        suffix = "" if title == SCORE and not audit else f".{title}"
        _set_property(self._item, label + suffix, number)


def _metric_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(
            f"evo_score: the name of a metric is a text, not {plain(name)!r}; type "
            'evo_score(value) or evo_score("name", value)'
        )
    if not name.strip() or len(name) > 200 or not name.isprintable():
        raise ValueError(
            f"evo_score: {cut(name, 80)!r} is no name for a metric; type 1 to 200 "
            "printable characters"
        )
    return str.__str__(name)


def checked_score(name: str, value: object) -> float:
    """A number in [0, 1]; rounding errors of sums are taken off.

    Raises:
        TypeError: the value is no number.
        ValueError: the value is NaN or outside [0, 1].
    """
    if value is None or isinstance(value, (str, bytes, bytearray)):
        raise TypeError(_no_score(name, value, "is no number"))
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(_no_score(name, value, "is no number")) from error
    if math.isnan(number) or not -_ROUNDING <= number <= 1 + _ROUNDING:
        example = ", like evo_score(value / 100)"
        raise ValueError(_no_score(name, value, "is outside [0, 1]") + example)
    return min(1.0, max(0.0, number))


def refused_as_score(error: BaseException) -> bool:
    """Whether ``evo_score`` itself raised this, over what it was given."""
    code = None
    traceback = error.__traceback__
    while traceback is not None:
        code = traceback.tb_frame.f_code
        traceback = traceback.tb_next
    return code in _JUDGES_OF_SCORES


def _no_score(name: str, value: object, why: str) -> str:
    return (
        f"{cut(repr(plain(value)), 200)} given as score for {name!r} {why}; scale it "
        "to a number from 0 (worst) to 1 (best)"
    )


_JUDGES_OF_SCORES = frozenset(
    (Score.__call__.__code__, _metric_name.__code__, checked_score.__code__)
)


class Trace:
    """The ``evo_trace`` fixture: steps that diagnoses can read."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def __repr__(self) -> str:
        return "evo_trace"  # tracebacks show it

    def __call__(self, step: str, /, **data: object) -> None:
        """Record one step; values that are no plain data are recorded as their repr."""
        notes = notes_of(self._item)
        if len(notes.steps) <= _MOST_STEPS:
            values = {name: plain(value) for name, value in data.items()}
            notes.step(cut(str(step), 1_000), values)


class UsageRecorder:
    """The ``evo_usage`` fixture: spend of the system under test."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item

    def __repr__(self) -> str:
        return "evo_usage"  # tracebacks show it

    def __call__(
        self,
        *,
        tokens: int | None = None,
        usd: float | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cached_tokens: int = 0,
        calls: int = 1,
    ) -> None:
        """Add what calls of models cost.

        Args:
            tokens: all tokens, where input and output are not known apart.
            usd: the price; tokens without a price make the test's price unknown.
            input_tokens: tokens sent, cached ones included.
            output_tokens: tokens received.
            cached_tokens: the part of the input that was read from a cache.
            calls: how many calls this adds up.

        Raises:
            TypeError: a value is no number.
            ValueError: a value is negative or not finite, or ``tokens`` is smaller
                than input and output together.
        """
        sent = _count("input_tokens", input_tokens)
        received = _count("output_tokens", output_tokens)
        if tokens is not None:
            rest = _count("tokens", tokens) - sent - received
            if rest < 0:
                raise ValueError(
                    f"evo_usage: tokens={tokens} is less than input_tokens={sent} and "
                    f"output_tokens={received} together; leave tokens out"
                )
            sent += rest
        price = None if usd is None else _price(usd)
        notes = notes_of(self._item)
        notes.calls += _count("calls", calls)
        notes.input_tokens += sent
        notes.output_tokens += received
        notes.cached_tokens += _count("cached_tokens", cached_tokens)
        if price is None and sent + received:
            notes.usd = None
        elif notes.usd is not None:
            notes.usd += price or 0.0
        _set_property(
            self._item, "evo.tokens", notes.input_tokens + notes.output_tokens
        )
        if notes.usd is not None:
            _set_property(self._item, "evo.cost.usd", notes.usd)
        notes.on_spend()


def _count(name: str, value: object) -> int:
    if value is None:
        return 0
    number = plain(value)
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"evo_usage: {name}={number!r} is no whole number")
    if number < 0:
        raise ValueError(f"evo_usage: {name}={number} is negative")
    return number


def _price(value: object) -> float:
    number = plain(value)
    if not isinstance(number, (int, float)) or isinstance(number, bool):
        raise TypeError(f"evo_usage: usd={number!r} is no finite number")
    if number < 0:
        raise ValueError(f"evo_usage: usd={number} is negative")
    return float(number)
