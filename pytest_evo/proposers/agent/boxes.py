"""Folders of an agent's life: a home, a place for temporary files, a socket."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.artifact.removal import remove

HOME = "/evo/home"
"""The home as it is called in a sandbox."""
UID = 1000
_PASSWD = f"agent:x:{UID}:{UID}:agent:{HOME}:/bin/sh\n"
_GROUP = f"agent:x:{UID}:\n"
_LONGEST_SOCKET = 100  # bytes of a path that a socket can have, on every system
_CLOSE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Box:
    """Folders of one agent's life, as they are outside the sandbox."""

    root: Path

    def make(self) -> None:
        """Make the folders."""
        for folder in (self.home, self.temporary):
            folder.mkdir(mode=0o700)
        (self.root / "passwd").write_text(_PASSWD)
        (self.root / "group").write_text(_GROUP)

    @property
    def home(self) -> Path:
        """The throw-away home."""
        return self.root / "home"

    @property
    def temporary(self) -> Path:
        """For temporary files."""
        return self.root / "tmp"

    @property
    def socket(self) -> Path:
        """Where the gateway listens."""
        return self.root / "llm.sock"


class Boxes:
    """Makes boxes and removes them, whatever is in them, also when a run is broken off.

    ``closing`` is set when agents have to end because this process does.
    """

    def __init__(self) -> None:
        self.closing = threading.Event()
        self._open: set[Path] = set()
        self._changed = threading.Condition()

    @contextmanager
    def open(self) -> Iterator[Box]:
        """A box for one agent."""
        root = Path(tempfile.mkdtemp(prefix="evo-agent-"))
        if len(os.fsencode(Box(root).socket)) > _LONGEST_SOCKET:
            root.rmdir()
            root = Path(tempfile.mkdtemp(prefix="evo-agent-", dir="/tmp"))
        with self._changed:
            self._open.add(root)
        try:
            box = Box(root)
            box.make()
            yield box
        finally:
            remove(root)
            with self._changed:
                self._open.discard(root)
                self._changed.notify_all()

    def close(self) -> None:
        """Have all agents end, and wait a little until their boxes are gone."""
        self.closing.set()
        with self._changed:
            self._changed.wait_for(lambda: not self._open, _CLOSE_SECONDS)
