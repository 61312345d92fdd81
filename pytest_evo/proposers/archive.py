"""What proposers leave for a person beside their edits: files and words."""

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


class Notices:
    """Words for a person, kept until there is somebody who shows them."""

    def __init__(self) -> None:
        self._waiting: list[str] = []
        self._show: Callable[[str], None] = self._waiting.append

    def __call__(self, text: str) -> None:
        """Say something."""
        self._show(text)

    def forward(self, show: Callable[[str], None]) -> None:
        """Show what was said, and from now on what is said."""
        self._show = show
        while self._waiting:
            show(self._waiting.pop(0))
