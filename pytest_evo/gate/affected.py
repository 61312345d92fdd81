"""Which cases a change of the artifact can reach, by what was seen at the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence

from pytest_evo.gate.baseline import Baseline
from pytest_evo.gate.baseline import short_fingerprint
from pytest_evo.models import CaseId


def unreached_cases(
    known: Baseline,
    changed: Sequence[tuple[str, str]],
    fingerprints: Mapping[CaseId, str],
    project_digests: Mapping[CaseId, str],
) -> frozenset[CaseId]:
    """The cases that open none of the changed files.

    A case whose test or project files are not those of the baseline may read other
    files now, so it counts as reached; so does one of which it is not known what it
    reads. A file that is added, deleted or renamed reaches every case: nothing tells
    who would have looked for it.

    Args:
        known: what was seen at the base.
        changed: paths with how they changed: added, modified or deleted.
        fingerprints: of the cases as they are collected now.
        project_digests: of the project files that each case read at the baseline, as
            these files are now.
    """
    if any(how != "modified" for _, how in changed):
        return frozenset()
    names = {path for path, _ in changed}
    found = set()
    for case, fingerprint in fingerprints.items():
        seen = known.cases.get(case)
        if seen is None or seen.reach is None:
            continue
        same_test = seen.fingerprint == short_fingerprint(fingerprint)
        same_code = seen.project_digest == project_digests.get(case, "")
        if same_test and same_code and names.isdisjoint(seen.reach):
            found.add(case)
    return frozenset(found)
