"""Pseudo-relevance feedback after RM3: ask again with the best passages' own terms."""

import numpy as np


def rank(query, index, scores, settings):
    if not settings["weight"] or not query.tokens or not scores.any():
        return scores
    best = np.argsort(-scores, kind="stable")[: settings["passages"]]
    terms = _typical_terms(index.postings("passage"), best, scores[best])
    chosen = sorted(terms, key=lambda term: (-terms[term], term))[: settings["terms"]]
    total = sum(terms[term] for term in chosen)
    if not total:
        return scores
    # as many tokens' worth of new terms as the question has
    weights = {term: len(query.tokens) * terms[term] / total for term in chosen}
    again = index.bm25("passage").score_weighted(weights)
    return (1 - settings["weight"]) * scores + settings["weight"] * again


def _typical_terms(postings, passages, scores):
    """Probability of each term in the passages, weighted by score and rarity."""
    terms = {}
    for passage, score in zip(passages, scores, strict=True):
        length = max(1, postings.lengths[passage])
        for term, count in postings.terms_of(passage):
            rarity = np.log(len(postings.lengths) / postings.frequency(term))
            terms[term] = terms.get(term, 0.0) + score * rarity * count / length
    return terms
