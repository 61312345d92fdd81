"""Keyed randomness: a draw depends on its key, never on what was drawn before."""

from __future__ import annotations

import hashlib
import json
from random import Random


class SeededDraws:
    """The run's randomness: one independent stream per (seed, purpose, key)."""

    def __init__(self, seed: int) -> None:
        self._seed = seed

    def rng(self, purpose: str, *key: int | str) -> Random:
        """A generator of its own for this purpose and key."""
        # JSON keeps 1 and "1", and ("a", "b") and ("ab",), apart.
        name = json.dumps([self._seed, purpose, *key]).encode()
        return Random(int.from_bytes(hashlib.sha256(name).digest(), "big"))
