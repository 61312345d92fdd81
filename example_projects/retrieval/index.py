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

KEPT = 96  # stored postings; the oldest go first
_ARRAYS = ("terms", "starts", "passages", "counts", "lengths")


@dataclass(frozen=True, slots=True)
class Postings:
    """Which passages contain which term how often, term by term."""

    terms: NDArray[np.str_]  # sorted
    starts: NDArray[np.int32]  # of each term's entries, and the end of the last
    passages: NDArray[np.int32]
    counts: NDArray[np.int32]
    lengths: NDArray[np.int32]  # tokens of each passage

    @classmethod
    def build(cls, documents: Iterable[list[str]]) -> Postings:
        """Count the tokens of each passage."""
        found: dict[str, list[tuple[int, int]]] = {}
        lengths: list[int] = []
        for number, tokens in enumerate(documents):
            lengths.append(len(tokens))
            seen: dict[str, int] = {}
            for token in tokens:
                seen[token] = seen.get(token, 0) + 1
            for token, count in seen.items():
                found.setdefault(token, []).append((number, count))
        terms = sorted(found)
        sizes = [len(found[term]) for term in terms]
        pairs = np.array(
            [pair for term in terms for pair in found[term]], dtype=np.int32
        ).reshape(-1, 2)
        return cls(
            terms=np.array(terms, dtype=np.str_),
            starts=np.cumsum([0, *sizes], dtype=np.int32),
            passages=np.ascontiguousarray(pairs[:, 0]),
            counts=np.ascontiguousarray(pairs[:, 1]),
            lengths=np.array(lengths, dtype=np.int32),
        )

    @classmethod
    def load(cls, directory: Path) -> Postings:
        """Map stored postings into memory."""
        arrays = {
            name: np.load(directory / f"{name}.npy", mmap_mode="r") for name in _ARRAYS
        }
        return cls(**arrays)

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

    def entries(self, term: str) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Passages that contain a term, and how often each."""
        row = self.row(term)
        if row is None:
            return self.passages[:0], self.counts[:0]
        part = slice(self.starts[row], self.starts[row + 1])
        return self.passages[part], self.counts[part]

    def frequency(self, term: str) -> int:
        """In how many passages a term is."""
        return len(self.entries(term)[0])

    def terms_of(self, passage: int) -> list[tuple[str, int]]:
        """Terms of one passage and how often each is there."""
        places = np.flatnonzero(self.passages == passage)
        rows = np.searchsorted(self.starts, places, side="right") - 1
        return [
            (str(self.terms[row]), int(self.counts[place]))
            for row, place in zip(rows, places, strict=True)
        ]

    def row(self, term: str) -> int | None:
        """Where a term is, or None where it is not in the corpus."""
        row = int(np.searchsorted(self.terms, term))
        found = row < len(self.terms) and self.terms[row] == term
        return row if found else None


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
            tf_array=postings.counts,
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

    def score_weighted(self, weights: Mapping[str, float]) -> Scores:
        """Score all passages for tokens that count more or less than once."""
        total = np.zeros(self.scores["num_docs"])
        for token, weight in weights.items():
            if weight:
                total += weight * self.score([token])
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

    def __init__(self, analysers: Mapping[str, Analyser], key: str) -> None:
        self._analysers = analysers
        self._key = key
        self._postings: dict[tuple[str, str], Postings] = {}
        self._weights: dict[str, BM25] = {}

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Id of each passage."""
        return tuple(passage.id for passage in load_passages())

    @cached_property
    def kinds(self) -> NDArray[np.str_]:
        """Kind of each passage: module, class, function, method or topic."""
        return np.array([passage.kind for passage in load_passages()])

    @cached_property
    def dots(self) -> NDArray[np.int32]:
        """How many dots the name of each passage has."""
        return np.array([name.count(".") for name in self.ids], dtype=np.int32)

    def __len__(self) -> int:
        return len(self.ids)

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
        key = sha256(f"{self._key} {field} {analyser}".encode()).hexdigest()[:24]
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
