"""Whose fault it is that tests cannot be collected: the artifact's, or the suite's.

Tests that read the artifact while they are imported are collected with the head's. If
that fails, they are collected twice more, in copies of the project as it is that differ
in the artifact alone. Only where the base's lets them be collected, and the head's does
not, has the artifact got worse; otherwise a person has to mend the suite.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from datetime import datetime
from datetime import UTC
from pathlib import Path

from pytest_evo.artifact.checks import read_artifact
from pytest_evo.gate.record import GateRecord
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GateCase
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Tree
from pytest_evo.plugin.gating.bases import Base
from pytest_evo.plugin.gating.copies import Listing
from pytest_evo.plugin.gating.copies import run_in_copy
from pytest_evo.plugin.gating.copies import selection
from pytest_evo.plugin.gating.planning import artifact_changes
from pytest_evo.plugin.gating.planning import make_policy
from pytest_evo.plugin.gating.session import versions
from pytest_evo.plugin.gating.task import GateTask
from pytest_evo.plugin.isolation.candidates import CandidateCache
from pytest_evo.plugin.isolation.workspace import Workspaces
from pytest_evo.plugin.redaction import Redaction
from pytest_evo.plugin.redaction import secrets_of

_LONGEST = 300  # characters of an error in a sentence


@dataclass(frozen=True, slots=True)
class Uncollected:
    """A verdict without a rollout, and what collecting each case has said."""

    record: GateRecord
    details: dict[CaseId, Detail]


def judge_collection(task: GateTask, base: Base, scratch: Path) -> Uncollected | None:
    """Collect with either artifact; None where the head's is not to blame.

    Args:
        task: the gate, whose session could not collect.
        base: the other side; without a version of its own nothing can be told.
        scratch: a folder for the copies.

    Raises:
        EvoError: the project cannot be copied, or the artifact not be read.
    """
    began = time.monotonic()
    head = read_artifact(task.artifact, task.schema, base.blobs)
    if base.tree is None or base.tree.hash == head.hash:
        return None
    copies = _Copies(task, base, scratch)
    before = copies.collect(base.tree)
    if before.ended or before.errors or not before.cases:
        return None
    after = copies.collect(head)
    gone = tuple(sorted(before.cases.keys() - after.cases.keys()))
    if not gone:
        return None
    change = Change(
        files=tuple(path for path, _ in artifact_changes(base, head)),
        uncollected=gone,
        collection_error=in_a_line(after),
    )
    record = GateRecord(
        artifact=task.schema.directory,
        base=base.name,
        prefix=base.repository.prefix if base.repository else "",
        base_commit=base.commit,
        base_tree=base.tree.hash,
        head_tree=head.hash,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        cases=tuple(GateCase(case) for case in before.cases),
        policy=make_policy(task.settings, head.hash),
        change=change,
        notes=base.notes,
        versions=versions(),
        seconds=time.monotonic() - began,
    )
    return Uncollected(record, {case: _detail(case, after) for case in gone})


class _Copies:
    """The project as it is, with one artifact or the other."""

    def __init__(self, task: GateTask, base: Base, scratch: Path) -> None:
        self._task = task
        self._blobs = base.blobs
        self._scratch = scratch
        self._cache = CandidateCache(scratch / "cache")
        self._workspaces = Workspaces(
            scratch / "copies",
            task.config.rootpath,
            task.artifact,
            self._cache,
            task.schema.include,
        )

    def collect(self, tree: Tree) -> Listing:
        """What a session finds that has this version."""
        for sha in self._cache.missing(tree.entries):
            self._cache.add(sha, self._blobs.get(sha))
        workspace = self._workspaces.take(tree.entries)
        config, root = self._task.config, workspace.root
        arguments = [*selection(config, root), "--co"]
        listing = self._scratch / f"{tree.hash}.json"
        found = run_in_copy(config, root, listing, arguments)
        redact = Redaction(secrets_of(os.environ, self._task.artifact)).text
        here = str(config.rootpath)
        errors = {
            spot: redact(text.replace(str(root), here))
            for spot, text in found.errors.items()
        }
        return Listing(found.cases, errors, found.ended)


def in_a_line(after: Listing) -> str:
    """The first error as pytest marks it, or how the session ended."""
    if after.ended:
        return f"collecting was broken off, {after.ended}"
    for spot, text in after.errors.items():
        marked = [line[1:].strip() for line in text.splitlines() if line[:2] == "E "]
        told = " ".join(" ".join(marked or text.splitlines()[-1:]).split())
        return f"{spot}: {told}"[:_LONGEST]
    return "they are not there, without an error"


def _detail(case: CaseId, after: Listing) -> Detail:
    """What collecting said of the case's file or folder."""
    above = [text for spot, text in after.errors.items() if case.startswith(spot)]
    text = "\n".join(above or after.errors.values()) or after.ended
    return Detail(
        (Phase("collect", Outcome.MISSING.value, 0.0, in_a_line(after), text),)
    )
