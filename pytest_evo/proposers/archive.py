"""Keeps what proposers leave beside their edits, for a person to look at."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from pathlib import Path


class Archive:
    """A folder of the run directory, without secrets.

    Until ``folder`` is set, which is when a run has one, nothing is kept.

    Args:
        redact: takes secrets out of a text.
    """

    def __init__(self, redact: Callable[[str], str] = lambda text: text) -> None:
        self.folder: Path | None = None
        self.redact = redact

    def keep(self, name: str, files: Mapping[str, str]) -> None:
        """Write texts into the subfolder ``name``; only their owner can read them."""
        if self.folder is None:
            return
        place = self.folder / name
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file, text in files.items():
            path = place / file
            path.touch(mode=0o600)
            path.write_text(self.redact(text), "utf-8", "backslashreplace")
