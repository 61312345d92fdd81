"""Errors that proposers raise themselves: kept whole, told in a line."""

from __future__ import annotations

import traceback

from pytest_evo.hostile import one_line
from pytest_evo.models import candidate_id
from pytest_evo.proposers.archive import Archive
from pytest_evo.proposers.archive import Notices
from pytest_evo.protocols import ProposalKey

_SHOWN = 400  # characters


class Faults:
    """Keeps tracebacks in the run directory; a person is told of the first one."""

    def __init__(self, archive: Archive, notices: Notices) -> None:
        self._archive = archive
        self._notices = notices
        self._told = False

    def keep(self, key: ProposalKey, error: BaseException) -> str:
        """Keep the traceback; return the error and where the traceback is."""
        archive = self._archive
        name = candidate_id(key.iteration, key.step) + ("-again" * bool(key.attempt))
        text = "".join(traceback.format_exception(error))
        archive.keep(name, {"traceback.txt": text})
        said = one_line(archive.redact(f"{type(error).__name__}: {error}"), _SHOWN)
        if not self._told:
            self._told = True
            self._notices(
                f"the proposer raised {said}; the traceback is in "
                f"{archive.folder}/{name}/traceback.txt"
            )
        return f"{said} (proposer/{name}/traceback.txt in the run directory)"
