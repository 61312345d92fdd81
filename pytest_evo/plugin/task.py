"""What the command line asks for, checked before anything is collected."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

import pytest

from pytest_evo.models import ArtifactSchema
from pytest_evo.plugin.modelling import RunModels
from pytest_evo.proposers.archive import Archive
from pytest_evo.proposers.archive import Notices
from pytest_evo.protocols import Proposer
from pytest_evo.settings import Settings
from pytest_evo.store.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class Task:
    """One ``--evolve``: ``resume`` is the run to go on with.

    ``notices`` is what the proposer says to a person.
    """

    config: pytest.Config
    settings: Settings
    schema: ArtifactSchema
    artifact: Path
    proposer: Proposer
    proposer_name: str
    resume: RunDirectory | None
    archive: Archive = field(default_factory=Archive)
    notices: Notices = field(default_factory=Notices)
    models: RunModels = field(default_factory=lambda: RunModels({}))
