"""Sends a customer's message to a queue. The rules are the artifact; this is the code.

``temperature`` stands for what a language model does: the same message is not always
answered the same. A real project would call its model here.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from random import SystemRandom

_CHANCE = SystemRandom()


def route(message: str, folder: Path) -> str:
    """The queue of a message, by the rules in ``folder``."""
    rules = tomllib.loads((folder / "rules.toml").read_text(encoding="utf-8"))
    settings = tomllib.loads((folder / "settings.toml").read_text(encoding="utf-8"))
    words = re.findall(r"[a-z]+", message.lower())
    points = {
        queue: sum(weights.get(word, 0) for word in words)
        for queue, weights in rules.items()
    }
    best = max(points, key=lambda queue: points[queue])
    if _CHANCE.random() < settings["temperature"] / 2:
        return _CHANCE.choice([queue for queue in points if queue != best])
    return best
