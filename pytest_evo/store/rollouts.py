"""Details of rollouts: what pytest said, in one file per rollout."""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from pathlib import PurePosixPath

from pydantic import ValidationError

from pytest_evo.models import CandidateId
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Rollout
from pytest_evo.store.disk import write_plain
from pytest_evo.store.records import adapter_for
from pytest_evo.store.records import to_json

_UNSAFE = re.compile(r"[^A-Za-z0-9_.]+")


@lru_cache(maxsize=65536)
def case_slug(case: CaseId) -> str:
    """A file name for a case: its readable end and a hash, at most 80 characters."""
    readable = _UNSAFE.sub("-", case.rpartition("/")[2]).strip("-.")[:60]
    digest = sha256(case.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{readable}-{digest}" if readable else digest


def rollout_path(
    candidate: CandidateId, case: CaseId, repeat: int, attempt: int
) -> str:
    """Where the detail of a rollout is, relative to the run directory."""
    again = f"-{attempt}" if attempt else ""
    return f"candidates/{candidate}/rollouts/{case_slug(case)}.{repeat}{again}.json"


class RolloutFiles:
    """Keeps details as files in the run directory.

    They are evidence, not truth: they are not waited for, and one that a power loss
    destroyed is read as a detail that says so.
    """

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def keep(self, rollout: Rollout) -> Rollout:
        """Store ``rollout.detail``; return the rollout with ``trace`` set instead.

        Raises:
            RunDirectoryProblem: the disk refuses.
        """
        if rollout.detail is None:
            return rollout
        trace = rollout_path(
            rollout.candidate, rollout.case, rollout.repeat, rollout.attempt
        )
        # Under its own name at once: readers learn it from the record that is written
        # afterwards. A plain string, because paths take longer than writing the file.
        data = to_json(adapter_for(Detail), rollout.detail)
        write_plain(f"{self._run_dir}/{trace}", data)
        return _with_trace(rollout, trace)

    def detail(self, trace: str) -> Detail:
        """Read a detail back by the name that ``keep`` gave it."""
        path = self._inside(trace)
        try:
            detail: Detail = adapter_for(Detail).validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            why = (
                error.strerror if isinstance(error, OSError) else "it is cut or altered"
            )
            return Detail(warnings=(f"{trace} cannot be read: {why}",))
        return detail

    def _inside(self, trace: str) -> Path:
        parts = PurePosixPath(trace).parts
        if not parts or parts[0] != "candidates" or ".." in parts:
            raise ValueError(f"{trace!r} does not name a detail of this run")
        return self._run_dir / trace


def _with_trace(rollout: Rollout, trace: str) -> Rollout:
    return Rollout(
        candidate=rollout.candidate,
        tree=rollout.tree,
        case=rollout.case,
        repeat=rollout.repeat,
        outcome=rollout.outcome,
        score=rollout.score,
        seconds=rollout.seconds,
        attempt=rollout.attempt,
        metrics=rollout.metrics,
        usage=rollout.usage,
        reach=rollout.reach,
        violation=rollout.violation,
        worker=rollout.worker,
        detail=None,
        trace=trace,
        started=rollout.started,
    )
