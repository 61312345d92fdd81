"""The engine's door to files: candidates to workspaces and back to versions."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.blobs import TreeStore
from pytest_evo.artifact.checks import check_tree
from pytest_evo.artifact.checks import knob_value
from pytest_evo.artifact.checks import refuse
from pytest_evo.artifact.folders import Folders
from pytest_evo.artifact.trees import changes
from pytest_evo.artifact.trees import Known
from pytest_evo.artifact.trees import make_tree
from pytest_evo.artifact.trees import remove
from pytest_evo.artifact.trees import see
from pytest_evo.artifact.trees import Seen
from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import ProposalRefused
from pytest_evo.evidence import Evidence
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Case
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Node
from pytest_evo.models import Proposal
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash
from pytest_evo.protocols import Edit
from pytest_evo.protocols import KnobValue
from pytest_evo.protocols import ProposalKey

EvidenceWriter: TypeAlias = Callable[[Path, Evidence], None]
"""Fills ``evidence/`` with what a proposer may see."""
UserCheck: TypeAlias = Callable[[Path], Iterable[str]]
"""Looks at the edited directory; returns problems."""
Remarks: TypeAlias = Callable[[Tree, Tree], Iterable[str]]
"""Looks at a version and its edit; returns warnings, which stop nothing."""
_MOST_KNOB_SETS = 64


class DirectoryWorkshop:
    """A workshop whose workspaces are directories below ``root``.

    Args:
        root: a directory of its own, best outside the project.
        blobs: holds the contents of all versions.
        trees: holds the versions themselves.
        schema: what may change.
        write_evidence: fills ``evidence/``; without it the folder stays empty.
        user_check: the last check, for problems that only the project knows.
        remarks: says what a person should know of an edit.
    """

    def __init__(
        self,
        root: Path,
        blobs: BlobStore,
        trees: TreeStore,
        schema: ArtifactSchema,
        *,
        write_evidence: EvidenceWriter | None = None,
        user_check: UserCheck | None = None,
        remarks: Remarks | None = None,
    ) -> None:
        self._root = root
        self._blobs = blobs
        self._trees = trees
        self._schema = schema
        self._write_evidence = write_evidence
        self._user_check = user_check
        self._remarks = remarks
        self._knobs: dict[TreeHash, tuple[KnobValue, ...]] = {}
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folders = Folders(root / "left", blobs)
        self._filled: dict[ProposalKey, Mapping[str, Known]] = {}

    # -- versions --------------------------------------------------------------------

    def register(self, tree: Tree) -> TreeHash:
        """Keep a version for ever; return its hash."""
        return self._trees.put(tree)

    def tree(self, name: TreeHash) -> Tree:
        """A version by its hash.

        Raises:
            ArtifactProblem: it was never registered.
        """
        return self._trees.get(name)

    def size(self, tree: TreeHash) -> int:
        """Bytes of all files of a tree."""
        return sum(entry.size for entry in self.tree(tree).entries)

    def empty(self) -> TreeHash:
        """A tree without any file."""
        return self.register(make_tree(()))

    def knobs(self, tree: TreeHash) -> tuple[KnobValue, ...]:
        """The values that the declared knobs have in a tree.

        Raises:
            ArtifactProblem: a file or key is not there.
        """
        known = self._knobs.get(tree)
        if known is None:
            version = self.tree(tree)
            known = tuple(
                KnobValue(knob, knob_value(knob, version, self._blobs))
                for knob in self._schema.knobs
            )
            while len(self._knobs) >= _MOST_KNOB_SETS:
                del self._knobs[next(iter(self._knobs))]
            self._knobs[tree] = known
        return known

    # -- workspaces ------------------------------------------------------------------

    def open(
        self,
        key: ProposalKey,
        base: TreeHash,
        nodes: Sequence[Node],
        cases: Sequence[Case],
        evidence: Evidence | None = None,
    ) -> Path:
        """Make a workspace with ``artifact/`` (files of ``base``) and ``evidence/``."""
        workspace = self._workspace(key)
        try:
            os.mkdir(workspace, 0o700)  # noqa: PTH102, speed
        except FileExistsError:  # of a session that was killed
            remove(workspace)
            workspace.mkdir(mode=0o700)
        version = self.tree(base)
        self._filled[key] = self._folders.fill(workspace / "artifact", version)
        folder = workspace / "evidence"
        os.mkdir(folder)  # noqa: PTH102, speed
        if self._write_evidence is not None and evidence is not None:
            self._write_evidence(folder, evidence)
        return workspace

    def close(self, key: ProposalKey, base: TreeHash, answer: Proposal | str) -> Edit:
        """Check the edited workspace, store its tree and remove the workspace.

        The workspace is removed also when the proposal is refused.

        Raises:
            ProposalRefused: nothing changed, the edit surface was left, a forbidden
                file, a syntax error, a size limit, a changed file without a reason, or
                a check of the user's.
        """
        try:
            return self._close(key, base, answer)
        finally:
            self.discard(key)

    def discard(self, key: ProposalKey) -> None:
        """Remove a workspace whose proposal failed; a missing one is fine."""
        self._filled.pop(key, None)
        remove(self._workspace(key))

    def _workspace(self, key: ProposalKey) -> Path:
        return self._root / f"{key.iteration:04}-{key.step}-{key.attempt}"

    def _close(self, key: ProposalKey, base: TreeHash, answer: Proposal | str) -> Edit:
        folder = self._workspace(key) / "artifact"
        old = self.tree(base)
        seen = self._read(folder, self._filled.get(key))
        new = seen.tree
        changed = changes(old, new)
        if old.hash == new.hash or not changed:
            raise ProposalRefused(
                "Nothing changed in artifact/. Edit at least one file in place."
            )
        check_tree(old, new, self._blobs, self._schema, changed)
        changelog, warnings = _changelog(dict(changed), answer)
        if self._user_check is not None:
            refuse(list(self._user_check(folder)))
        if self._remarks is not None:
            warnings = (*warnings, *self._remarks(old, new))
        self._folders.take(folder, new, seen.look)
        return Edit(self.register(new), changelog, warnings)

    def _read(self, folder: Path, known: Mapping[str, Known] | None) -> Seen:
        if not _is_folder(folder):
            raise ProposalRefused(
                "The folder artifact/ is gone or was replaced. Edit the files in it."
            )
        try:
            return see(
                folder,
                self._blobs,
                max_bytes=self._schema.max_bytes,
                max_files=self._schema.max_files,
                known=known,
            )
        except ArtifactProblem as error:
            raise ProposalRefused(f"The edit is not evaluated:\n- {error}") from error


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _changelog(
    changed: dict[str, str], answer: Proposal | str
) -> tuple[tuple[ChangelogEntry, ...], tuple[str, ...]]:
    """One entry for each changed file, and what was wrong with the others."""
    if isinstance(answer, str):
        if not answer.strip():
            raise ProposalRefused("The reason of the change is empty. Say why.")
        entries = (
            ChangelogEntry(file, answer, change) for file, change in changed.items()
        )
        return tuple(entries), ()
    told: dict[str, ChangelogEntry] = {}
    warnings: list[str] = []
    for entry in answer.changelog:
        file = _named(entry.file, changed)
        if file is None:
            warnings.append(f"changelog: {entry.file!r} did not change; entry dropped")
        elif not entry.reason.strip():
            warnings.append(f"changelog: {entry.file!r} has no reason; entry dropped")
        elif file in told:
            warnings.append(f"changelog: {entry.file!r} is there twice; first one kept")
        else:
            told[file] = replace(entry, file=file, change=changed[file])
    if missing := [file for file in changed if file not in told]:
        raise ProposalRefused(
            "The changelog says nothing of these changed files: "
            f"{', '.join(missing)}. Add an entry with file and reason for each."
        )
    return tuple(told[file] for file in changed), tuple(warnings)


def _named(file: str, changed: dict[str, str]) -> str | None:
    """The changed file that an entry means, however it wrote the name."""
    plain = file.strip().removeprefix("./")
    for name in (file, plain, plain.removeprefix("artifact/")):
        if name in changed:
            return name
    return None
