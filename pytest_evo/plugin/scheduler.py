"""What xdist asks of a scheduler, answered for a session whose work comes elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

from pytest_evo.errors import SuiteProblem
from pytest_evo.plugin.messages import Hello

_SHOWN = 10


class Scheduler:
    """Hands out no tests; workers say over their own lines what they collected.

    ``tests_finished`` is what ends xdist's session, but only after an event of a
    worker: whoever ends the run lets the workers leave their loop.
    """

    def __init__(self, expected: int) -> None:
        self._expected = expected
        self._collections: dict[Any, Sequence[str] | None] = {}
        self.finished = False

    @property
    def nodes(self) -> list[Any]:
        """The workers that are there."""
        return list(self._collections)

    @property
    def collection_is_completed(self) -> bool:
        """Whether as many workers have collected as there should be."""
        arrived = sum(ids is not None for ids in self._collections.values())
        return arrived >= self._expected

    @property
    def tests_finished(self) -> bool:
        """Whether the run is over."""
        return self.finished

    @property
    def has_pending(self) -> bool:
        """Whether xdist should leave out its own progress lines."""
        return True

    def add_node(self, node: Any) -> None:
        """A worker has started."""
        self._collections.setdefault(node, None)

    def add_node_collection(self, node: Any, collection: Sequence[str]) -> None:
        """A worker has collected, however little."""
        self._collections[node] = list(collection)

    def schedule(self) -> None:
        """Nothing is handed out; called again for every replacement."""

    def remove_node(self, node: Any) -> None:
        """A worker is gone; raises ``KeyError`` for one that never was there."""
        self._collections.pop(node)

    def mark_test_complete(
        self, node: Any, item_index: int, duration: float = 0
    ) -> None:
        """Nothing is handed out, so nothing completes."""

    def mark_test_pending(self, item: str) -> None:
        """Nothing is handed out, so nothing comes back."""

    def remove_pending_tests_from_node(self, node: Any, indices: Sequence[int]) -> None:
        """Nothing is handed out, so nothing is stolen."""


def check_collections(hellos: Sequence[Hello]) -> frozenset[str]:
    """The ids of the cases that all workers agree on, in whatever order.

    Raises:
        SuiteProblem: something could not be collected, nothing was, or the workers
            do not agree.
    """
    for hello in hellos:
        if hello.errors:
            errors = list(dict.fromkeys(hello.errors))
            raise SuiteProblem(
                "the tests could not be collected:\n"
                + "\n".join([*errors[:_SHOWN], *filter(None, [hello.problem])])
                + "\nmake `pytest --collect-only` pass first"
            )
        if hello.problem:
            raise SuiteProblem(hello.problem)
    first = hellos[0]
    if not first.marks:
        raise SuiteProblem(
            "no tests were collected, so there is nothing to measure the artifact "
            "with; check the paths, -k and -m of this command with "
            "`pytest --collect-only`"
        )
    cases = frozenset(mark.id for mark in first.marks)
    for other in hellos[1:]:
        found = frozenset(mark.id for mark in other.marks)
        if found != cases:
            raise SuiteProblem(_difference({first.id: cases, other.id: found}))
    return cases


def _difference(collected: Mapping[str, frozenset[str]]) -> str:
    (one, ours), (two, theirs) = collected.items()
    lines = [f"workers {one} and {two} collected different tests:"]
    for name, only in ((one, ours - theirs), (two, theirs - ours)):
        lines += [f"  only {name}: {case}" for case in sorted(only)[:_SHOWN]]
        if len(only) > _SHOWN:
            lines.append(f"  only {name}: {len(only) - _SHOWN} more")
    lines.append(
        "give parameters an order and ids that do not depend on the process "
        "(sorted(...), ids=...), or use -n 0"
    )
    return "\n".join(lines)
