"""Some kinds of passage are better answers than others."""

import numpy as np


def rank(query, index, scores, settings):
    for kind in ("module", "class", "function", "method", "topic"):
        if settings[kind] != 1:
            scores = np.where(index.kinds == kind, settings[kind] * scores, scores)
    if settings["depth"]:
        scores = scores / (1 + index.dots) ** settings["depth"]
    return scores
