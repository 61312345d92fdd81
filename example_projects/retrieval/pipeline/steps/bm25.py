"""BM25 over one or several fields, added up by weight."""

import numpy as np


def rank(query, index, scores, settings):
    tokens = _rare_enough(query.tokens, index, settings["max_share"])
    for field, weight in settings["fields"].items():
        if weight:
            scores = scores + weight * _score(field, tokens, query, index, settings)
    if settings["coverage"]:
        scores = scores * _coverage(tokens, index) ** settings["coverage"]
    return scores


def _score(field, tokens, query, index, settings):
    parameters = {
        "method": settings["method"],
        "k1": settings["k1"],
        "b": settings["b"] if field == "passage" else settings["field_b"],
        "delta": settings["delta"],
    }
    if field == "letters":
        return index.bm25("title", "letters", **parameters).score(query.letters)
    return index.bm25(field, **parameters).score(tokens)


def _rare_enough(tokens, index, max_share):
    postings = index.postings("passage")
    limit = max_share * len(index)
    return [token for token in tokens if postings.frequency(token) <= limit]


def _coverage(tokens, index):
    """Share of the distinct tokens that each passage has."""
    postings = index.postings("passage")
    distinct = set(tokens)
    found = np.zeros(len(index))
    for token in distinct:
        found[postings.entries(token)[0]] += 1
    return found / max(1, len(distinct))
