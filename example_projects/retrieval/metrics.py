"""How good a ranking is, with binary relevance."""

from __future__ import annotations

import math
from collections.abc import Collection
from collections.abc import Sequence


def ndcg(ranking: Sequence[str], gold: Collection[str], at: int = 10) -> float:
    """Discounted gain of the gold passages over that of the best ranking possible."""
    gain = sum(
        1 / math.log2(place + 2)
        for place, passage in enumerate(ranking[:at])
        if passage in gold
    )
    best = sum(1 / math.log2(place + 2) for place in range(min(at, len(gold))))
    return gain / best


def recall(ranking: Sequence[str], gold: Collection[str], at: int = 10) -> float:
    """Share of the gold passages that are among the first."""
    return len(set(ranking[:at]).intersection(gold)) / len(gold)
