"""Which candidates stay."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.models import EPSILON
from pytest_evo.models import Member


class ParetoTopN:
    """Weak-Pareto filter on val vectors, then the best ``size`` by mean.

    A member goes where another one is nowhere worse (by more than 1e-8) and somewhere
    better, or equal and newer. The start has no protection.
    """

    def __init__(self, size: int = 3) -> None:
        if size < 1:
            raise ValueError(f"a population keeps at least 1 member, not {size}")
        self._size = size

    def select(self, members: Sequence[Member]) -> tuple[Member, ...]:
        """Members are given oldest first; at least one survives, best first."""
        complete = _complete(members)
        kept = [
            member
            for at, member in enumerate(complete)
            if not any(
                _replaces(other, member, newer=place > at)
                for place, other in enumerate(complete)
                if place != at
            )
        ]
        # differences below the tolerance can add up to a circle; then all stay
        return _best_first(kept or complete)[: self._size]


class KeepAll:
    """Every member with a complete val vector stays."""

    def select(self, members: Sequence[Member]) -> tuple[Member, ...]:
        """Members are given oldest first; they come back best first."""
        return _best_first(_complete(members))


class IncumbentOnly:
    """Only the best by mean stays; of equals the newer."""

    def select(self, members: Sequence[Member]) -> tuple[Member, ...]:
        """Members are given oldest first; one survives."""
        return _best_first(_complete(members))[:1]


def _replaces(other: Member, member: Member, *, newer: bool) -> bool:
    better = False
    for case, score in member.scores.items():
        rival = other.scores[case]
        if rival < score - EPSILON:
            return False
        better = better or rival > score + EPSILON
    return better or newer


def _complete(members: Sequence[Member]) -> list[Member]:
    """Without those that lack a case which another member has."""
    everything = frozenset().union(*(member.scores for member in members))
    return [member for member in members if len(member.scores) == len(everything)] or [
        max(members, key=lambda member: len(member.scores))
    ]


def _best_first(members: Sequence[Member]) -> tuple[Member, ...]:
    ranked = sorted(
        enumerate(members), key=lambda pair: (-round(pair[1].mean, 8), -pair[0])
    )
    return tuple(member for _, member in ranked)
