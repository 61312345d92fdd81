"""Texts that are known by hashes only, and found again inside other texts.

What a proposer must not read has to be recognised without being carried along. A value
becomes a few *spots*: hashes of its words, at most eight in a row. Words are compared
without case and without what stands between them, so a value is found in a ``repr``, in
JSON and across line ends too.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import NamedTuple

LONGEST = 8
"""Words in a row that one spot covers; a longer text has one from each word on."""
LEAST = 3
"""Characters of a value that can be found; a shorter one would be found everywhere."""
LONG = 20
"""Characters from which on a spot counts as long."""
SIZE = 18
"""Characters of one spot: words, long or not, its first word, all of its words."""
_MOST = 300  # spots of one text
_LEAST_LINE = 12
_TOKEN = re.compile(r"\\[nrt]|\w+")  # an escaped line end is no part of a word


class Word(NamedTuple):
    """One word of a text, in lower case, and where it stands."""

    start: int
    end: int
    text: str


class Span(NamedTuple):
    """A stretch of a text."""

    start: int
    end: int


def words(text: str) -> list[Word]:
    """The words of a text; escaped line ends are none."""
    return [
        Word(found.start(), found.end(), found[0].casefold())
        for found in _TOKEN.finditer(text)
        if found[0][0] != "\\"
    ]


def spots_of(text: str) -> Iterator[str]:
    """The spots of one value: of all of it, and of each of its longer lines."""
    yield from _spots(text, LEAST)
    lines = text.splitlines()
    if len(lines) > 1:
        for line in lines[:_MOST]:
            yield from _spots(line.strip(), _LEAST_LINE)


def _spots(text: str, least: int) -> Iterator[str]:
    if len(text.strip()) < least:
        return
    found = [word.text for word in words(text[: 40 * _MOST])]
    if not found:
        return
    for start in range(min(_MOST, max(1, len(found) - LONGEST + 1))):
        some = found[start : start + LONGEST]
        joined = " ".join(some)
        mark = "L" if len(joined) >= LONG else "-"
        yield f"{len(some)}{mark}{_head(some[0])}{_hash(joined)}"


def windows(text: str) -> Iterator[str]:
    """The spots of every stretch of a text, up to the longest."""
    found = [word.text for word in words(text)]
    for start in range(len(found)):
        for end in range(start + 1, min(len(found), start + LONGEST) + 1):
            joined = " ".join(found[start:end])
            mark = "L" if len(joined) >= LONG else "-"
            yield f"{end - start}{mark}{_head(found[start])}{_hash(joined)}"


def split(joined: str) -> Iterator[str]:
    """Spots that were written one after the other."""
    for at in range(0, len(joined), SIZE):
        yield joined[at : at + SIZE]


def is_long(spot: str) -> bool:
    """Whether its words have at least :data:`LONG` characters."""
    return spot[1] == "L"


def length(spot: str) -> int:
    """How many words it covers."""
    return int(spot[0])


class Spots:
    """A set of spots that is looked for in texts."""

    def __init__(self, spots: Iterable[str]) -> None:
        self._hashes: set[tuple[int, str]] = set()
        heads: dict[str, set[int]] = {}
        for spot in spots:
            size, head = length(spot), spot[2:6]
            heads.setdefault(head, set()).add(size)
            self._hashes.add((size, spot[6:]))
        self._heads = {
            head: sorted(sizes, reverse=True) for head, sizes in heads.items()
        }

    def __bool__(self) -> bool:
        """Whether there is anything to be found."""
        return bool(self._hashes)

    def find(self, text: str) -> list[Span]:
        """Where spots stand; those that overlap are one stretch."""
        if not self._hashes or not text:
            return []
        found = words(text)
        spans: list[Span] = []
        until = 0  # words before this one are covered already
        for at, word in enumerate(found):
            size = self._longest(found, at)
            end = at + size
            if not size or end <= until:
                continue
            if spans and at < until:
                spans[-1] = Span(spans[-1].start, found[end - 1].end)
            else:
                spans.append(Span(word.start, found[end - 1].end))
            until = end
        return spans

    def _longest(self, found: Sequence[Word], at: int) -> int:
        for size in self._heads.get(_head(found[at].text), ()):
            if at + size <= len(found):
                joined = " ".join(word.text for word in found[at : at + size])
                if (size, _hash(joined)) in self._hashes:
                    return size
        return 0

    def hide(self, text: str, mark: str) -> str:
        """The text with ``mark`` in the place of each stretch that is found."""
        spans = self.find(text)
        if not spans:
            return text
        parts: list[str] = []
        done = 0
        for span in spans:
            parts += [text[done : span.start], mark]
            done = span.end
        return "".join([*parts, text[done:]])


def without(spots: Iterable[str], others: Collection[str]) -> Iterator[str]:
    """Spots that are not among others."""
    return (spot for spot in spots if spot not in others)


@lru_cache(maxsize=50_000)
def _head(word: str) -> str:
    return _digest(word, 2)


def _hash(joined: str) -> str:
    return _digest(joined, 6)


def _digest(text: str, size: int) -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()
