"""What all closed iterations tried, in little memory however long a run becomes."""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator
from collections.abc import Sequence
from typing import overload

from pytest_evo.models import Attempt
from pytest_evo.models import candidate_id
from pytest_evo.models import CandidateId
from pytest_evo.models import TreeHash

PACKED_TOGETHER = 128
_DIGITS = 30  # of a tree's hash: no two trees share 120 bits by chance
_STEPS = 1 << 20


class History:
    """Attempts in the order of their commits; it only grows.

    The newest are kept as they are. Older ones, which are much alike, are packed by the
    hundred. Proposers read on other threads, so what they read is replaced as a whole.
    """

    def __init__(self) -> None:
        self._packed: list[bytes] = []
        self._tail: tuple[int, list[Attempt]] = (0, [])  # the first one's number
        self._opened: tuple[int, Sequence[Attempt]] = (-1, ())

    def __len__(self) -> int:
        first, recent = self._tail
        return first + len(recent)

    def append(self, attempt: Attempt) -> None:
        """Add the newest."""
        first, recent = self._tail
        recent.append(attempt)
        if len(recent) == 2 * PACKED_TOGETHER:
            old, kept = recent[:PACKED_TOGETHER], recent[PACKED_TOGETHER:]
            self._packed.append(zlib.compress(pickle.dumps(old), 1))
            self._tail = (first + PACKED_TOGETHER, kept)

    def get(self, number: int) -> Attempt:
        """The attempt with this number, counted from 0."""
        first, recent = self._tail
        if number >= first:
            return recent[number - first]
        pack, at = divmod(number, PACKED_TOGETHER)
        opened = self._opened
        if opened[0] != pack:
            data = zlib.decompress(self._packed[pack])
            opened = self._opened = (pack, pickle.loads(data))
        return opened[1][at]


class Prefix(Sequence[Attempt]):
    """The attempts that a history has now; later ones are not seen."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._length = len(history)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Attempt: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Attempt]: ...
    def __getitem__(self, index: int | slice) -> Attempt | Sequence[Attempt]:
        """Item or slice of the prefix."""
        if isinstance(index, slice):
            numbers = range(*index.indices(self._length))
            return [self._history.get(number) for number in numbers]
        if not -self._length <= index < self._length:
            raise IndexError(index)
        return self._history.get(index % self._length)

    def __iter__(self) -> Iterator[Attempt]:
        return map(self._history.get, range(self._length))

    def __reversed__(self) -> Iterator[Attempt]:
        return map(self._history.get, range(self._length - 1, -1, -1))


class Tried:
    """Which files were tried, and by which candidate first; some 150 bytes a tree."""

    def __init__(self) -> None:
        self._first: dict[int, int] = {}

    def add(self, tree: TreeHash, iteration: int, step: int) -> None:
        """Note a candidate; the first one with these files stays."""
        self._first.setdefault(int(tree[:_DIGITS], 16), iteration * _STEPS + step)

    def first(self, tree: TreeHash, commit: int) -> CandidateId | None:
        """The candidate of an iteration up to ``commit`` that had these files first."""
        found = self._first.get(int(tree[:_DIGITS], 16))
        if found is None:
            return None
        iteration, step = divmod(found, _STEPS)
        return candidate_id(iteration, step) if iteration <= commit else None
