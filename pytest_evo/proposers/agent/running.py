"""Runs an agent's command and reads what it prints, whatever the command does."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_KEEPER = Path(__file__).with_name("keeper.py")
_LONGEST_LINE = 8_000_000
"""Bytes of a line, so that an event is kept whole and a flood without ends is not."""
_CHUNK = 1 << 16
_LOOK_SECONDS = 0.25
_GRACE_SECONDS = 15.0  # what a keeper may need beyond its limit


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    ``status`` is its exit status, negative for a signal, None where it was ended by
    us. ``how`` is ``itself``, ``timeout``, ``stopped``, ``unborn`` or ``lost`` (the
    keeper itself was killed). ``left`` counts processes that it left behind.
    """

    status: int | None
    how: str
    seconds: float
    left: int = 0
    error: str = ""

    @property
    def by_signal(self) -> bool:
        """Whether a signal ended it that was not ours."""
        return self.how == "itself" and (self.status or 0) not in range(128)


def run(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    stdin: Path | None,
    seconds: float,
    heard: Callable[[str, bool], None],
    stop: Callable[[], bool] = lambda: False,
) -> Ended:
    """Run a command in a session of its own to its end; blocks.

    When it returns, nothing that the command started is running any more (on Linux;
    elsewhere its process group). It does not wait for descriptors that somebody holds.

    Args:
        command: program and arguments.
        folder: the working directory.
        environment: all variables.
        stdin: a file; without it there is nothing to read.
        seconds: after them the command is ended.
        heard: called with each line of output, and whether it came on stderr.
        stop: asked several times a second whether to end the command.
    """
    status_read, status_write = os.pipe()
    alive_read, alive_write = os.pipe()
    with (
        open(status_read, "rb", buffering=0) as status,  # noqa: PTH123, descriptors
        open(alive_write, "wb", buffering=0) as alive,  # noqa: PTH123
        open(stdin or os.devnull, "rb") as source,  # noqa: PTH123
    ):
        words = [sys.executable, "-I", "-S", str(_KEEPER)]
        words += [str(status_write), str(alive_read), str(seconds), *command]
        try:
            keeper = subprocess.Popen(
                words,
                cwd=folder,
                env=dict(environment),
                stdin=source,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                pass_fds=(status_write, alive_read),
                start_new_session=True,
            )
        finally:
            os.close(status_write)
            os.close(alive_read)
        with keeper:
            told = _listen(keeper, status, alive, heard, stop)
            alive.close()
            try:
                keeper.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                keeper.kill()
    return _ended(told)


def _listen(
    keeper: subprocess.Popen[bytes],
    status: Any,
    alive: Any,
    heard: Callable[[str, bool], None],
    stop: Callable[[], bool],
) -> bytes:
    """Read until the keeper has told how it ended; what it told."""
    assert keeper.stdout is not None
    assert keeper.stderr is not None
    streams: dict[Any, _Lines] = {
        keeper.stdout: _Lines(lambda line: heard(line, False)),
        keeper.stderr: _Lines(lambda line: heard(line, True)),
    }
    with selectors.DefaultSelector() as selector:
        for stream in streams:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        selector.register(status, selectors.EVENT_READ)
        asked = False
        while True:
            ready = [key.fileobj for key, _ in selector.select(_LOOK_SECONDS)]
            for stream in ready:
                if stream is not status and not _take(stream, streams[stream]):
                    selector.unregister(stream)
            if status in ready:
                break
            if not asked and stop():
                asked = True
                with contextlib.suppress(OSError):  # it has just ended
                    alive.write(b".")
    told: bytes = status.read(_CHUNK) or b""
    for stream, lines in streams.items():
        _drain(stream, lines)
    return told


def _take(stream: Any, lines: _Lines) -> bool:
    """Read what is there; False at the end."""
    data: bytes | None = stream.read(_CHUNK)
    if data:
        lines.feed(data)
    return data != b""


def _drain(stream: Any, lines: _Lines) -> None:
    """Read what is left in a pipe that somebody may still hold open."""
    left = 64
    while left and (data := stream.read(_CHUNK)):
        lines.feed(data)
        left -= 1
    lines.close()


class _Lines:
    """Bytes to lines. Of a line that is too long only the start is kept."""

    def __init__(self, heard: Callable[[str], None]) -> None:
        self._heard = heard
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> None:
        *ends, rest = data.split(b"\n")
        for end in ends:
            self._add(end)
            self._flush()
        self._add(rest)

    def close(self) -> None:
        if self._size:
            self._flush()

    def _add(self, part: bytes) -> None:
        part = part[: _LONGEST_LINE - self._size]
        if part:
            self._parts.append(part)
            self._size += len(part)

    def _flush(self) -> None:
        line = b"".join(self._parts)
        self._parts.clear()
        self._size = 0
        self._heard(line.decode("utf-8", "replace").rstrip("\r"))


def _ended(told: bytes) -> Ended:
    try:
        facts = json.loads(told)
    except ValueError:
        return Ended(None, "lost", 0.0, error="what watched over it was killed")
    return Ended(
        facts["status"],
        facts["ended"],
        facts["seconds"],
        facts["left"],
        facts.get("error", ""),
    )
