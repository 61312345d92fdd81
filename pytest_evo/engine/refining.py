"""Where a chain goes on after a rejection."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.models import Node


class Chain:
    """Go on from the last node, up to ``depth`` steps after the direct proposal."""

    def next(self, nodes: Sequence[Node], depth: int) -> Node | None:
        """The last node; ``nodes`` begin with the parent."""
        return nodes[-1] if _steps(nodes) < depth else None


class Tree:
    """Go on from the best node so far: highest batch mean, of equals the earliest.

    The parent is no branch point; a node without any score is the last choice.
    """

    def next(self, nodes: Sequence[Node], depth: int) -> Node | None:
        """The best node after the parent."""
        if _steps(nodes) >= depth:
            return None
        return max(
            nodes[1:] or nodes,
            key=lambda node: -1.0 if node.mean is None else node.mean,
        )


class NoRefinement:
    """A rejected child is dropped."""

    def next(self, nodes: Sequence[Node], depth: int) -> Node | None:
        """Stop."""
        return None


def _steps(nodes: Sequence[Node]) -> int:
    """Chain steps taken; a refused one leaves no node but has used its number."""
    numbered = max((node.candidate.step for node in nodes[1:]), default=0)
    return max(numbered, len(nodes) - 2)
