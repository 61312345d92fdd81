"""What proposers are told: evidence and diagnoses, wired to a run's files."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence

from pytest_evo.diagnosis.evidence import gather
from pytest_evo.diagnosis.evidence import Sources
from pytest_evo.engine.parts import Gather
from pytest_evo.evidence import Evidence
from pytest_evo.models import Attempt
from pytest_evo.models import Case
from pytest_evo.models import Node
from pytest_evo.plugin.runfiles import RunFiles
from pytest_evo.plugin.task import Task


def gatherer(task: Task, files: RunFiles, redact: Callable[[str], str]) -> Gather:
    """Collects evidence from a run's files; ``search`` reads none."""
    sources = Sources(files.rollouts.detail, files.trees.get, task.schema, redact)

    def collect(
        nodes: Sequence[Node], batch: Sequence[Case], attempts: Sequence[Attempt]
    ) -> Evidence:
        return gather(nodes, batch, attempts, sources)

    def nothing(
        nodes: Sequence[Node], batch: Sequence[Case], attempts: Sequence[Attempt]
    ) -> Evidence:
        return Evidence()

    return nothing if task.proposer_name == "search" else collect
