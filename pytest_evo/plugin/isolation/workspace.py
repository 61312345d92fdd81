"""Mode ``workspace``: a copy of the project with the candidate in place."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from pathlib import Path
from typing import TypeAlias

from pytest_evo.errors import EvoError
from pytest_evo.models import TreeEntry
from pytest_evo.plugin.isolation.candidates import CandidateCache
from pytest_evo.plugin.isolation.candidates import remove_tree
from pytest_evo.plugin.isolation.paths import is_virtualenv
from pytest_evo.plugin.isolation.paths import SKIPPED

_Mark: TypeAlias = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Workspace:
    """One working copy: ``root`` is its rootdir, ``artifact`` the candidate in it."""

    root: Path
    artifact: Path
    marks: dict[str, _Mark] = field(default_factory=dict, repr=False, compare=False)


class Workspaces:
    """Working copies of a project; made on demand, restored and used again.

    The project is read once, so that edits during a run change no rollout. Version
    control, environments, caches and byte code are left out.
    """

    def __init__(
        self,
        directory: Path,
        project: Path,
        artifact: Path,
        cache: CandidateCache,
        files: Sequence[str] = (),
    ) -> None:
        """Prepare; ``files`` are what ``include`` selects (empty: everything)."""
        self._directory = directory
        self._project = project.resolve()
        self._name = artifact.resolve().relative_to(self._project)
        self._cache = cache
        self._files = tuple(files)
        self._template = directory / "template"
        self._idle: list[Workspace] = []
        self._count = 0

    def take(self, manifest: Sequence[TreeEntry]) -> Workspace:
        """A working copy that holds the candidate and otherwise the project.

        Raises:
            EvoError: the project cannot be copied.
        """
        workspace = self._idle.pop() if self._idle else self._make()
        self._cache.copy(manifest, workspace.artifact)
        return workspace

    def violation(
        self,
        workspace: Workspace,
        manifest: Sequence[TreeEntry],
        protected: Collection[str] = (),
    ) -> str | None:
        """What a request changed in the candidate's and in ``protected`` files."""
        beside = self._template / self._name
        known = {name for name, _ in _names(beside)} if beside.is_dir() else set()
        changed = sorted(
            name
            for name in protected
            if name in workspace.marks
            and _mark_at(workspace.root / name) != workspace.marks[name]
        )
        own = self._cache.violation(workspace.artifact, manifest, known)
        told = f"changed {', '.join(changed[:5])} of the project" if changed else None
        return "; ".join(filter(None, (told, own))) or None

    def give_back(self, workspace: Workspace) -> None:
        """Restore a working copy for the next request."""
        if self._name.parts:
            remove_tree(workspace.artifact)
        self._restore(workspace)
        self._idle.append(workspace)

    def close(self) -> None:
        """Remove all working copies."""
        self._idle.clear()
        remove_tree(self._directory)

    # -- copying -------------------------------------------------------------------

    def _make(self) -> Workspace:
        if not self._template.is_dir():
            self._directory.mkdir(parents=True, exist_ok=True)
            part = self._directory / "template.part"
            remove_tree(part)
            self._copy_folder(self._project, part, self._project, self._template)
            self._drop_artifact(part)
            part.rename(self._template)
        self._count += 1
        root = self._directory / str(self._count)
        self._copy_folder(self._template, root, self._template, root)
        workspace = Workspace(root, root / self._name)
        self._mark(workspace)
        return workspace

    def _drop_artifact(self, copy: Path) -> None:
        """Take out what the candidate brings."""
        for name in self._files:
            (copy / self._name / name).unlink(missing_ok=True)
        if not self._files and self._name.parts:
            remove_tree(copy / self._name)

    def _copy_folder(self, source: Path, target: Path, top: Path, new: Path) -> None:
        """Copy what is below ``source``; links inside ``top`` lead to ``new``."""
        target.mkdir(parents=True)
        try:
            for entry in sorted(os.scandir(source), key=lambda entry: entry.name):
                place = target / entry.name
                if entry.is_symlink():
                    place.symlink_to(_moved(Path(entry.path), top, new))
                elif entry.is_dir():
                    if not self._is_left_out(Path(entry.path)):
                        self._copy_folder(Path(entry.path), place, top, new)
                elif entry.is_file():
                    shutil.copy2(entry.path, place)
            shutil.copystat(source, target)
        except OSError as error:
            raise EvoError(
                f"the project cannot be copied for a workspace: {error}"
            ) from error

    def _is_left_out(self, folder: Path) -> bool:
        if folder == self._project / self._name and not self._files:
            return True
        if folder.name in SKIPPED or folder == self._directory.resolve():
            return True
        return (folder / "CACHEDIR.TAG").is_file() or is_virtualenv(folder)

    # -- restoring -----------------------------------------------------------------

    def _mark(self, workspace: Workspace) -> None:
        workspace.marks.clear()
        workspace.marks.update(
            (name, _mark_of(status)) for name, status in _names(workspace.root)
        )

    def _restore(self, workspace: Workspace) -> None:
        """Bring back what differs from the moment the copy was made."""
        root, wanted = workspace.root, workspace.marks
        if not root.is_dir() or root.is_symlink():
            remove_tree(root)
            root.mkdir()
        found = dict(_names(root))
        strange = [
            name
            for name, status in found.items()
            if wanted.get(name) != _mark_of(status)
        ]
        for name in strange:
            remove_tree(root / name)
        for name in sorted(wanted):
            place = root / name
            if not place.is_symlink() and not place.exists():
                workspace.marks[name] = self._bring_back(name, root)
        shutil.copystat(self._template, root)

    def _bring_back(self, name: str, root: Path) -> _Mark:
        source, place = self._template / name, root / name
        if source.is_symlink():
            place.symlink_to(_moved(source, self._template, root))
        elif source.is_dir():
            place.mkdir()
            shutil.copystat(source, place)
        else:
            shutil.copy2(source, place)
        return _mark_of(place.lstat())


def _names(top: Path, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """All names below a folder, outer ones first; links are not followed."""
    for entry in sorted(os.scandir(top / below), key=lambda entry: entry.name):
        status = entry.stat(follow_symlinks=False)
        name = f"{below}{entry.name}"
        yield name, status
        if stat.S_ISDIR(status.st_mode) and os.access(entry.path, os.R_OK | os.X_OK):
            yield from _names(top, f"{name}/")


def _mark_of(status: os.stat_result) -> _Mark:
    """What cannot stay the same when a file is written; of a folder only its mode."""
    if stat.S_ISDIR(status.st_mode):
        return (status.st_mode,)
    return (
        status.st_mode,
        status.st_size,
        status.st_ino,
        status.st_mtime_ns,
        status.st_ctime_ns,
        status.st_nlink,
    )


def _mark_at(place: Path) -> _Mark | None:
    try:
        return _mark_of(place.lstat())
    except OSError:
        return None


def _moved(link: Path, top: Path, new: Path) -> str:
    """Where a link has to lead in a copy: inside it stays inside, outside it stays."""
    target = os.readlink(link)  # noqa: PTH115 (as spelled)
    full = os.path.normpath(link.parent / target)
    inside = full == str(top) or full.startswith(f"{top}{os.sep}")
    if os.path.isabs(target):  # noqa: PTH117
        return str(new) + full[len(str(top)) :] if inside else target
    return target if inside else full
