"""What a gate session is asked for, checked before anything is collected."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from pytest_evo.artifact.schema import locate
from pytest_evo.artifact.schema import refuse_own_files_inside
from pytest_evo.artifact.schema import schema_of
from pytest_evo.errors import SettingsProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.plugin.controller import refuse_no_artifact
from pytest_evo.plugin.gating.bases import Base
from pytest_evo.plugin.gating.bases import find_base
from pytest_evo.plugin.gating.targets import choose_target
from pytest_evo.plugin.options import option_overrides
from pytest_evo.plugin.places import check_reports_place
from pytest_evo.settings import load_settings
from pytest_evo.settings import Settings

_PARTIAL = ("-k", "-m", "--deselect", "--ignore", "--lf", "--ff", "--sw", "--splits")
_NOT_HERE = ("resume", "apply", "require_gain")


@dataclass(frozen=True, slots=True)
class GateTask:
    """One gate session; ``base`` is None where only a baseline is to be written."""

    config: pytest.Config
    settings: Settings
    schema: ArtifactSchema
    artifact: Path
    base: Base | None

    @property
    def baseline_path(self) -> Path:
        """Where the committed baseline is, for this target."""
        return baseline_path(self.config.rootpath, self.settings)


def baseline_path(rootdir: Path, settings: Settings) -> Path:
    """Where the committed baseline of the settings' target is."""
    path = rootdir / settings.baseline_file
    if settings.target is None:
        return path
    return path.with_name(f"{path.stem}.{settings.target}{path.suffix}")


def make_gate_task(config: pytest.Config) -> GateTask:
    """Check the command line, the settings and the base.

    Raises:
        UsageProblem: something has to change; the message says what to type.
    """
    overrides = option_overrides(config)
    settings = load_settings(config.rootpath, overrides)
    _refuse_contradictions(settings, overrides)
    refuse_no_artifact(settings)
    settings = choose_target(config.rootpath, settings)
    schema = schema_of(settings)
    artifact = locate(config.rootpath, schema, typed="artifact" in overrides)
    refuse_own_files_inside(config.rootpath, artifact, settings)
    if not settings.baseline_update:
        check_reports_place(config.rootpath / settings.reports)
    base = None
    if settings.baseline_update:
        _refuse_selections(config)
    if not settings.baseline_update:
        path = baseline_path(config.rootpath, settings)
        base = find_base(config.rootpath, settings, schema, artifact, path)
    return GateTask(config, settings, schema, artifact, base)


def _refuse_contradictions(settings: Settings, given: dict[str, object]) -> None:
    if settings.baseline_update and "gate" in given:
        raise SettingsProblem(
            "--evo-baseline-update measures the artifact as it is, and --evo-gate "
            "judges a change. Type the gate first; after the merge, type pytest "
            "--evo-baseline-update on the branch that others compare with."
        )
    unwanted = [name for name in _NOT_HERE if given.get(name)]
    if unwanted:
        options = ", ".join(f"--evo-{name.replace('_', '-')}" for name in unwanted)
        raise SettingsProblem(f"{options} belong to --evolve. Leave them out here.")
    is_file = settings.gate is not None and not settings.gate.startswith("git:")
    if settings.gate_arm == "tree" and is_file:
        raise SettingsProblem(
            "--evo-gate-arm=tree needs REF's files: type --evo-gate=git:REF with it."
        )


def _refuse_selections(config: pytest.Config) -> None:
    """Refuse to write a baseline of a part of the suite.

    Raises:
        SettingsProblem: the command line selects some of the cases.
    """
    for given in map(str, config.invocation_params.args):
        option = given.partition("=")[0]
        short = option[:2] if option[:2] in ("-k", "-m") else option
        if short in _PARTIAL or "::" in option:
            raise SettingsProblem(
                f"--evo-baseline-update writes down the whole suite, and {given} "
                "selects a part of it. Leave it out."
            )
