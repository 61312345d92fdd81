"""How much of val a child is worth."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.means import weighted_mean
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import Member
from pytest_evo.models import ScoreVector
from pytest_evo.protocols import Draws
from pytest_evo.protocols import SurvivorSelection


class Full:
    """All of val at once."""

    def stages(self, val: Sequence[Case], draws: Draws) -> Sequence[Sequence[Case]]:
        """One stage."""
        return (tuple(val),) if val else ()


class Staged:
    """A share of val first (a quarter), then the rest.

    The share is the same for every child of a run. It is drawn evenly over the
    baseline's outcomes and over the files.
    """

    def __init__(self, share: float = 0.25) -> None:
        if not 0 < share < 1:
            raise ValueError(f"the first stage is a share between 0 and 1, not {share}")
        self._share = share

    def stages(self, val: Sequence[Case], draws: Draws) -> Sequence[Sequence[Case]]:
        """Two stages in case order; fewer than four cases are one stage."""
        count = len(val)
        if count < 4:
            return Full().stages(val, draws)
        first = max(1, round(count * self._share))
        rng = draws.rng("validation")
        ties = [rng.random() for _ in val]
        ranked = sorted(
            range(count), key=lambda at: (val[at].outcome, val[at].file, ties[at])
        )
        # every k-th of the ranked cases from a drawn start: strata get their share
        start = rng.random()
        chosen = {ranked[int((k + start) * count / first)] for k in range(first)}
        return (
            tuple(case for at, case in enumerate(val) if at in chosen),
            tuple(case for at, case in enumerate(val) if at not in chosen),
        )


def can_enter(
    members: Sequence[Member],
    child: Candidate,
    known: ScoreVector,
    val: Sequence[Case],
    selection: SurvivorSelection,
) -> bool:
    """Whether the child survives selection if all that is unknown comes out as 1.

    Args:
        members: the population, oldest first.
        child: the candidate in validation.
        known: its val scores so far.
        val: all val cases.
        selection: decides who stays.
    """
    hoped = {case.id: known.get(case.id, 1.0) for case in val}
    mean = weighted_mean(hoped, {case.id: case.weight for case in val})
    guess = Member(child, hoped, mean or 0.0)
    survivors = selection.select([*members, guess])
    return any(member.candidate.id == child.id for member in survivors)
