"""Which isolation a run uses, and why: a pure decision from what was observed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_evo.errors import UsageProblem
from pytest_evo.models import Reach

FORK = "fork"
FRESH = "fresh"
WORKSPACE = "workspace"
_MODES = (FORK, FRESH, WORKSPACE)
_WINDOWS = ("win32", "cygwin")
_ON_WINDOWS = "Windows: plain runs, reports, and --evolve/gate in workspace only"
_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Choice:
    """An isolation mode with its reason, ready for the header."""

    mode: str  # fork | fresh | workspace
    mount: bool
    why: str


@dataclass(frozen=True, slots=True)
class _Facts:
    early: Sequence[str]  # artifact files read during collection
    stale: Sequence[str]  # read at the project's own path while a copy was meant
    mount: str | None  # why there is no mount
    include: bool
    held: str  # why a forked child would differ from the collected process
    linux: bool

    @property
    def needs_place(self) -> str:
        """Why the candidate has to stand at the artifact's own path; empty: no need."""
        if self.stale:
            return f"{_some(self.stale)} read from the artifact's fixed path"
        if self.include:
            return "include narrows the artifact, the other files have to be beside it"
        return ""


def choose(
    setting: str,
    mount_problem: str | None,
    collection_reach: Reach,
    baseline_reaches: Sequence[Reach],
    platform: str,
    include: Sequence[str] = (),
    *,
    threads: Sequence[str] = (),
    descriptors: Sequence[str] = (),
) -> Choice:
    """Decide how rollouts are kept apart.

    Args:
        setting: ``--evo-isolation``: auto, fork, fresh or workspace.
        mount_problem: what ``mount.probe`` says; None: the mount works.
        collection_reach: what was read of the artifact during collection.
        baseline_reaches: of the rollouts so far; empty before the baseline.
        platform: ``sys.platform``.
        include: the globs that narrow the artifact.
        threads: threads of the project that live after collection.
        descriptors: files of the artifact that are open after collection.

    Raises:
        UsageProblem: the setting would judge candidates by other files.
    """
    stale = sorted({name for reach in baseline_reaches for name in reach.stale})
    facts = _Facts(
        early=collection_reach.files,
        stale=stale,
        mount=mount_problem,
        include=bool(include),
        held=_held(threads, descriptors),
        linux=platform == "linux",
    )
    if platform in _WINDOWS:
        return _on_windows(setting)
    if setting == "auto":
        return _automatic(facts)
    if setting not in _MODES:
        raise UsageProblem(
            f"--evo-isolation={setting}: type one of auto, {', '.join(_MODES)}"
        )
    return _asked_for(setting, facts)


def _on_windows(setting: str) -> Choice:
    if setting in ("auto", WORKSPACE):
        return Choice(WORKSPACE, False, _ON_WINDOWS)
    raise UsageProblem(
        f"--evo-isolation={setting}: {_ON_WINDOWS}; anything else is refused. "
        "Type --evo-isolation=workspace."
    )


def _automatic(facts: _Facts) -> Choice:
    mounted = facts.mount is None
    if facts.early:
        read = f"{_some(facts.early)} read during collection"
        if mounted:
            return Choice(FRESH, True, read)
        return Choice(WORKSPACE, False, f"{read}, and no mount: {facts.mount}")
    if not mounted and facts.needs_place:
        return Choice(WORKSPACE, False, f"{facts.needs_place}; no mount: {facts.mount}")
    if facts.held:
        return Choice(FRESH, mounted, facts.held)
    if not facts.linux:
        return Choice(FRESH, mounted, "forking what has collected is unsafe here")
    if mounted:
        return Choice(FORK, True, "the artifact is read while tests run")
    return Choice(
        FORK, False, f"the artifact is read while tests run; no mount: {facts.mount}"
    )


def _asked_for(setting: str, facts: _Facts) -> Choice:
    mounted = facts.mount is None and setting != WORKSPACE
    instead = FRESH if facts.mount is None else WORKSPACE
    if setting == FORK and facts.early:
        raise UsageProblem(
            f"--evo-isolation=fork: {_some(facts.early)} of the artifact read during "
            "collection, so every candidate would be judged by what was read then. "
            f"Type --evo-isolation={instead} or auto, or read the artifact inside "
            "tests and fixtures."
        )
    if setting != WORKSPACE and not mounted and facts.needs_place:
        raise UsageProblem(
            f"--evo-isolation={setting}: {facts.needs_place}, and the candidate cannot "
            f"be mounted there ({facts.mount}). Type --evo-isolation=workspace or "
            "auto, or read the artifact by the fixture evo_artifact or from "
            "$PYTEST_EVO_ARTIFACT."
        )
    why = "asked for"
    if setting == FORK and facts.held:
        why = f"asked for, although {facts.held}"
    return Choice(setting, mounted, why)


def _held(threads: Sequence[str], descriptors: Sequence[str]) -> str:
    if threads:
        return f"threads of the project ({_some(threads)}) would be lost in a fork"
    if descriptors:
        return f"files of the artifact are held open ({_some(descriptors)})"
    return ""


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
