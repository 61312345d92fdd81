"""Putting a version into the working tree: all of it, or nothing."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.removal import remove
from pytest_evo.artifact.trees import restore
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry


def apply_tree(
    directory: Path, old: Tree, new: Tree, blobs: BlobStore
) -> tuple[str, ...]:
    """Turn the files of ``old`` into those of ``new``; return the paths that changed.

    Every content is written beside the directory first, then moved into place file by
    file, so that a reader meets whole files only. Files that did not change are not
    touched, those that did keep their permissions but for the execute bits, and files
    that belong to no version (byte code, names outside ``include``) stay.

    Args:
        directory: the artifact in the working tree, a real directory.
        old: a snapshot of what is there now.
        new: what is to be there.
        blobs: holds the contents of ``new``.

    Raises:
        ArtifactProblem: a file cannot be written; everything is as it was before.
    """
    work = _Work(directory, {e.path: e for e in old.entries}, new)
    if not work.gone and not work.fresh:
        return ()
    try:
        staging = Path(tempfile.mkdtemp(prefix=".evo-apply-", dir=directory.parent))
    except OSError as error:
        raise _refused(directory, error) from error
    try:
        restore(new, blobs, staging / "new")
        work.run(staging / "new", staging / "old")
    except OSError as error:
        work.undo()
        raise _refused(directory, error) from error
    except BaseException:
        work.undo()
        raise
    finally:
        remove(staging)
    return tuple(sorted({*work.gone, *(entry.path for entry in work.fresh)}))


def _refused(directory: Path, error: OSError) -> ArtifactProblem:
    where = error.filename or directory
    return ArtifactProblem(
        f"cannot write {where}: {error.strerror or error}. {directory} is as it was "
        "before. Make it writable, with room on the disk, then try again."
    )


def _differs(was: TreeEntry, now: TreeEntry) -> bool:
    runs = (now.mode ^ was.mode) & 0o100 and now.kind == "file"
    return (was.kind, was.blob, was.target) != (now.kind, now.blob, now.target) or bool(
        runs
    )


class _Work:
    """What has to be done, and how to take back what was."""

    def __init__(self, directory: Path, old: dict[str, TreeEntry], new: Tree) -> None:
        now = {entry.path: entry for entry in new.entries}
        self.new = new
        self._directory = directory
        self._old = old
        # inner names first, so that folders are empty when their turn comes
        self.gone = sorted(
            (p for p, e in old.items() if p not in now or now[p].kind != e.kind),
            reverse=True,
        )
        self.fresh = [
            entry
            for entry in new.entries
            if entry.path not in old or _differs(old[entry.path], entry)
        ]
        self._undo: list[Callable[[], object]] = []

    def run(self, new: Path, aside: Path) -> None:
        """Move everything; stop at the first error."""
        aside.mkdir()
        folders = [e for e in self.new.entries if e.kind == "dir"]
        for entry in folders:
            (new / entry.path).chmod(0o700)  # files can leave read-only ones, too
        for number, path in enumerate(self.gone):
            self._take_away(self._directory / path, aside / f"gone-{number}", path)
        for number, entry in enumerate(self.fresh):
            self._put(entry, new / entry.path, aside / f"was-{number}")
        for entry in reversed(self.fresh):
            if entry.kind == "dir":
                (self._directory / entry.path).chmod(stat.S_IMODE(entry.mode))

    def undo(self) -> None:
        """Take back what was done, last things first."""
        while self._undo:
            self._undo.pop()()

    def _take_away(self, place: Path, aside: Path, path: str) -> None:
        replaced = any(entry.path == path for entry in self.fresh)
        keep = self._old[path].kind == "dir" and not replaced
        if keep and any(place.iterdir()):
            return  # something lives there that is no part of any version
        place.rename(aside)
        self._undo.append(lambda: aside.rename(place))

    def _put(self, entry: TreeEntry, new: Path, aside: Path) -> None:
        place = self._directory / entry.path
        if entry.kind == "dir":
            if place.is_symlink() or not place.is_dir():
                place.mkdir(0o700)
                self._undo.append(place.rmdir)
            return
        was = self._old.get(entry.path)
        if was is not None and was.kind == "file" == entry.kind:
            mode = stat.S_IMODE(place.stat(follow_symlinks=False).st_mode)
            new.chmod(mode & ~0o111 | _execute_bits(mode, entry.mode))
        if place.is_symlink() or place.exists():
            shutil.copy2(place, aside, follow_symlinks=False)
            self._undo.append(lambda: os.replace(aside, place))  # noqa: PTH105
        else:
            self._undo.append(lambda: place.unlink(missing_ok=True))
        new.replace(place)


def _execute_bits(old: int, new: int) -> int:
    """Whoever may read may execute, where the new version is executable."""
    return (old & 0o444) >> 2 if new & 0o100 else 0
