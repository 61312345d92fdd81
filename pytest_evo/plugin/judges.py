"""The files that judge candidates: out of their reach, and looked at after each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_evo.models import START
from pytest_evo.plugin import messages
from pytest_evo.plugin.isolation import mount
from pytest_evo.plugin.isolation.protected import protected_paths
from pytest_evo.plugin.isolation.protected import ProtectedFiles
from pytest_evo.plugin.isolation.shield import MOST_FROZEN
from pytest_evo.plugin.isolation.shield import Shield
from pytest_evo.plugin.isolation.shield import site_folders
from pytest_evo.plugin.messages import Mode


class Judges:
    """Keeps tests, conftests and configuration as they are, whatever a rollout does.

    ``notices`` are lines for a person: changes that no candidate made.
    """

    def __init__(
        self,
        session: pytest.Session,
        artifact: Path,
        settings: messages.WorkerSettings,
        own: Sequence[str],
    ) -> None:
        """Remember the files of a session that has collected.

        Args:
            session: its tests and their surroundings are protected.
            artifact: nothing in it is.
            settings: which files are protected besides, and which are not.
            own: folders of this worker, to be hidden from rollouts.
        """
        self._project = session.config.rootpath
        self._own = tuple(own)
        self._protected = ProtectedFiles(
            self._project,
            protected_paths(session, artifact, settings.protect, settings.writable),
        )
        self._frozen = frozenset(
            filter(_can_freeze, self._protected.paths[:MOST_FROZEN])
        )
        self._sites = site_folders()
        self.notices: list[str] = []

    @property
    def names(self) -> frozenset[str]:
        """The protected files, relative to the project, POSIX."""
        return frozenset(
            path.relative_to(self._project).as_posix() for path in self._protected.paths
        )

    def shield(self, covered: Sequence[str]) -> Shield:
        """What a rollout with a mount of its own may not write or see."""
        caches = {str(path.parent / "__pycache__") for path in self._frozen}
        return Shield(
            read_only=(*map(str, self._frozen), *sorted(caches), *self._sites),
            hidden=(*covered, *self._own),
        )

    def with_changes(self, run: messages.Run, violation: str | None) -> str | None:
        """Add what a request did to files that judge it; put them back.

        What the start artifact changes is the suite's own doing and taken over.
        """
        mounted = run.mount and run.mode is not Mode.WORKSPACE
        sure = mounted and mount.freezes()
        mine, others = self._protected.check(
            blame=run.candidate != START,
            frozen=self._frozen if sure else frozenset(),
        )
        if others is not None:
            self.notices.append(
                f"{others} changed during the run, not by a candidate; "
                "the session goes on with what it has collected"
            )
        return "; ".join(filter(None, (mine, violation))) or None


def _can_freeze(path: Path) -> bool:
    """Whether there is no other way to the file than its name."""
    return not path.is_symlink() and path.stat().st_nlink == 1
