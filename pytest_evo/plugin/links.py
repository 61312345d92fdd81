"""The two ends of the private line between the controller and one worker."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any
from typing import Protocol
from typing import TypeAlias

Receiver: TypeAlias = Callable[[bytes | None], None]
"""Gets each message, from a thread that is not the caller's; None: the end."""


class Link(Protocol):
    """One end: bytes out from any thread, bytes in through a callback."""

    def send(self, *data: bytes) -> None:
        """Send messages; together they cost little more than one.

        Raises:
            OSError: the other end is gone.
        """

    def listen(self, receiver: Receiver) -> None:
        """Deliver what came so far and everything that comes; call it once."""

    def close(self) -> None:
        """Close this end; the other one learns of it."""

    def descriptors(self) -> tuple[int, ...]:
        """Open files that a forked child must not keep."""


class ChannelLink:
    """Over an execnet channel of its own."""

    def __init__(self, channel: Any, *, queued: bool = False) -> None:
        """Take a channel over; ``queued``: a thread sends, so that nobody is blocked.

        A worker that has been stopped does not read, and pipes are small.
        """
        self._channel = channel
        self._queue: SimpleQueue[tuple[bytes, ...] | None] | None = None
        if queued:
            self._queue = SimpleQueue()
            threading.Thread(
                target=self._send_queued, name="evo-sender", daemon=True
            ).start()

    def send(self, *data: bytes) -> None:
        """Send messages."""
        if self._channel.isclosed():
            raise OSError("the other end of this line is closed")
        if self._queue is None:
            self._channel.send(data)
        else:
            self._queue.put(data)

    def _send_queued(self) -> None:
        assert self._queue is not None
        while (data := self._queue.get()) is not None:
            try:
                self._channel.send(data)
            except OSError:
                return  # the receiving thread tells of the end

    def listen(self, receiver: Receiver) -> None:
        """Deliver everything from execnet's receiving thread."""

        def deliver(messages: Sequence[bytes] | None) -> None:
            for data in (None,) if messages is None else messages:
                receiver(data)

        self._channel.setcallback(deliver, endmarker=None)

    def close(self) -> None:
        """Close the channel; the gateway under it stays."""
        if self._queue is not None:
            self._queue.put(None)
            return
        with contextlib.suppress(OSError):
            self._channel.close()

    def descriptors(self) -> tuple[int, ...]:
        """The gateway's pipes or socket, where its transport has files at all."""
        transport = self._channel.gateway._io
        found = []
        for name in ("infile", "outfile", "sock"):
            file = getattr(transport, name, None)
            if file is not None:
                with contextlib.suppress(OSError, ValueError):
                    found.append(int(file.fileno()))
        return tuple(found)


class LocalLink:
    """One end of a pair inside one process; see :func:`local_pair`."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._waiting: list[bytes | None] = []
        self._receiver: Receiver | None = None
        self._other: LocalLink | None = None

    def send(self, *data: bytes) -> None:
        """Hand messages to the other end, in this thread."""
        for one in data:
            if self._other is None:
                raise OSError("the other end of this line is closed")
            self._other._receive(one)

    def listen(self, receiver: Receiver) -> None:
        """Deliver everything, from the sender's thread."""
        with self._lock:
            self._receiver = receiver
            waiting, self._waiting = self._waiting, []
            for data in waiting:
                receiver(data)

    def close(self) -> None:
        """Close this end."""
        other, self._other = self._other, None
        if other is not None:
            other._other = None
            other._receive(None)

    def descriptors(self) -> tuple[int, ...]:
        """None."""
        return ()

    def _receive(self, data: bytes | None) -> None:
        with self._lock:
            if self._receiver is None:
                self._waiting.append(data)
            else:
                self._receiver(data)


def local_pair() -> tuple[LocalLink, LocalLink]:
    """Two connected ends: the controller's and the worker's."""
    left, right = LocalLink(), LocalLink()
    left._other, right._other = right, left
    return left, right
