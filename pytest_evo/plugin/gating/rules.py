"""What a change may not decide about itself, and what a person should know of it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from datetime import date
from fnmatch import fnmatchcase

from pydantic import ValidationError

from pytest_evo.gate.baseline import Baseline
from pytest_evo.gate.baseline import short_fingerprint
from pytest_evo.gate.values import Quarantine
from pytest_evo.models import CaseId
from pytest_evo.plugin.gating.bases import Base
from pytest_evo.settings import QuarantineSettings
from pytest_evo.settings import Settings

_SHOWN = 5
_OLD = 30  # days
_RULES = (
    "accept_removed",
    "gate_margin",
    "gate_max_errors",
    "gate_tolerance",
    "infrastructure",
    "limit",
    "noise",
)


def quarantines(
    settings: Settings, base: Base, notes: list[str]
) -> tuple[QuarantineSettings, ...]:
    """The list of the base, where there is one: a change cannot excuse itself."""
    if base.repository is None:
        return settings.quarantine
    rows = base.settings.get("quarantine")
    found = []
    for row in rows if isinstance(rows, list) else ():
        try:
            found.append(QuarantineSettings.model_validate(row))
        except ValidationError:
            notes.append(f"a quarantine at {base.commit[:12]} cannot be read: {row!r}")
    fresh = [row.case for row in settings.quarantine if row not in found]
    if fresh:
        notes.append(
            "quarantines that this change brings do not hold before it is merged: "
            f"{', '.join(fresh[:_SHOWN])}"
        )
    return tuple(found)


def quarantine_of(
    case: CaseId, rows: Sequence[QuarantineSettings]
) -> Quarantine | None:
    """The entry that is about a case, by its id or a glob of it."""
    for row in rows:
        if case == row.case or fnmatchcase(case, row.case):
            return Quarantine(row.reason, row.until)
    return None


def changed_rules(settings: Settings, base: Base) -> list[str]:
    """Say which rules of the gate the change itself has set otherwise."""
    if base.repository is None or not base.settings:
        return []
    told = {name: base.settings[name] for name in _RULES if name in base.settings}
    try:
        before = Settings.model_validate(told)
    except ValidationError:
        return []
    changed = sorted(
        name for name in _RULES if getattr(settings, name) != getattr(before, name)
    )
    if not changed:
        return []
    return [f"this change, or what was typed, sets other rules: {', '.join(changed)}"]


def changed_tests(
    known: Baseline,
    fingerprints: Mapping[CaseId, str],
    old_names: Mapping[CaseId, CaseId],
) -> list[str]:
    """Say which cases are no longer the tests that the baseline measured."""
    changed = [
        case
        for case, fingerprint in fingerprints.items()
        if (seen := known.cases.get(old_names.get(case, case))) is not None
        and seen.fingerprint != short_fingerprint(fingerprint)
    ]
    if not changed:
        return []
    return [
        f"{len(changed)} cases are not the tests that the baseline measured (their "
        "file, a conftest or parameters changed): if one of them is worse, it counts; "
        "--evo-gate=git:REF runs the new tests on both sides, --evo-accept-removed "
        f"lets the old ones go ({', '.join(changed[:_SHOWN])})"
    ]


def age(known: Baseline) -> list[str]:
    """Say when a baseline is so old that something else may have changed."""
    days = (date.today() - known.made).days
    if days <= _OLD:
        return []
    return [
        f"the baseline is {days} days old: models and packages may have changed since "
        "(pytest --evo-baseline-update on the branch to compare with)"
    ]
