"""The space that declared knobs span: distances, steps and rounding.

Every knob has a scale from 0 to 1: linear or logarithmic for numbers, places in a row
for booleans and choices. Values that come out of it are rounded to what a person would
write, so the space is finite and a value met again is recognised.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from math import floor
from math import isfinite
from math import log
from math import log10
from random import Random
from typing import TypeAlias

from pytest_evo.models import Json
from pytest_evo.models import Knob

Value: TypeAlias = "bool | int | float | str"
Values: TypeAlias = Mapping[str, Value]

_LEVELS = 200  # a float without a step is worth telling apart in about so many places
_DIGITS = 2  # significant ones, on a logarithmic scale


def knob_name(knob: Knob) -> str:
    """What a knob is called in the data of a candidate: ``file:key``."""
    return f"{knob.file}:{knob.key}"


@dataclass(frozen=True, slots=True)
class Axis:
    """One knob as a scale from 0 to 1."""

    knob: Knob

    @property
    def name(self) -> str:
        """``file:key``."""
        return knob_name(self.knob)

    @property
    def numeric(self) -> bool:
        """Whether the values have an order and distances."""
        return self.knob.type in ("float", "int")

    @property
    def options(self) -> tuple[Value, ...]:
        """The values of a knob that is not numeric."""
        return (False, True) if self.knob.type == "bool" else self.knob.choices

    def is_option(self, value: Json, option: Json) -> bool:
        """Whether two choices are the same; True, 1 and 1.0 are not."""
        return _same(value, option)

    @property
    def low(self) -> float:
        """The lower end of a numeric knob."""
        return float(self.knob.low or 0.0)

    @property
    def high(self) -> float:
        """The upper end of a numeric knob; the last full step."""
        high = float(0.0 if self.knob.high is None else self.knob.high)
        step = self._step
        if not step:
            return high
        # a hair more, so that 0.3 is three steps of 0.1
        return self.low + floor((high - self.low) / step + 1e-9) * step

    @property
    def _step(self) -> float:
        if self.knob.step:
            return float(self.knob.step)
        return 1.0 if self.knob.type == "int" and not self.knob.log else 0.0

    def knows(self, value: Json) -> bool:
        """Whether a value has a place on the scale."""
        if not self.numeric:
            return any(_same(value, option) for option in self.options)
        return (
            isinstance(value, int | float)
            and not isinstance(value, bool)
            and isfinite(value)
        )

    def place(self, value: Value) -> float:
        """Where a value is on the scale; outside the range it is at an end."""
        if not self.numeric:
            at = next(
                (i for i, option in enumerate(self.options) if _same(value, option)), 0
            )
            return at / max(1, len(self.options) - 1)
        if not self.knows(value) or self.high <= self.low:
            return 0.0
        number = min(max(float(value), self.low), self.high)
        if self.knob.log:
            return log(number / self.low) / log(self.high / self.low)
        return (number - self.low) / (self.high - self.low)

    def value(self, place: float) -> Value:
        """The writable value nearest to a place; outside 0 to 1 it is an end."""
        place = min(max(place, 0.0), 1.0)
        if not self.numeric:
            return self.options[round(place * (len(self.options) - 1))]
        if self.knob.log:
            number = self.low * exp(place * log(self.high / self.low))
        else:
            number = self.low + place * (self.high - self.low)
        return self.rounded(number)

    def rounded(self, number: float) -> Value:
        """A number of the scale as a person would write it, within the range."""
        number = min(max(number, self.low), self.high)
        if self._step:
            number = self.low + round((number - self.low) / self._step) * self._step
        if self.knob.type == "int":
            return int(min(max(round(number), self.low), self.high))
        digits = self._decimals(number)
        return min(max(round(number, digits), self.low), self.high)

    def _decimals(self, number: float) -> int:
        if self._step:
            return 10  # only to take off what 0.1 + 0.2 leaves behind
        if self.knob.log:
            digits = _DIGITS + (self.high / self.low < 100)
            return digits - 1 - floor(log10(number))
        return max(0, -floor(log10((self.high - self.low) / _LEVELS)))

    @property
    def least(self) -> float:
        """The smallest distance on the scale that changes a value, about."""
        if not self.numeric:
            return 1 / max(1, len(self.options) - 1)
        span = self.high - self.low
        if span <= 0:
            return 1.0
        if self.knob.log:
            steps = span if self.knob.type == "int" else float("inf")
            return max(1 / _LEVELS, 1 / steps)
        return max(1 / _LEVELS, self._step / span)

    @property
    def count(self) -> float:
        """How many values there are, about."""
        if not self.numeric:
            return len(self.options)
        return 1 + round(1 / self.least)

    def anywhere(self, rng: Random) -> Value:
        """Any value, evenly over the scale."""
        if not self.numeric:
            return rng.choice(self.options)
        return self.value(rng.random())

    def another(self, value: Value, rng: Random, spread: float) -> Value:
        """Another value, near by a bell curve of width ``spread`` where there is order.

        The same value comes back only where there is no other one.
        """
        if not self.numeric:
            others = [o for o in self.options if not _same(o, value)]
            return rng.choice(others) if others else value
        here = self.place(value)
        for _ in range(20):
            there = here + rng.gauss(0.0, max(spread, self.least))
            if not 0 <= there <= 1:
                there = rng.random() if rng.random() < 0.3 else min(max(there, 0), 1)
            found = self.value(there)
            if found != value:
                return found
        return self.anywhere(rng)

    def moved(self, value: Value, distance: float) -> Value:
        """A value further along a numeric scale, by at least one step of it."""
        if abs(distance) < self.least:
            distance = self.least if distance > 0 else -self.least
        return self.value(self.place(value) + distance)


def _same(one: object, other: object) -> bool:
    """Equality that keeps True, 1 and 1.0 apart."""
    return type(one) is type(other) and one == other


@dataclass(frozen=True, slots=True)
class KnobSpace:
    """All knobs of a schema."""

    axes: tuple[Axis, ...]

    @classmethod
    def of(cls, knobs: Sequence[Knob]) -> KnobSpace:
        """The space of these knobs."""
        return cls(tuple(Axis(knob) for knob in knobs))

    def key(self, values: Values) -> tuple[str, ...]:
        """What makes two settings the same; numbers by value, 1 and 1.0 alike."""
        return tuple(_key(axis, values[axis.name]) for axis in self.axes)

    @property
    def size(self) -> float:
        """How many settings there are, about."""
        size = 1.0
        for axis in self.axes:
            size *= axis.count
        return size


def _key(axis: Axis, value: Value) -> str:
    return repr(float(value)) if axis.knob.type == "float" else repr(value)
