"""Which of several declared targets a gate session is about."""

from __future__ import annotations

from pathlib import Path

from pytest_evo.artifact.base import artifact_at
from pytest_evo.artifact.base import file_changes
from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.repository import Repository
from pytest_evo.artifact.schema import locate
from pytest_evo.artifact.schema import schema_of
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import BaselineProblem
from pytest_evo.errors import SettingsProblem
from pytest_evo.settings import Settings
from pytest_evo.settings import TargetSettings

_GIT = "git:"


def choose_target(rootdir: Path, settings: Settings) -> Settings:
    """The settings of the one target whose files changed.

    Raises:
        SettingsProblem: several have changed, or nothing says which one is meant.
        BaselineProblem: the ref cannot be read.
    """
    if settings.artifact is not None or settings.target is not None:
        return settings
    names = [target.name for target in settings.targets]
    if settings.gate is None or not settings.gate.startswith(_GIT):
        raise SettingsProblem(
            f"several targets are declared ({', '.join(names)}). Type "
            f"--evo-target={names[0]}; each has a baseline file of its own."
        )
    changed = [
        target for target in settings.targets if _changed(rootdir, settings, target)
    ]
    if len(changed) > 1:
        listed = ", ".join(target.name for target in changed)
        raise SettingsProblem(
            f"the files of {len(changed)} targets have changed ({listed}), and one "
            "session judges one artifact. Type the command once for each, with "
            f"--evo-target={changed[0].name} and so on."
        )
    return with_target(settings, (changed or settings.targets)[0])


def with_target(settings: Settings, target: TargetSettings) -> Settings:
    """The settings as if the target had been typed."""
    return settings.model_copy(
        update={
            "target": target.name,
            "artifact": target.artifact,
            "cases": settings.cases or target.cases,
        }
    )


def _changed(rootdir: Path, settings: Settings, target: TargetSettings) -> bool:
    schema = schema_of(with_target(settings, target))
    artifact = locate(rootdir, schema)
    repository = Repository(rootdir)
    commit = repository.commit((settings.gate or "").removeprefix(_GIT))
    blobs = MemoryBlobs()
    try:
        base = artifact_at(repository, commit, schema, artifact, blobs)
    except BaselineProblem:
        return True  # its own session says what is wrong
    head = snapshot(artifact, blobs, include=schema.include)
    return bool(file_changes(base, head))
