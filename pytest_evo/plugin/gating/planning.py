"""Collected cases and a base to what the gate's planner is told."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from datetime import date
from pathlib import Path

from pytest_evo.artifact.base import file_changes
from pytest_evo.errors import BaselineProblem
from pytest_evo.gate.affected import unreached_cases
from pytest_evo.gate.baseline import Baseline
from pytest_evo.gate.baseline import BaselineCase
from pytest_evo.gate.baseline import file_digests
from pytest_evo.gate.baseline import short_body
from pytest_evo.gate.baseline import short_fingerprint
from pytest_evo.gate.suite import compare_suites
from pytest_evo.gate.suite import KnownCase
from pytest_evo.gate.suite import SuiteChanges
from pytest_evo.gate.values import Change
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import Limit
from pytest_evo.gate.values import Stored
from pytest_evo.models import CaseId
from pytest_evo.models import CaseMark
from pytest_evo.models import Outcome
from pytest_evo.models import Tree
from pytest_evo.plugin.gating.bases import Base
from pytest_evo.plugin.gating.checkout import ProjectChanges
from pytest_evo.plugin.gating.rules import age
from pytest_evo.plugin.gating.rules import changed_rules
from pytest_evo.plugin.gating.rules import changed_tests
from pytest_evo.plugin.gating.rules import quarantine_of
from pytest_evo.plugin.gating.rules import quarantines
from pytest_evo.plugin.reached import ReachedFiles
from pytest_evo.settings import Settings


@dataclass(frozen=True, slots=True)
class GatePlan:
    """What is compared, and what a person should know of it beforehand."""

    cases: tuple[GateCase, ...]
    change: Change
    changed: tuple[tuple[str, str], ...]  # artifact files
    notes: tuple[str, ...] = ()

    @property
    def unreached(self) -> frozenset[CaseId]:
        """The cases that the change cannot reach."""
        return frozenset(case.id for case in self.cases if not case.reached)

    def beside(self, changes: ProjectChanges) -> GatePlan:
        """The plan, knowing which other files of the project changed."""
        return replace(self, change=replace(self.change, project_files=changes.code))

    def with_nothing_reached(self) -> GatePlan:
        """The plan where nothing is run, because nothing that is reached changed."""
        cases = tuple(replace(case, reached=False) for case in self.cases)
        return replace(self, cases=cases)


@dataclass(frozen=True, slots=True)
class Suite:
    """The cases of this session; ``fingerprints`` are without ``fingerprint_env``."""

    marks: tuple[CaseMark, ...]
    fingerprints: Mapping[CaseId, str]
    rootdir: Path


def make_policy(settings: Settings, seed_text: str) -> GatePolicy:
    """The rules that the settings say, and defaults for the rest."""
    policy = GatePolicy(
        strict=settings.gate_policy == "strict",
        limits=tuple(Limit(row.metric, row.max_ratio) for row in settings.limit),
        accept_removed=settings.accept_removed,
        rollouts=settings.budget_rollouts,
        tokens=settings.budget_tokens,
        usd=settings.budget_usd,
        seed=settings.seed ^ int(seed_text[:8] or "0", 16),
        today=date.today(),
    )
    if settings.gate_margin is not None:
        policy = replace(policy, margin=settings.gate_margin)
    if settings.gate_tolerance is not None:
        policy = replace(policy, tolerance=settings.gate_tolerance)
    if settings.gate_max_errors is not None:
        policy = replace(policy, max_error_rate=settings.gate_max_errors)
    return policy


def make_gate_plan(
    suite: Suite,
    settings: Settings,
    base: Base,
    head: Tree,
    known_suite: Sequence[KnownCase] | None,
) -> GatePlan:
    """What the planner is told.

    Args:
        suite: the cases as they are collected now.
        settings: of this session.
        base: the other side.
        head: the artifact as it is.
        known_suite: the cases of the base; None where nobody knows them.

    Raises:
        BaselineProblem: the base is of another suite.
    """
    notes = changed_rules(settings, base)
    changed = artifact_changes(base, head)
    suite_changes = _suite_changes(suite, known_suite)
    old_names = {row.new: row.old for row in suite_changes.renamed}
    if base.tree is None and base.known is not None:
        _check_same_suite(suite, base.known, old_names, settings)
        notes += changed_tests(base.known, suite.fingerprints, old_names)
        notes += age(base.known)
    unreached = _unreached(suite, settings, base, changed, notes)
    listed = quarantines(settings, base, notes)
    cases = tuple(
        replace(
            _case(mark, suite, settings, base, old_names),
            quarantine=quarantine_of(mark.id, listed),
            reached=mark.id not in unreached,
        )
        for mark in suite.marks
    )
    change = Change(
        added=suite_changes.added,
        removed=suite_changes.removed,
        renamed=suite_changes.renamed,
        files=tuple(path for path, _ in changed),
        base_bytes=_bytes(base),
        head_bytes=sum(entry.size for entry in head.entries),
    )
    return GatePlan(cases, change, changed, tuple(notes))


def _suite_changes(
    suite: Suite, known_suite: Sequence[KnownCase] | None
) -> SuiteChanges:
    if known_suite is None:
        return SuiteChanges()
    bodies = {mark.id: short_body(mark.body) for mark in suite.marks}
    return compare_suites(known_suite, bodies)


def artifact_changes(base: Base, head: Tree) -> tuple[tuple[str, str], ...]:
    """The files of the artifact that differ, with how."""
    if base.tree is not None:
        return file_changes(base.tree, head)
    before = base.known.files if base.known is not None else {}
    after = file_digests(head)
    rows: list[tuple[str, str]] = []
    for path in sorted(before.keys() | after.keys()):
        if path not in before:
            rows.append((path, "added"))
        elif path not in after:
            rows.append((path, "deleted"))
        elif before[path] != after[path]:
            rows.append((path, "modified"))
    return tuple(rows)


def environment_digest(settings: Settings) -> str:
    """Names the values of ``fingerprint_env``, of which none is shown."""
    if not settings.fingerprint_env:
        return ""
    text = "\0".join(
        f"{name}={os.environ.get(name, '')}" for name in settings.fingerprint_env
    )
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def known_cases(known: Baseline) -> tuple[KnownCase, ...]:
    """The suite of a baseline file."""
    return tuple(
        KnownCase(case.id, case.body, _has_passed(case))
        for case in known.cases.values()
    )


def _has_passed(case: BaselineCase) -> bool:
    return case.outcome is Outcome.PASSED


# -- cases -------------------------------------------------------------------------


def _case(
    mark: CaseMark,
    suite: Suite,
    settings: Settings,
    base: Base,
    old_names: Mapping[CaseId, CaseId],
) -> GateCase:
    seen = None
    if base.known is not None:
        seen = base.known.cases.get(old_names.get(mark.id, mark.id))
    same = seen is not None and seen.fingerprint == short_fingerprint(
        suite.fingerprints[mark.id]
    )
    deterministic = mark.deterministic
    if deterministic is None and seen is not None and same and not seen.noisy:
        deterministic = True
    if settings.noise == "none":
        deterministic = True
    from_file = base.tree is None
    # --evo-accept-removed lets the old version of a test go like any other
    compared = seen if same or not settings.accept_removed else None
    return GateCase(
        id=mark.id,
        group=mark.group or "",
        must_pass=mark.must_pass,
        weight=mark.weight,
        deterministic=deterministic,
        stored=_stored(compared) if from_file and compared is not None else None,
        added=from_file and compared is None,
    )


def _stored(seen: BaselineCase) -> Stored:
    return Stored(
        n=seen.runs,
        passes=seen.passes,
        mean=seen.mean,
        variance=seen.variance,
        skipped=seen.outcome is Outcome.SKIPPED,
        deterministic=not seen.noisy,
        seconds=seen.seconds,
        tokens=seen.tokens,
        usd=seen.usd,
        metrics=seen.metrics,
    )


def _check_same_suite(
    suite: Suite,
    known: Baseline,
    old_names: Mapping[CaseId, CaseId],
    settings: Settings,
) -> None:
    again = (
        "Write it anew on the branch to compare with (pytest --evo-baseline-update), "
        "or compare with --evo-gate=git:REF, which measures both sides now."
    )
    common = [mark.id for mark in suite.marks if mark.id in known.cases]
    if not common and not old_names:
        example = next(iter(known.cases), "no case")
        raise BaselineProblem(
            f"the baseline is of another suite: none of its {len(known.cases)} cases "
            f"(for example {example!r}) is among the {len(suite.marks)} that were "
            f"collected. {again}"
        )
    told = known.versions.get("environment", "")
    if told != environment_digest(settings):
        names = ", ".join(settings.fingerprint_env) or "fingerprint_env"
        raise BaselineProblem(
            f"the baseline was measured with other values of {names}, so its scores "
            f"say nothing of this change. {again}"
        )


# -- reach -------------------------------------------------------------------------


def _unreached(
    suite: Suite,
    settings: Settings,
    base: Base,
    changed: Sequence[tuple[str, str]],
    notes: list[str],
) -> frozenset[CaseId]:
    known = base.known
    if known is None or settings.gate_all or settings.gate_arm == "tree":
        return frozenset()
    if base.tree is not None and known.files != file_digests(base.tree):
        notes.append(
            f"the baseline committed at {base.commit[:12]} is of an older artifact; "
            "all cases run (pytest --evo-baseline-update there saves that)"
        )
        return frozenset()
    project = ReachedFiles(suite.rootdir)
    digests = {
        mark.id: project.digest(known.cases[mark.id].project)
        for mark in suite.marks
        if mark.id in known.cases
    }
    return unreached_cases(known, changed, suite.fingerprints, digests)


def _bytes(base: Base) -> int | None:
    if base.tree is not None:
        return sum(entry.size for entry in base.tree.entries)
    return base.known.bytes if base.known is not None else None
