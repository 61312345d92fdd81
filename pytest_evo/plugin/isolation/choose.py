"""Which isolation a run uses, and why: a pure decision from what was observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_evo.models import Reach


@dataclass(frozen=True, slots=True)
class Choice:
    """An isolation mode with its reason, ready for the header."""

    mode: str  # fork | fresh | workspace
    mount: bool
    why: str


def choose(
    setting: str,
    mount_problem: str | None,
    collection_reach: Reach,
    baseline_reaches: Sequence[Reach],
    platform: str,
    include: Sequence[str] = (),
) -> Choice:
    """Decide; ``platform`` is ``sys.platform``, ``mount_problem`` None if it works.

    Raises:
        UsageProblem: the setting would judge candidates by other files.
    """
    raise NotImplementedError
