"""What was made of a value before, for the next time the same value comes.

Every proposal is told of the same attempts and of the same rollouts of its parent.
They are frozen, so what was made of them stays right for as long as they are the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")

AT_HAND = 512
"""Values of one kind that are remembered at most."""
SMALL = 4_000
"""Characters up to which what is made of a trace is remembered."""


def by_identity(make: Callable[[K], V], most: int = AT_HAND) -> Callable[[K], V]:
    """A function that makes something of the same object (``is``) only once.

    Args:
        make: depends on nothing but a frozen object, which need not be hashable.
        most: objects that are remembered; those not asked for longest go first.
    """
    made: OrderedDict[int, tuple[K, V]] = OrderedDict()

    def of(value: K) -> V:
        key = id(value)  # stays its own: the value is held as long as the key
        found = made.get(key)
        if found is None:
            found = made[key] = (value, make(value))
            if len(made) > most:
                made.popitem(last=False)
        else:
            with suppress(KeyError):  # another thread has made room meanwhile
                made.move_to_end(key)
        return found[1]

    return of
