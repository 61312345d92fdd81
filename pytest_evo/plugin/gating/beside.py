"""What else changed beside the artifact: the suite, and the project's code."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path

from pytest_evo.artifact.trees import restore
from pytest_evo.errors import SettingsProblem
from pytest_evo.gate.baseline import short_body
from pytest_evo.gate.suite import KnownCase
from pytest_evo.plugin.gating.bases import Base
from pytest_evo.plugin.gating.basesuite import base_suite
from pytest_evo.plugin.gating.bench import Bench
from pytest_evo.plugin.gating.checkout import ProjectAt
from pytest_evo.plugin.gating.checkout import ProjectChanges
from pytest_evo.plugin.gating.planning import known_cases
from pytest_evo.plugin.gating.planning import Suite
from pytest_evo.plugin.gating.task import GateTask


@dataclass(frozen=True, slots=True)
class Beside:
    """``suite`` is the base's, or None where it is the same or not known.

    A baseline that is committed at a ref says nothing of the suite there: cases may
    have come and gone since it was written.
    """

    suite: Sequence[KnownCase] | None = None
    changes: ProjectChanges = field(default_factory=ProjectChanges)
    project: ProjectAt | None = None


def look_beside(
    task: GateTask,
    base: Base,
    suite: Suite,
    scratch: Path,
    notes: list[str],
    *,
    read_early: bool = False,
) -> Beside:
    """Compare suite and project of the base with the working tree.

    Args:
        task: this session's.
        base: the other side.
        suite: the cases of this session.
        scratch: a folder for copies.
        notes: gets what a person should know.
        read_early: whether collecting read the artifact, which may then decide which
            cases there are.

    Raises:
        BaselineProblem: the base's project cannot be read.
    """
    if base.repository is None or base.tree is None:
        return Beside(known_cases(base.known) if base.known is not None else None)
    files = {mark.file for mark in suite.marks}
    rootdir = task.config.rootpath
    project = ProjectAt(base.repository, base.commit, rootdir, task.schema, files)
    changes = project.changes()
    if not (changes.tests or read_early):
        return Beside(None, changes, project)
    copy = scratch / "suite"
    project.write(copy)
    restore(base.tree, base.blobs, scratch / "artifact")
    shutil.copytree(
        scratch / "artifact",
        copy / task.schema.directory,
        symlinks=True,
        dirs_exist_ok=True,
    )
    bodies = {mark.id: short_body(mark.body) for mark in suite.marks}
    found = base_suite(task.config, copy, scratch, bodies, notes)
    return Beside(found, changes, project)


def put_base_beside(bench: Bench, beside: Beside, scratch: Path) -> None:
    """Have the base's rollouts run in its own project, under today's tests.

    Raises:
        SettingsProblem: the workers cannot see such a project, or may not copy it.
    """
    settings = bench.task.settings
    if settings.isolation not in ("auto", "workspace"):
        raise SettingsProblem(
            f"--evo-gate-arm=tree runs copies of two projects, which "
            f"--evo-isolation={settings.isolation} cannot. Leave the isolation out."
        )
    here = socket.gethostname()
    away = [hello.host for hello in bench.pool.hellos if hello.host != here]
    if away:
        raise SettingsProblem(
            f"--evo-gate-arm=tree needs workers on this machine, and one is on "
            f"{away[0]}. Leave out --tx, or --evo-gate-arm=tree."
        )
    if beside.project is None:
        return
    folder = scratch / "project"
    beside.project.write_under_tests(folder)
    bench.pool.configure(base_project=str(folder))
    bench.stand_in_place("each side runs in a copy of its own project")
