"""File contents by hash: written once, verified whenever they are read."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.store.disk import write_once

_MOST_KNOWN = 4_096
"""Names of blobs that are remembered as kept."""


class MissingBlob(RunDirectoryProblem, KeyError):
    """A blob that was never kept here, or is gone."""

    __str__ = Exception.__str__  # a KeyError would show the message in quotes


class DirectoryBlobs:
    """Blobs in a directory, each under the SHA-256 of its content.

    Equal contents are kept once. A blob is on the disk for good when ``put`` returns,
    so that a journal record may name it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: set[str] = set()
        self._recent: OrderedDict[str, bytes] = OrderedDict()
        self._recent_bytes = 0

    def put(self, data: bytes) -> str:
        """Keep ``data``; return its name, the SHA-256 in hexadecimal.

        Raises:
            RunDirectoryProblem: the disk refuses.
        """
        sha = hashlib.sha256(data).hexdigest()
        if sha in self._known:
            return sha
        write_once(self._file(sha), data, lambda: self._is_whole(sha, data))
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()  # what comes again is looked for on the disk again
        self._known.add(sha)
        return sha

    def get(self, sha256: str) -> bytes:
        """Read a blob back.

        Raises:
            MissingBlob: there is none of this name.
            RunDirectoryProblem: it was altered.
        """
        if sha256 in self._recent:
            self._recent.move_to_end(sha256)
            return self._recent[sha256]
        path = self._file(sha256)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            raise MissingBlob(
                f"the file content {sha256} is missing: there is no {path}. Restore it "
                "from a copy of the run directory, or start a new run: pytest --evolve"
            ) from error
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise RunDirectoryProblem(
                f"{path} was altered: its {len(data)} bytes have the SHA-256 {found}. "
                "Restore it from a copy of the run directory, or start a new run: "
                "pytest --evolve"
            )
        self._keep_recent(sha256, data)
        return data

    def _keep_recent(self, sha256: str, data: bytes) -> None:
        """Files of a chain are read again and again; the newest stay at hand."""
        self._recent[sha256] = data
        self._recent_bytes += len(data)
        while self._recent_bytes > _AT_HAND_BYTES:
            _, dropped = self._recent.popitem(last=False)
            self._recent_bytes -= len(dropped)

    def has(self, sha256: str) -> bool:
        """Whether there is a blob of this name."""
        return sha256 in self._known or self._file(sha256).exists()

    def _is_whole(self, sha: str, data: bytes) -> bool:
        """Whether an earlier session wrote it, and a crash did not cut it."""
        try:
            return self._file(sha).read_bytes() == data
        except FileNotFoundError:
            return False

    def _file(self, sha: str) -> Path:
        if len(sha) != 64 or not set(sha) <= _HEXADECIMAL:
            raise ValueError(f"{sha!r} is not a SHA-256 in hexadecimal")
        return self._path / sha[:2] / sha[2:]


_AT_HAND_BYTES = 16_000_000
_HEXADECIMAL = frozenset("0123456789abcdef")
