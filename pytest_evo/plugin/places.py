"""Where a session writes, tried before anything is started; nothing is left there."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pytest_evo.errors import SettingsProblem
from pytest_evo.store.disk import beginning
from pytest_evo.store.run_directory import check_writable


def check_run_place(root: Path) -> None:
    """Make sure that runs can be kept below ``root``, which need not exist yet.

    Raises:
        RunDirectoryProblem: they cannot.
    """
    with beginning(root):
        check_writable(_existing(root))


def check_reports_place(reports: Path) -> None:
    """Make sure that reports can be written, before something is spent on them.

    Raises:
        SettingsProblem: they cannot.
    """
    for place in (reports, reports / "candidates"):
        try:
            with tempfile.NamedTemporaryFile(prefix=".probe-", dir=_existing(place)):
                pass
        except OSError as error:
            raise SettingsProblem(
                f"no reports can be written into {reports}: "
                f"{error.strerror or error} ({error.filename or place}). Make it a "
                "directory that can be written to, or choose another place with "
                "--evo-reports=DIR; nothing was run"
            ) from error


def _existing(place: Path) -> Path:
    """The place itself, or the nearest folder above it that is there."""
    return next(path for path in (place, *place.parents) if os.path.lexists(path))
