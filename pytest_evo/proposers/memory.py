"""What closed iterations tell of the knobs, read once and kept.

Every request brings a prefix of the same growing list, and what an attempt tells
depends on the attempts before it alone. So one reading serves prefixes of any length;
where the list is another one, it is read anew.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from threading import Lock
from typing import cast

from pytest_evo.models import Attempt
from pytest_evo.models import CandidateId
from pytest_evo.models import Json
from pytest_evo.models import START
from pytest_evo.proposers.knobspace import KnobSpace
from pytest_evo.proposers.knobspace import Value
from pytest_evo.proposers.surrogate import Observation

KNOBS = "knobs"
"""Key in a candidate's data: every knob's value."""
CHANGED = "changed"
"""Key in a candidate's data: name -> [value of the base, new value]."""
_WINDOW = 200


def known_values(space: KnobSpace, data: Json) -> dict[str, Value] | None:
    """The values of all knobs out of a candidate's data; None if some are missing."""
    if not isinstance(data, dict):
        return None
    values: dict[str, Value] = {}
    for axis in space.axes:
        value = data.get(axis.name)
        if not isinstance(value, bool | int | float | str):
            return None
        values[axis.name] = value
    return values


def known_changes(
    space: KnobSpace, data: Json
) -> dict[str, tuple[Value, Value]] | None:
    """What a candidate changed of its base, by knob; None if that is not known."""
    if not isinstance(data, dict):
        return None
    changes: dict[str, tuple[Value, Value]] = {}
    for axis in space.axes:
        pair = data.get(axis.name)
        if isinstance(pair, list | tuple) and len(pair) == 2:
            changes[axis.name] = (cast(Value, pair[0]), cast(Value, pair[1]))
    return changes


def base_values(space: KnobSpace, data: Mapping[str, Json]) -> dict[str, Value] | None:
    """The values that a candidate was made from; None if they are not known."""
    values = known_values(space, data.get(KNOBS))
    changed = known_changes(space, data.get(CHANGED))
    if values is None or changed is None:
        return None
    return {**values, **{name: old for name, (old, _) in changed.items()}}


@dataclass(frozen=True, slots=True)
class Known:
    """What one prefix of the history tells."""

    observations: Sequence[Observation]
    """The latest ones, 200 to 400 of them where there are so many."""
    first_tried: dict[tuple[str, ...], int] = field(compare=False)
    count: int

    def tried(self, key: tuple[str, ...]) -> bool:
        """Whether an attempt, or the start, had these values."""
        return self.first_tried.get(key, self.count) < self.count


class _Reading:
    """One list of attempts over one space, as far as it was read."""

    def __init__(self, space: KnobSpace) -> None:
        self.space = space
        self.marks = array("q")  # one for each attempt: attempts themselves take room
        self.gains: dict[CandidateId, float] = {START: 0.0}
        self.observations: list[Observation] = []
        self.observed: list[int] = [0]  # observations in the first so many attempts
        self.first_tried: dict[tuple[str, ...], int] = {}

    def is_of(self, space: KnobSpace, attempts: Sequence[Attempt]) -> bool:
        """Whether the attempts are a prefix, or a continuation, of what was read."""
        shared = min(len(attempts), len(self.marks))
        return self.space == space and all(
            _mark(attempts[at]) == self.marks[at]
            for at in {0, shared // 2, shared - 1}
            if 0 <= at < shared
        )

    def read(self, attempts: Sequence[Attempt]) -> None:
        """Take in what is new."""
        for at in range(len(self.marks), len(attempts)):
            attempt = attempts[at]
            # batches differ in difficulty, so scores of two of them do not compare;
            # the gain over the parent on the same cases does
            gain = self.gains.get(attempt.parent, 0.0) + (attempt.gain or 0.0)
            self.gains[attempt.candidate] = gain
            values = known_values(self.space, attempt.data.get(KNOBS))
            if attempt.parent == START and attempt.step == 0:
                # the start is no attempt; the first one that was made from it tells
                # its values, and before that one the start is the only parent
                start = base_values(self.space, attempt.data)
                if start is not None:
                    self.first_tried.setdefault(self.space.key(start), at)
            if values is not None:
                self.first_tried.setdefault(self.space.key(values), at)
                if attempt.gain is not None:
                    self.observations.append(Observation(values, gain))
            self.marks.append(_mark(attempt))
            self.observed.append(len(self.observations))

    def known(self, count: int) -> Known:
        """What the first ``count`` attempts tell."""
        end = self.observed[count]
        # the window moves by leaps, so that what is told to optuna stays a prefix
        start = max(0, end // _WINDOW * _WINDOW - _WINDOW)
        return Known(self.observations[start:end], self.first_tried, count)


def _mark(attempt: Attempt) -> int:
    return hash((attempt.candidate, attempt.tree, attempt.iteration, attempt.gain))


class Memory:
    """Reads histories; safe to be asked from several threads."""

    def __init__(self) -> None:
        self._reading: _Reading | None = None
        self._lock = Lock()

    def recall(self, space: KnobSpace, attempts: Sequence[Attempt]) -> Known:
        """What these attempts tell of a space."""
        with self._lock:
            reading = self._reading
            if reading is None or not reading.is_of(space, attempts):
                reading = self._reading = _Reading(space)
            reading.read(attempts)
            return reading.known(len(attempts))
