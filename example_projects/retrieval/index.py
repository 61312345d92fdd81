"""Postings of the corpus, kept on disk, and BM25 over them by bm25s.

A new pipeline is tried every few milliseconds, so nothing may be indexed twice: the
postings of a field depend on the tokeniser alone and are stored under a key made of
its source and parameters. BM25 weights depend on more (k1, b, method) but are cheap:
a few array operations over the postings.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from bisect import bisect_left
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import bm25s
import numpy as np

# bm25s computes its weights passage by passage, which takes a second. These are its own
# formulas; the test suite compares the result with what `bm25s.BM25.index` computes.
from bm25s.scoring import _select_idf_scorer
from bm25s.scoring import _select_tfc_scorer
from corpus import cache_directory
from corpus import load_passages
from corpus import Passage
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Analyser = Callable[[list[str]], Iterable[list[str]]]

KEPT = 256  # stored postings, half a megabyte each at most; the oldest go first
_ARRAYS = ("text", "ends", "starts", "passages", "counts", "lengths")


@dataclass(frozen=True, slots=True)
class Postings:
    """Which passages contain which term how often, term by term."""

    text: NDArray[np.uint8]  # all terms in order of their bytes, one after the other
    ends: NDArray[np.int64]  # where each term ends in the text
    starts: NDArray[np.int64]  # of each term's entries, and the end of the last
    passages: NDArray[np.unsignedinteger]
    counts: NDArray[np.unsignedinteger]
    lengths: NDArray[np.int64]  # tokens of each passage

    @classmethod
    def build(cls, documents: Iterable[list[str]]) -> Postings:
        """Count the tokens of each passage."""
        numbers: dict[str, int] = {}
        tokens: list[int] = []
        lengths: list[int] = []
        for document in documents:
            lengths.append(len(document))
            for token in document:
                tokens.append(numbers.setdefault(token, len(numbers)))
        encoded = [token.encode() for token in numbers]
        order = sorted(range(len(encoded)), key=encoded.__getitem__)
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order))
        size = max(1, len(lengths))
        rows = rank[np.array(tokens, dtype=np.int64)]
        pairs = rows * size + np.repeat(np.arange(len(lengths)), lengths)
        pairs, counts = np.unique(pairs, return_counts=True)
        shares = np.bincount(pairs // size, minlength=len(order))
        text = b"".join(encoded[number] for number in order)
        return cls(
            text=np.frombuffer(text, dtype=np.uint8),
            ends=np.cumsum([len(encoded[number]) for number in order], dtype=np.int64),
            starts=np.concatenate(([0], np.cumsum(shares))).astype(np.int64),
            passages=(pairs % size).astype(np.min_scalar_type(size)),
            counts=counts.astype(np.min_scalar_type(int(counts.max(initial=0)))),
            lengths=np.array(lengths, dtype=np.int64),
        )

    @classmethod
    def load(cls, directory: Path) -> Postings:
        """Map stored postings into memory; raises FileNotFoundError."""
        arrays = (np.load(directory / f"{name}.npy", mmap_mode="r") for name in _ARRAYS)
        # as plain arrays: every slice of numpy's memmap class costs microseconds
        return cls(*(array.view(np.ndarray) for array in arrays))

    def store(self, directory: Path) -> None:
        """Write the postings whole or not at all, whoever else writes the same ones."""
        directory.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(dir=directory.parent, prefix=".new-"))
        for name in _ARRAYS:
            np.save(new / f"{name}.npy", getattr(self, name))
        try:
            new.rename(directory)
        except OSError:  # another process was faster, with the same content
            shutil.rmtree(new, ignore_errors=True)

    def term(self, row: int) -> bytes:
        """The term of a row, as bytes."""
        start = self.ends[row - 1] if row else 0
        return self.text[start : self.ends[row]].tobytes()

    def row(self, term: str) -> int | None:
        """Where a term is, or None where it is not in the corpus."""
        wanted = term.encode()
        rows = range(len(self.ends))
        row = bisect_left(rows, wanted, key=self.term)
        return row if row < len(rows) and self.term(row) == wanted else None

    def entries(self, term: str) -> tuple[NDArray[Any], NDArray[Any]]:
        """Passages that contain a term, and how often each."""
        row = self.row(term)
        if row is None:
            return self.passages[:0], self.counts[:0]
        part = slice(self.starts[row], self.starts[row + 1])
        return self.passages[part], self.counts[part]

    def frequency(self, term: str) -> int:
        """In how many passages a term is."""
        return len(self.entries(term)[0])

    def rows_of(self, passage: int) -> tuple[NDArray[np.int64], NDArray[Any]]:
        """Rows of the terms of one passage, and how often it has each."""
        places = np.flatnonzero(self.passages == passage)
        rows = np.searchsorted(self.starts, places, side="right") - 1
        return rows, self.counts[places]


class BM25(bm25s.BM25):
    """bm25s over stored postings: same formulas, same attributes, no passage loop."""

    def __init__(self, postings: Postings, **parameters: Any) -> None:
        super().__init__(**parameters)
        self.postings = postings
        number = len(postings.lengths)
        average = postings.lengths.mean()
        shares = np.diff(postings.starts)
        values, inverse = np.unique(shares, return_inverse=True)
        score_idf = _select_idf_scorer(self.idf_method)
        score_tf = _select_tfc_scorer(self.method)
        constants = {"l_avg": average, "k1": self.k1, "b": self.b, "delta": self.delta}
        idf = np.array([score_idf(value, N=number) for value in values])[inverse]
        absent = np.zeros(len(shares))
        if self.method in self.methods_requiring_nonoccurrence:
            absent = idf * score_tf(tf_array=0, l_d=average, **constants)
        weights = score_tf(
            tf_array=postings.counts.astype(np.float64),
            l_d=postings.lengths[postings.passages],
            **constants,
        )
        terms = np.repeat(np.arange(len(shares)), shares)
        self.scores = {
            "data": (weights * idf[terms] - absent[terms]).astype(self.dtype),
            "indices": postings.passages,
            "indptr": postings.starts,
            "num_docs": number,
        }
        self.nonoccurrence_array = absent.astype(self.dtype)

    def score(self, tokens: list[str]) -> Scores:
        """Score all passages for a list of tokens; a repeated token counts again."""
        rows = [self.postings.row(token) for token in tokens]
        known = [row for row in rows if row is not None]
        scores: Scores = self.get_scores_from_ids(known).astype(np.float64)
        return scores

    def score_rows(
        self, rows: NDArray[np.int64], weights: NDArray[np.float64]
    ) -> Scores:
        """Score all passages for terms that count more or less than once."""
        total = np.zeros(self.scores["num_docs"])
        for row, weight in zip(rows.tolist(), weights.tolist(), strict=True):
            total += weight * self.get_scores_from_ids([row])
        return total


FIELDS: dict[str, Callable[[Passage], str]] = {
    "passage": lambda passage: f"{passage.id}\n{passage.text}",
    "title": lambda passage: passage.id,
    "summary": lambda passage: passage.text.split("\n\n")[0],
    "arguments": lambda passage: passage.arguments,
    "parent": lambda passage: _parent_summary(passage),
    "opening": lambda passage: f"{passage.id}\n{passage.text[:400]}",
}


class Index:
    """The corpus as one tokeniser sees it."""

    def __init__(
        self, analysers: Mapping[str, Analyser], keys: Mapping[str, str]
    ) -> None:
        """Take functions that split texts, and what the result of each depends on."""
        self._analysers = analysers
        self._keys = keys
        self._postings: dict[tuple[str, str], Postings] = {}
        self._weights: dict[str, BM25] = {}

    @cached_property
    def kinds(self) -> NDArray[np.str_]:
        """Kind of each passage: module, class, function, method or topic."""
        return np.array([passage.kind for passage in load_passages()])

    @cached_property
    def dots(self) -> NDArray[np.int64]:
        """How many dots the name of each passage has."""
        return np.array([passage.id.count(".") for passage in load_passages()])

    def __len__(self) -> int:
        return len(load_passages())

    def postings(self, field: str, analyser: str = "tokens") -> Postings:
        """Postings of a field, from memory, from disk, or counted now."""
        name = (field, analyser)
        if name not in self._postings:
            self._postings[name] = self._load(field, analyser)
        return self._postings[name]

    def bm25(
        self, field: str, analyser: str = "tokens", **parameters: float | str
    ) -> BM25:
        """BM25 over a field; parameters are those of `bm25s.BM25`."""
        name = json.dumps([field, analyser, parameters], sort_keys=True)
        if name not in self._weights:
            self._weights[name] = BM25(self.postings(field, analyser), **parameters)
        return self._weights[name]

    def _load(self, field: str, analyser: str) -> Postings:
        key = sha256(f"{self._keys[analyser]} {field}".encode()).hexdigest()[:24]
        directory = cache_directory() / "postings" / key
        try:
            return Postings.load(directory)
        except FileNotFoundError:
            texts = [FIELDS[field](passage) for passage in load_passages()]
            postings = Postings.build(self._analysers[analyser](texts))
            postings.store(directory)
            _drop_oldest(directory.parent)
            return postings


def _parent_summary(passage: Passage) -> str:
    parent = _by_id().get(passage.parent)
    return parent.text.split("\n\n")[0] if parent else ""


@cache
def _by_id() -> Mapping[str, Passage]:
    return {passage.id: passage for passage in load_passages()}


def _drop_oldest(directory: Path) -> None:
    def age(path: Path) -> float:
        try:
            return path.stat().st_mtime
        except FileNotFoundError:  # dropped by another process
            return 0.0

    stored = sorted(directory.iterdir(), key=age)
    for path in stored[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
