"""Prepared answers: a list of patches, or a function of your own."""

from __future__ import annotations

from collections.abc import Awaitable
from collections.abc import Callable
from collections.abc import Sequence
from typing import TypeAlias

from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import ProposerExhausted
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Proposal
from pytest_evo.proposers.patches import Patch
from pytest_evo.protocols import ProposalRequest

Answer: TypeAlias = Proposal | str
Propose: TypeAlias = Callable[[ProposalRequest], Answer | Awaitable[Answer]]


class FunctionProposer:
    """Makes a proposer of a function, sync or async."""

    def __init__(self, function: Propose) -> None:
        self._function = function

    def propose(self, request: ProposalRequest) -> Answer | Awaitable[Answer]:
        """Call the function."""
        return self._function(request)


class PatchProposer:
    """Applies patches from a list.

    Step ``s`` of iteration ``i`` (both as numbered in the journal; the direct proposal
    is step 0) applies patch number ``i + s``, counted from 1, to the files it is
    given. So each patch is the direct proposal of one iteration, a chain adds the
    patches that follow, and the answer depends on no timing, however many slots there
    are. The run ends when an iteration has no patch left.
    """

    def __init__(self, patches: Sequence[Patch]) -> None:
        self._patches = tuple(patches)

    def propose(self, request: ProposalRequest) -> Proposal:
        """Apply one patch to ``request.workspace / "artifact"``.

        Raises:
            ProposerExhausted: every patch had its iteration.
            ProposalRefused: no patch is left for a step of a chain, the patch does not
                fit, or it was refused before.
        """
        number = request.iteration + request.step
        if number > len(self._patches):
            if request.step == 0:
                raise ProposerExhausted(
                    f"all {len(self._patches)} patches of the script were proposed"
                )
            raise ProposalRefused(f"the script has no patch {number}")
        patch = self._patches[number - 1]
        if request.feedback is not None:
            raise ProposalRefused(
                f"patch {patch.name} was refused and there is no other: "
                f"{request.feedback}"
            )
        patch.apply(request.workspace / "artifact")
        return Proposal(
            changelog=tuple(ChangelogEntry(path, patch.reason) for path in patch.paths),
            data={"patch": patch.name},
        )
