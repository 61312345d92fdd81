"""The line from a test process to its worker: authenticated, length-prefixed frames.

The worker makes a socket pair, writes a fresh secret into it and hands one end to the
child, forked or fresh. The child makes a :class:`FrameWriter` of the descriptor before
any code of the project runs; that reads the secret and moves the descriptor to a number
where tests that close or write "all" descriptors hardly find it. Whoever writes
into the descriptor without the secret forges nothing: the reader notices.
"""

from __future__ import annotations

import fcntl
import os
import resource
import secrets
import socket
from collections.abc import Iterator
from hashlib import blake2b
from typing import NoReturn

from pytest_evo.errors import EvoError
from pytest_evo.errors import MessageRefused
from pytest_evo.plugin.messages import decode
from pytest_evo.plugin.messages import encode
from pytest_evo.plugin.messages import Message

_SECRET = 32  # bytes
_MAC = 16
_LENGTH = 4
_HEAD = _LENGTH + _MAC
_LARGEST = 256 * 1024 * 1024  # bytes of one frame; details are cut far below this
_CHUNK = 1 << 18


class FrameForged(EvoError):
    """Something that is no frame came out of a child's descriptor."""


class FrameWriter:
    """The child's end. Only the process that made it may write."""

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor of :func:`frame_pair`; it is closed and moved."""
        secret = b""
        while len(secret) < _SECRET:
            part = os.read(descriptor, _SECRET - len(secret))
            if not part:
                raise FrameForged("the descriptor for frames was closed too early")
            secret += part
        self._secret = secret
        self._descriptor = _move_away(descriptor)
        self._count = 0
        self._held = b""
        self._owner = os.getpid()

    def send(self, message: Message, *, hold: bool = False) -> None:
        """Write one message; ends the process where nobody may or can listen.

        With ``hold`` it goes out with the next one, or at :meth:`flush`: every write
        wakes the worker, which shares the processors with its test processes.
        """
        if os.getpid() != self._owner:
            os._exit(1)  # a fork of a test that came back out of the test function
        body = encode(message)
        mac = _mac(self._secret, self._count, body)
        self._count += 1
        self._held += len(body).to_bytes(_LENGTH, "big") + mac + body
        if not hold:
            self.flush()

    def flush(self) -> None:
        """Write what is held back."""
        data, self._held = memoryview(self._held), b""
        while data:
            try:
                data = data[os.write(self._descriptor, data) :]
            except OSError:
                _leave()

    def fileno(self) -> int:
        """The descriptor, where it is now."""
        return self._descriptor


class FrameReader:
    """The worker's end: bytes in, messages out."""

    def __init__(self, end: socket.socket, secret: bytes) -> None:
        end.setblocking(False)
        self._end = end
        self._secret = secret
        self._count = 0
        self._buffer = bytearray()
        self.closed = False
        """Whether the child's end is closed, by its death or by a test."""

    def fileno(self) -> int:
        """For selectors."""
        return self._end.fileno()

    def messages(self) -> Iterator[Message]:
        """What has come in by now; does not block.

        Raises:
            FrameForged: bytes came that the child's writer did not write.
        """
        while self._receive():
            yield from self._parse()
        yield from self._parse()

    def _receive(self) -> bool:
        try:
            data = self._end.recv(_CHUNK)
        except BlockingIOError:
            return False
        except OSError:  # the child died with the secret unread
            self.closed = True
            return False
        self.closed = not data
        self._buffer += data
        return bool(data)

    def _parse(self) -> Iterator[Message]:
        while len(self._buffer) >= _HEAD:
            length = int.from_bytes(self._buffer[:_LENGTH], "big")
            if length > _LARGEST:
                raise FrameForged("a frame is larger than any rollout")
            end = _HEAD + length
            if len(self._buffer) < end:
                return
            mac = bytes(self._buffer[_LENGTH:_HEAD])
            body = bytes(self._buffer[_HEAD:end])
            if not secrets.compare_digest(mac, _mac(self._secret, self._count, body)):
                raise FrameForged("a frame does not carry the child's signature")
            del self._buffer[:end]
            self._count += 1
            try:
                yield decode(body)
            except MessageRefused as error:
                raise FrameForged(str(error)) from None

    def close(self) -> None:
        """Close the worker's end."""
        self._end.close()


def frame_pair() -> tuple[FrameReader, int]:
    """The worker's reader and the descriptor that the child makes a writer of."""
    mine, theirs = socket.socketpair()
    secret = secrets.token_bytes(_SECRET)
    mine.sendall(secret)
    return FrameReader(mine, secret), theirs.detach()


def _mac(secret: bytes, count: int, body: bytes) -> bytes:
    salt = count.to_bytes(8, "big")
    return blake2b(body, digest_size=_MAC, key=secret, salt=salt).digest()


def _move_away(descriptor: int) -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY or limit > 4096:
        limit = 4096
    lowest = max(limit - 1 - secrets.randbelow(64), 3)
    try:
        moved = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, lowest)
    except OSError:  # the table is full up there
        return descriptor
    os.close(descriptor)
    return moved


def _leave() -> NoReturn:
    os._exit(1)
