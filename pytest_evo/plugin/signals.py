"""Ctrl-C and its relatives: a soft stop first, then at once.

Ctrl-C and a closed terminal reach the whole process group. Only the controller acts on
them; workers hear and ignore them, and test processes live in sessions of their own.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any

STOPPERS = tuple(
    getattr(signal, name)
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if hasattr(signal, name)
)
_PATIENCE = 3
"""How many signals do not break off the end of a session, which takes seconds."""
_LEAVING_SECONDS = 5.0
"""How long a process that was stopped may take to be gone after its last word."""
_before: dict[int, Any] = {}
"""The handlers that this process had for the signals taken over here."""


def restore() -> None:
    """Give all signals back the handlers that they had; in a child or at the end."""
    if threading.current_thread() is not threading.main_thread():
        return
    while _before:
        number, handler = _before.popitem()
        signal.signal(number, signal.SIG_DFL if handler is None else handler)


def ignore_stops() -> None:
    """In a worker: leave the decision to the controller.

    A handler that does nothing, because what is ignored stays ignored in every program
    that the project starts.
    """
    for number in STOPPERS:
        _take(number, _nothing)


class StopSignals:
    """In the controller, for the time of a run."""

    def __init__(
        self, on_soft_stop: Callable[[], None], on_hard_stop: Callable[[], None]
    ) -> None:
        """Both run on the main thread, between two instructions of whatever it does."""
        self._on_soft_stop = on_soft_stop
        self._on_hard_stop = on_hard_stop
        self.count = 0
        self.finishing = False
        """The run has ended; only the session is being taken down."""
        self._retired: float | None = None

    def install(self) -> None:
        """Take the signals over; :meth:`retire` gives them back.

        What whoever started this has it ignore stays ignored: a run under ``nohup``
        outlives its terminal, and Ctrl-C is not meant for one in the background.
        """
        for number in STOPPERS:
            asked = number == signal.SIGTERM
            if asked or signal.getsignal(number) is not signal.SIG_IGN:
                _take(number, self._handle)

    def retire(self) -> None:
        """Give the signals back when all is said and taken down.

        After a stop they are kept a little longer and do nothing: whoever asks a second
        time shall not turn the exit status into a death by signal. A program that
        goes on after pytest has its own handlers back after some seconds.
        """
        if self.count == 0:
            restore()
            return
        self._retired = time.monotonic()
        # Python gives handlers up before the process is gone, but leaves ignored alone
        atexit.register(_ignore_what_is_kept)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._retired is not None:
            if time.monotonic() - self._retired > _LEAVING_SECONDS:
                restore()
                os.kill(os.getpid(), number)
            return
        self.count += 1
        if self.count == 1:
            self._on_soft_stop()
            return
        self._on_hard_stop()
        if self.finishing and self.count <= _PATIENCE:
            return  # breaking off what takes workers down would leave them behind
        raise KeyboardInterrupt


def _take(number: int, handler: Callable[[int, FrameType | None], None]) -> None:
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(number, handler)
        _before.setdefault(number, before)


def _ignore_what_is_kept() -> None:
    for number in _before:
        signal.signal(number, signal.SIG_IGN)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Hear a signal and go on."""
