"""How two versions of a suite differ: cases that are new, gone, or called otherwise."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_evo.gate.values import Removed
from pytest_evo.gate.values import Renamed
from pytest_evo.models import CaseId


@dataclass(frozen=True, slots=True)
class KnownCase:
    """A case of the base: ``body`` names what it does; ``passed`` None: not known."""

    id: CaseId
    body: str = ""
    passed: bool | None = None


@dataclass(frozen=True, slots=True)
class SuiteChanges:
    """What differs; a renamed case is neither added nor removed."""

    added: tuple[CaseId, ...] = ()
    removed: tuple[Removed, ...] = ()
    renamed: tuple[Renamed, ...] = ()


def compare_suites(
    base: Sequence[KnownCase], head: Mapping[CaseId, str]
) -> SuiteChanges:
    """Compare the cases of the base with those of the head (id -> body).

    A case is the same under another name where its body and parameters are. Of several
    with the same body those in the same file, then those in order, belong together; a
    body of which another number is there stays unmatched, because nobody can tell.
    What is not known to have failed counts as passed when it is gone.
    """
    gone = [case for case in base if case.id not in head]
    known = {case.id for case in base}
    new = [case for case in head if case not in known]
    pairs = _pairs(gone, {case: head[case] for case in new})
    renamed = sorted(
        (Renamed(old, now) for old, now in pairs.items()), key=lambda row: row.new
    )
    taken = set(pairs.values())
    return SuiteChanges(
        added=tuple(sorted(case for case in new if case not in taken)),
        removed=tuple(
            Removed(case.id, case.passed is not False)
            for case in sorted(gone, key=lambda case: case.id)
            if case.id not in pairs
        ),
        renamed=tuple(renamed),
    )


def _pairs(
    gone: Sequence[KnownCase], new: Mapping[CaseId, str]
) -> dict[CaseId, CaseId]:
    left = {case.id: case.body for case in gone if case.body}
    right = {case: body for case, body in new.items() if body}
    found: dict[CaseId, CaseId] = {}
    for by_file in (True, False):
        before = _grouped(left, by_file, found)
        after = _grouped(right, by_file, found.values())
        for key, old in before.items():
            now = after.get(key, [])
            if len(old) == len(now):
                found.update(zip(old, now, strict=True))
    return found


def _grouped(
    cases: Mapping[CaseId, str], by_file: bool, done: Iterable[CaseId]
) -> dict[tuple[str, str], list[CaseId]]:
    skipped = set(done)
    groups: dict[tuple[str, str], list[CaseId]] = {}
    for case, body in sorted(cases.items()):
        if case not in skipped:
            file = case.partition("::")[0] if by_file else ""
            groups.setdefault((file, body), []).append(case)
    return groups
