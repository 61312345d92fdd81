"""No diagnosis: evidence speaks for itself."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.models import Node
from pytest_evo.protocols import Diagnosed


class NoDiagnosis:
    """Reads nothing and costs nothing."""

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        """No diagnoses."""
        return Diagnosed()
