"""Mode ``workspace``: a copy of the project with the candidate in place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.models import TreeEntry
from pytest_evo.plugin.isolation.candidates import CandidateCache


@dataclass(frozen=True, slots=True)
class Workspace:
    """One working copy: ``root`` is its rootdir, ``artifact`` the candidate in it."""

    root: Path
    artifact: Path


class Workspaces:
    """Working copies of a project; made on demand, restored and used again."""

    def __init__(
        self,
        directory: Path,
        project: Path,
        artifact: Path,
        cache: CandidateCache,
        files: Sequence[str] = (),
    ) -> None:
        raise NotImplementedError

    def take(self, manifest: Sequence[TreeEntry]) -> Workspace:
        """A working copy that holds the candidate and otherwise the project."""
        raise NotImplementedError

    def violation(
        self, workspace: Workspace, manifest: Sequence[TreeEntry]
    ) -> str | None:
        """What a request changed in the candidate's files."""
        raise NotImplementedError

    def give_back(self, workspace: Workspace) -> None:
        """Restore a working copy for the next request."""
        raise NotImplementedError

    def close(self) -> None:
        """Remove all working copies."""
        raise NotImplementedError
