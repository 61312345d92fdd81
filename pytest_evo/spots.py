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
        return self.find_in(Reading(text))

    def find_in(self, reading: Reading) -> list[Span]:
        """As :meth:`find`, in a text whose words are known."""
        heads = self._heads
        begins = [at for at, head in enumerate(reading.heads) if head in heads]
        stretches: list[list[int]] = []
        until = 0  # words before this one are covered already
        for at in begins:
            size = self._longest(reading, at)
            end = at + size
            if not size or end <= until:
                continue
            if stretches and at < until:
                stretches[-1][1] = end
            else:
                stretches.append([at, end])
            until = end
        if not stretches:
            return []
        places = reading.places()
        return [Span(places[at][0], places[end - 1][1]) for at, end in stretches]

    def _longest(self, reading: Reading, at: int) -> int:
        found = reading.words
        for size in self._heads[reading.heads[at]]:
            if at + size <= len(found):
                joined = " ".join(found[at : at + size])
                if (size, _hash(joined)) in self._hashes:
                    return size
        return 0

    def hide(self, text: str, mark: str) -> str:
        """The text with ``mark`` in the place of each stretch that is found."""
        return hide(text, (self, mark))


class Reading:
    """A text with its words, in which several sets of spots are looked for."""

    def __init__(self, text: str) -> None:
        self.text = text
        found = _TOKEN.findall(text)
        self.words = [word.casefold() for word in found if word[0] != "\\"]
        self.heads = list(map(_head, self.words))

    def places(self) -> list[tuple[int, int]]:
        """Where each word begins and ends."""
        text = self.text
        return [
            found.span()
            for found in _TOKEN.finditer(text)
            if text[found.start()] != "\\"
        ]


def hide(text: str, *marks: tuple[Spots, str]) -> str:
    """The text with each mark in the place of what its spots find, one by one."""
    reading = None
    for spots, mark in marks:
        if not spots or not text:
            continue
        if reading is None:
            reading = Reading(text)
        spans = spots.find_in(reading)
        if spans:
            text = _marked(text, spans, mark)
            reading = None
    return text


def _marked(text: str, spans: Iterable[Span], mark: str) -> str:
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
