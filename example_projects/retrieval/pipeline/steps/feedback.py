"""Pseudo-relevance feedback after RM3: ask again with the best passages' own terms."""

import numpy as np


def rank(query, index, scores, settings):
    if not settings["weight"] or not query.tokens or not scores.any():
        return scores
    best = np.argsort(-scores, kind="stable")[: settings["passages"]]
    typical = _typical_terms(index.postings("passage"), best, scores[best])
    rows = np.argsort(-typical, kind="stable")[: settings["terms"]]
    # as many tokens' worth of new terms as the question has
    weights = len(query.tokens) * typical[rows] / max(1e-9, typical[rows].sum())
    again = index.bm25("passage").score_rows(rows, weights)
    return (1 - settings["weight"]) * scores + settings["weight"] * again


def _typical_terms(postings, passages, scores):
    """How typical each term is of the passages: by share, rarity and their scores."""
    frequencies = np.diff(postings.starts)
    rarity = np.log(len(postings.lengths) / frequencies)
    typical = np.zeros(len(frequencies))
    for passage, score in zip(passages, scores, strict=True):
        rows, counts = postings.rows_of(passage)
        typical[rows] += score * counts / max(1, postings.lengths[passage])
    return typical * rarity
