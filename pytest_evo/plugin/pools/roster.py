"""Workers as the pool knows them."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from pytest_evo.artifact.removal import remove
from pytest_evo.models import Tree
from pytest_evo.plugin import processes
from pytest_evo.plugin.links import Link
from pytest_evo.plugin.messages import DIRECTORY_PREFIX
from pytest_evo.plugin.messages import Hello
from pytest_evo.plugin.pools.flights import Flight

_MOST_REMEMBERED = 10_000  # contents that a worker is known to have
_SWEEP = 0.3  # seconds until the test processes of a dead worker have ended


@dataclass(eq=False)
class Worker:
    """A worker as the pool knows it."""

    name: str
    link: Link
    kill: Callable[[], None]
    joined: float
    hello: Hello | None = None
    flights: dict[str, Flight] = field(default_factory=dict)
    dismissed: bool = False
    _given: set[str] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether it can take requests."""
        return self.hello is not None and not self.dismissed

    def lacking(self, tree: Tree) -> list[str]:
        """Contents of a version that it was not given yet, each once; now it is.

        It asks for what it lacks all the same: this only saves it the asking.
        """
        wanted = dict.fromkeys(one.blob for one in tree.entries if one.kind == "file")
        new = [sha for sha in wanted if sha not in self._given]
        if len(self._given) > _MOST_REMEMBERED:
            self._given.clear()
        self._given.update(new)
        return new

    def clear_away(self) -> None:
        """The worker died: end what its test processes started, remove its files."""
        hello = self.hello
        if hello is None or hello.host != socket.gethostname():
            return

        def clear() -> None:
            processes.sweep_leaders((), hello.token.encode())
            for directory in (hello.directory, hello.memory):
                if Path(directory).name.startswith(DIRECTORY_PREFIX):
                    with contextlib.suppress(OSError):
                        remove(Path(directory))

        if hello.token:
            timer = threading.Timer(_SWEEP, clear)
            timer.daemon = True
            timer.start()
