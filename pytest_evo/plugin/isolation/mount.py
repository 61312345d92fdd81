"""A private mount: the candidate at the artifact's real path, for one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


class MountRefused(OSError):
    """The candidate cannot be mounted; the message says why."""


def probe(artifact: Path) -> str | None:
    """Try the whole sequence in a child; None if it works, else why not (cached)."""
    raise NotImplementedError


def open_descriptors(artifact: Path) -> list[str]:
    """Paths below the artifact that this process holds open."""
    raise NotImplementedError


def enter(candidate_copy: Path, artifact: Path, files: Sequence[str] = ()) -> None:
    """Show the candidate's copy at the artifact's path, in this process only.

    For a single-threaded forked child. ``files`` are the names that ``include``
    selects in the project's own artifact: only they are replaced, one by one; those
    that the copy lacks are hidden, those that it adds appear. Without ``files`` the
    whole directory is replaced.

    Raises:
        MountRefused: a step failed; nothing outside this process has changed.
    """
    raise NotImplementedError
