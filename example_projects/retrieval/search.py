"""Run the pipeline that a directory describes: `search(directory, text)` -> ids.

The directory holds `pipeline.toml` and `steps/*.py`. `[tokens]` and
`[letters]` configure `steps/tokens.py`; each name in `stages` is a step with a function
`rank(query, index, scores, settings)` that gets the table of its name as settings and
gives new scores back.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

# Stemmer is for the steps: what they import is loaded before a test run forks.
import bm25s
import numpy as np
import Stemmer
from corpus import load_passages
from index import Index
from index import Scores

ANALYSERS = ("tokens", "letters")  # functions of steps/tokens.py
Rank = Callable[["Query", Index, Scores, Mapping[str, Any]], Scores]


@dataclass(frozen=True, slots=True)
class Query:
    """A question, and what the tokeniser of the pipeline makes of it."""

    text: str
    tokens: list[str]
    letters: list[str]


@dataclass(frozen=True)
class Pipeline:
    """A directory, read."""

    index: Index
    analysers: Mapping[str, Callable[[list[str]], list[list[str]]]]
    stages: tuple[tuple[Rank, Mapping[str, Any]], ...]

    def search(self, text: str, limit: int) -> list[str]:
        """Ids of the best passages, best first; passages with score 0 are left out."""
        tokens, letters = (self.analysers[name]([text])[0] for name in ANALYSERS)
        query = Query(text, tokens, letters)
        scores = np.zeros(len(self.index))
        for rank, settings in self.stages:
            scores = rank(query, self.index, scores, settings)
        order = np.argsort(-scores, kind="stable")[:limit]
        passages = load_passages()
        return [passages[number].id for number in order if scores[number] > 0]


def search(directory: Path, text: str, limit: int = 10) -> list[str]:
    """Answer one question with the pipeline in a directory."""
    # Read at every call, parsed once per content: a caller may change the files.
    sources = {
        path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8")
        for path in (directory / "pipeline.toml", *directory.glob("steps/*.py"))
    }
    return _build(tuple(sorted(sources.items()))).search(text, limit)


@lru_cache(maxsize=4)
def _build(sources: tuple[tuple[str, str], ...]) -> Pipeline:
    texts = dict(sources)
    settings = tomllib.loads(texts["pipeline.toml"])
    tokeniser = _load(texts, "tokens")
    libraries = (bm25s.__version__, Stemmer.version())
    analysers, keys = {}, {}
    for name in ANALYSERS:
        analysers[name] = partial(tokeniser[name], settings=settings[name])
        depends = (libraries, texts["steps/tokens.py"], name, settings[name])
        keys[name] = sha256(repr(depends).encode()).hexdigest()
    stages = tuple(
        (_load(texts, name)["rank"], settings.get(name, {}))
        for name in settings["stages"]
    )
    return Pipeline(Index(analysers, keys), analysers, stages)


def _load(texts: Mapping[str, str], name: str) -> dict[str, Any]:
    path = f"steps/{name}.py"
    if path not in texts:
        have = ", ".join(sorted(texts))
        raise FileNotFoundError(f"pipeline.toml names {name!r}: no {path} among {have}")
    # Not imported: a candidate must not meet the modules or bytecode of another one.
    names: dict[str, Any] = {"__name__": f"steps.{name}", "__file__": path}
    exec(compile(texts[path], path, "exec"), names)
    return names
