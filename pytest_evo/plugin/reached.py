"""What the baseline shows beside scores: project files read, slow fixtures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from pytest_evo.models import CaseId
from pytest_evo.models import Rollout
from pytest_evo.protocols import RolloutStore

SETTINGS_FILES = frozenset({"pyproject.toml", "pytest_evo.toml"})
"""Read by fixtures for the artifact's place; what they set is checked by itself."""
NOTEWORTHY_SHARE = 0.1
NOTEWORTHY_SECONDS = 0.05  # a rollout


class ReachedFiles:
    """Digests of the non-artifact project files that cases read."""

    def __init__(self, rootdir: Path) -> None:
        self._rootdir = rootdir
        self._hashes: dict[str, str] = {}

    def digest(self, files: Iterable[str]) -> str:
        """One digest of names and contents; empty where nothing was read."""
        names = sorted(set(files) - SETTINGS_FILES)
        if not names:
            return ""
        text = "\0".join(f"{name}\0{self._hash(name)}" for name in names)
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]

    def _hash(self, name: str) -> str:
        if name not in self._hashes:
            try:
                content = (self._rootdir / name).read_bytes()
            except OSError:
                self._hashes[name] = "gone"
            else:
                self._hashes[name] = sha256(content).hexdigest()
        return self._hashes[name]


def reached_digests(
    rollouts: Sequence[Rollout], store: RolloutStore, rootdir: Path
) -> dict[CaseId, str]:
    """What each case read of the project, as part of its fingerprint."""
    files = ReachedFiles(rootdir)
    digests = {
        row.case: files.digest(store.detail(row.trace).project_files)
        for row in rollouts
        if row.trace is not None
    }
    return {case: digest for case, digest in digests.items() if digest}


def slow_fixtures(
    rollouts: Sequence[Rollout], store: RolloutStore, among: Collection[str]
) -> dict[str, float]:
    """Fixtures that are worth sharing, with their share of rollout time.

    Args:
        rollouts: of the start.
        store: has their details.
        among: the fixtures that can be shared at all.

    Returns:
        Those whose set-up takes more than 10 % of the time, and 50 ms a rollout.
    """
    spent: Counter[str] = Counter()
    total, count = 0.0, 0
    for row in rollouts:
        if row.trace is None:
            continue
        total, count = total + row.seconds, count + 1
        fixtures: Mapping[str, float] = store.detail(row.trace).fixtures
        for name, seconds in fixtures.items():
            spent[name] += seconds  # type: ignore[assignment]
    whole = max(total, sum(spent.values()))
    return {
        name: seconds / whole
        for name, seconds in spent.items()
        if name in among
        and seconds > max(NOTEWORTHY_SHARE * whole, NOTEWORTHY_SECONDS * count)
    }
