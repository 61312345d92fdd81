"""The project at a commit beside the working tree: what differs, and a copy of it.

The working tree's files are read and hashed as git would; git itself is not asked about
them, because it would run the filters that the change brings.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.artifact.links import leads_out
from pytest_evo.artifact.repository import GitEntry
from pytest_evo.artifact.repository import Repository
from pytest_evo.artifact.schema import included
from pytest_evo.errors import BaselineProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.plugin.isolation.paths import SKIPPED

_MOST_BYTES = 500_000_000
_READ_AT_MOST = 5_000_000  # a bigger file of the same size is taken for the same
_SETTINGS = frozenset(
    {
        "conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "pytest.toml",
        "pytest_evo.toml",
        "pyproject.toml",
        "setup.cfg",
        "tox.ini",
    }
)
_TESTS = ("test", "eval")


@dataclass(frozen=True, slots=True)
class ProjectChanges:
    """Files outside of the artifact that are not as they were at the commit."""

    tests: tuple[str, ...] = ()  # test files, conftests, pytest's settings
    code: tuple[str, ...] = ()  # everything else


class ProjectAt:
    """The files of a project at a commit, without its artifact."""

    def __init__(
        self,
        repository: Repository,
        commit: str,
        rootdir: Path,
        schema: ArtifactSchema,
        test_files: Collection[str],
    ) -> None:
        """Read which files there are; ``test_files`` are those of the cases now."""
        self._repository = repository
        self._commit = commit
        self._rootdir = rootdir
        self._schema = schema
        self._test_files = frozenset(test_files)
        self._test_folders = _folders(test_files)
        self._entries: Mapping[str, GitEntry] = {
            entry.path: entry
            for entry in repository.entries(commit, "") or ()
            if entry.kind in ("file", "link") and not self._in_artifact(entry.path)
        }

    def changes(self) -> ProjectChanges:
        """What differs from the working tree, files that are new in it too."""
        changed = [
            path for path, entry in self._entries.items() if not self._is_same(entry)
        ]
        changed += [
            path
            for path in self._repository.working("")
            if path not in self._entries
            and not self._in_artifact(path)
            and (self._rootdir / path).exists()
        ]
        tests = sorted(path for path in changed if self._is_test(path))
        code = sorted(path for path in changed if not self._is_test(path))
        return ProjectChanges(tuple(tests), tuple(code))

    def write(self, folder: Path) -> None:
        """Write the project as it was, without the artifact, into a new folder.

        Raises:
            BaselineProblem: it is too big to be copied, or not here.
        """
        self._write(folder, self._entries.values())

    def write_under_tests(self, folder: Path) -> None:
        """Write the project as it was under the tests and settings as they are now."""
        kept = [e for e in self._entries.values() if not self._is_test(e.path)]
        self._write(folder, kept)
        for path in self._own_tests():
            target = folder / path
            if target.exists() or target.is_symlink():
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(self._rootdir / path, target, follow_symlinks=False)

    # -- inside ------------------------------------------------------------------------

    def _write(self, folder: Path, entries: Collection[GitEntry]) -> None:
        size = sum(entry.size for entry in entries)
        if size > _MOST_BYTES:
            raise BaselineProblem(
                f"the project at {self._commit[:12]} has {size:,} bytes, too many for "
                "a copy. Leave out --evo-gate-arm=tree."
            )
        links: dict[str, str] = {}
        contents = self._repository.contents(self._commit, entries)
        folder.mkdir(parents=True, exist_ok=True)
        for entry, data in zip(entries, contents, strict=True):
            parts = entry.path.split("/")
            if {"", ".", "..", ".git"} & set(parts):
                continue
            target = folder / entry.path
            if entry.kind == "link":
                links[entry.path] = os.fsdecode(data)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = self._rootdir / entry.path
            content = self._repository.large_file(data, beside)
            target.write_bytes(data if content is None else content)
            target.chmod(0o755 if entry.mode & 0o100 else 0o644)
        for path, aim in links.items():
            if os.path.isabs(aim) or leads_out(path, links):  # noqa: PTH117
                continue
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).symlink_to(aim)

    def _is_same(self, entry: GitEntry) -> bool:
        path = self._rootdir / entry.path
        try:
            if entry.kind == "link":
                data = os.fsencode(path.readlink())
            elif (
                path.is_symlink()
                or not path.is_file()
                or path.stat().st_size != entry.size
            ):
                return False
            elif entry.size > _READ_AT_MOST:
                return True
            else:
                data = path.read_bytes()
        except OSError:
            return False
        return git_id(data, like=entry.id) == entry.id

    def _in_artifact(self, path: str) -> bool:
        inside = f"{self._schema.directory}/"
        if not path.startswith(inside):
            return False
        return included(self._schema, path.removeprefix(inside))

    def _is_test(self, path: str) -> bool:
        name = path.rpartition("/")[2]
        if path in self._test_files or name in _SETTINGS or _looks_like_a_test(name):
            return True
        return any(path.startswith(folder) for folder in self._test_folders)

    def _own_tests(self) -> Iterator[str]:
        """Tests and settings of the working tree, whether git knows them or not."""
        for folder, folders, files in os.walk(self._rootdir):
            folders[:] = sorted(name for name in folders if name not in SKIPPED)
            for name in sorted(files):
                path = Path(folder, name).relative_to(self._rootdir).as_posix()
                if not self._in_artifact(path) and self._is_test(path):
                    yield path


def git_id(data: bytes, *, like: str) -> str:
    """What git calls some bytes, in the form of another id."""
    kind = hashlib.sha1 if len(like) == 40 else hashlib.sha256
    return kind(b"blob %d\0" % len(data) + data).hexdigest()


def _looks_like_a_test(name: str) -> bool:
    return name.endswith(".py") and (
        name.startswith("test_") or name.endswith("_test.py")
    )


def _folders(test_files: Collection[str]) -> tuple[str, ...]:
    """Top folders that hold tests by their name; code beside tests is no test."""
    tops = {path.partition("/")[0] for path in test_files if "/" in path}
    return tuple(sorted(f"{top}/" for top in tops if top.lower().startswith(_TESTS)))
