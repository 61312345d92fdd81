"""Versions as git has them at a commit: read, never checked out, fetched or filtered.

A ref comes from a command line and what it names from strangers: it is resolved to the
id of a commit once, and only ids and literal paths are given to git afterwards. No
attribute, filter, hook or monitor of the repository runs.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.artifact.blobs import BlobStore
from pytest_evo.artifact.lfs import large_file
from pytest_evo.errors import BaselineProblem
from pytest_evo.models import TreeEntry

_SAFE = (
    "--no-optional-locks",
    "--no-pager",
    "--literal-pathspecs",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.untrackedCache=false",
    "-c",
    f"core.hooksPath={os.devnull}",
)
_LOCAL = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_WORK_TREE",
)
"""Set by a hook that runs the tests; they would turn git to something else."""
_SECONDS = 300.0
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/+-]*")
_KINDS = {"100644": "file", "100755": "file", "100664": "file", "120000": "link"}


@dataclass(frozen=True, slots=True)
class GitEntry:
    """One name in a commit; ``path`` is relative to the folder that was asked for."""

    path: str
    kind: str  # file | link | dir | submodule
    mode: int
    id: str
    size: int


class Repository:
    """The git repository that a project is in.

    Raises:
        BaselineProblem: git is missing, the project is in no repository, or git does
            not trust its owner; the message says what to type.
    """

    def __init__(self, rootdir: Path) -> None:
        self._rootdir = rootdir
        done = self._git("rev-parse", "--show-prefix", "--git-common-dir")
        if done.returncode:
            raise _no_repository(rootdir, done.stderr.decode(errors="replace"))
        prefix, common = done.stdout.decode(errors="surrogateescape").splitlines()[:2]
        self._prefix = prefix
        self._common = (rootdir / common).resolve()

    @property
    def prefix(self) -> str:
        """Where the project is in the repository: empty, or with a slash at its end."""
        return self._prefix

    @property
    def is_shallow(self) -> bool:
        """Whether history was cut off when the repository was cloned."""
        return self._text("rev-parse", "--is-shallow-repository") == "true"

    def commit(self, ref: str) -> str:
        """The id of the commit that a ref names.

        Raises:
            BaselineProblem: there is none here; the message says how to get it.
        """
        if not ref or ref.startswith("-") or not ref.isprintable():
            raise BaselineProblem(
                f"--evo-gate=git:{ref!r} names no commit: a ref does not begin with "
                "'-' and has no control characters. Type one like git:origin/main."
            )
        done = self._git(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{ref}^{{commit}}"
        )
        found = done.stdout.decode(errors="replace").strip()
        if done.returncode or not _ID.fullmatch(found):
            raise BaselineProblem(self._how_to_get(ref))
        return found

    def head(self) -> str | None:
        """The commit that is checked out; None before the first one."""
        done = self._git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        found = done.stdout.decode(errors="replace").strip()
        return found if _ID.fullmatch(found) else None

    def left_at(self, commit: str) -> str | None:
        """Where the checked-out branch left a commit's; None where it has not.

        A shallow clone does not know: what is cut off cannot be told from what was
        never there.
        """
        if self.is_shallow:
            return None
        found = self._text("merge-base", commit, "HEAD")
        return found if _ID.fullmatch(found) and found != commit else None

    def entries(self, commit: str, folder: str) -> tuple[GitEntry, ...] | None:
        """Everything below a folder of the project; None where it is not there.

        Raises:
            BaselineProblem: a name that is not UTF-8, or the objects are not here.
        """
        place = f"{self._prefix}{folder}".strip("/")
        spec = f"{commit}:{place}" if place else f"{commit}^{{tree}}"
        tree = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", spec)
        found = tree.stdout.decode(errors="replace").strip()
        if tree.returncode or not _ID.fullmatch(found):
            return None
        if self._text("cat-file", "-t", found) != "tree":
            return None
        listing = self._git("ls-tree", "-r", "-t", "-z", "-l", "--full-tree", found)
        if listing.returncode:
            raise self._absent(commit, listing.stderr)
        return tuple(_parsed(listing.stdout, commit))

    def contents(self, commit: str, entries: Iterable[GitEntry]) -> Iterator[bytes]:
        """The bytes of files and the targets of links, in order.

        Raises:
            BaselineProblem: an object is not here.
        """
        ids = [entry.id for entry in entries]
        done = self._git("cat-file", "--batch", feed="\n".join([*ids, ""]).encode())
        if done.returncode:
            raise self._absent(commit, done.stderr)
        data, at = done.stdout, 0
        for one in ids:
            end = data.index(b"\n", at)
            words = data[at:end].split()
            if len(words) != 3 or words[0].decode() != one:
                raise self._absent(commit, data[at:end])
            size = int(words[2])
            yield data[end + 1 : end + 1 + size]
            at = end + size + 2

    def file(self, commit: str, path: str) -> bytes | None:
        """The content of one file of the project; None where it is not there."""
        spec = f"{commit}:{self._prefix}{path}"
        done = self._git("rev-parse", "--verify", "--quiet", "--end-of-options", spec)
        found = done.stdout.decode(errors="replace").strip()
        if not _ID.fullmatch(found) or self._text("cat-file", "-t", found) != "blob":
            return None
        entry = GitEntry(path, "file", 0o644, found, 0)
        return next(self.contents(commit, [entry]))

    def working(self, folder: str) -> tuple[str, ...]:
        """Files below a folder that are in git's index, or new and not ignored."""
        kinds = ("--cached", "--others", "--exclude-standard")
        done = self._git("ls-files", "-z", *kinds, "--", folder or ".")
        names = done.stdout.decode(errors="surrogateescape").split("\0")
        return tuple(sorted({name for name in names if name}))

    def untracked(self, folder: str) -> tuple[str, ...]:
        """Files below a folder that git does not know, ignored ones too."""
        done = self._git("ls-files", "-z", "--others", "--", folder)
        names = done.stdout.decode(errors="surrogateescape").split("\0")
        return tuple(sorted(name for name in names if name))

    def unmerged(self, folder: str) -> tuple[str, ...]:
        """Files below a folder in which a merge left conflicts."""
        done = self._git("ls-files", "-z", "--unmerged", "--", folder)
        rows = done.stdout.decode(errors="surrogateescape").split("\0")
        return tuple(sorted({row.partition("\t")[2] for row in rows if row}))

    def large_file(self, pointer: bytes, beside: Path) -> bytes | None:
        """What a Git LFS pointer stands for; the data itself where it is none.

        None: neither the store of Git LFS nor the working tree's file has it.
        """
        return large_file(pointer, self._common / "lfs" / "objects", beside)

    # -- git ---------------------------------------------------------------------------

    def _git(
        self, *arguments: str, feed: bytes = b""
    ) -> subprocess.CompletedProcess[bytes]:
        environment = {k: v for k, v in os.environ.items() if k not in _LOCAL}
        environment.update(
            GIT_OPTIONAL_LOCKS="0",
            GIT_NO_LAZY_FETCH="1",
            GIT_TERMINAL_PROMPT="0",
            LC_ALL="C",
        )
        try:
            return subprocess.run(
                ["git", *_SAFE, *arguments],
                cwd=self._rootdir,
                env=environment,
                input=feed,
                capture_output=True,
                timeout=_SECONDS,
                check=False,
            )
        except OSError as error:
            raise BaselineProblem(
                f"git cannot be run: {error.strerror}. Install git, or compare with a "
                "file: --evo-gate=baseline (pytest --evo-baseline-update writes one)."
            ) from error
        except subprocess.TimeoutExpired as error:
            raise BaselineProblem(
                f"git {arguments[0]} has not answered for {_SECONDS:.0f} s. Type "
                "git status in the project to see why."
            ) from error

    def _text(self, *arguments: str) -> str:
        return self._git(*arguments).stdout.decode(errors="replace").strip()

    def _how_to_get(self, ref: str) -> str:
        remotes = self._text("remote").split()
        said = f"--evo-gate=git:{ref}: there is no such commit in this repository"
        if not remotes:
            return (
                f"{said}, and it has no remote. Name a branch, tag or commit that is "
                "here, or compare with a file: --evo-gate=baseline."
            )
        if not _PLAIN.fullmatch(ref):
            more = " --unshallow" if self.is_shallow else ""
            return f"{said}. Type: git fetch{more} {remotes[0]} and look with git log"
        first = "origin" if "origin" in remotes else remotes[0]
        remote, slash, branch = ref.partition("/")
        if not slash or remote not in remotes:
            remote, branch = first, ref
        if _ID.fullmatch(ref):
            wanted, then = ref, ""
        else:
            wanted = f"{branch}:refs/remotes/{remote}/{branch}"
            then = f" and compare with git:{remote}/{branch}"
        if not self.is_shallow:  # --depth would cut off the history that is here
            return f"{said}. Type: git fetch {remote} {wanted}{then}"
        return (
            f"{said}, which is a shallow clone. Type: git fetch --depth=1 {remote} "
            f"{wanted}{then}"
        )

    def _absent(self, commit: str, said: bytes) -> BaselineProblem:
        last = (said.decode(errors="replace").strip().splitlines() or ["missing"])[-1]
        return BaselineProblem(
            f"files of {commit[:12]} are not in this repository ({last[:200]}): it is "
            "a partial clone. Type: git fetch --refetch --no-filter --depth=1 origin "
            f"{commit}"
        )


def _parsed(listing: bytes, commit: str) -> Iterator[GitEntry]:
    for row in listing.split(b"\0"):
        if not row:
            continue
        facts, _, name = row.partition(b"\t")
        mode, kind, found, size = facts.decode().split()
        try:
            path = name.decode()
        except UnicodeDecodeError:
            raise BaselineProblem(
                f"{name!r} in {commit[:12]} is not UTF-8. Rename it there, or compare "
                "with another commit."
            ) from None
        known = _KINDS.get(mode, "file") if kind == "blob" else kind
        known = {"tree": "dir", "commit": "submodule"}.get(known, known)
        yield GitEntry(
            path, known, int(mode, 8) & 0o777, found, int(size) if size != "-" else 0
        )


def _no_repository(rootdir: Path, said: str) -> BaselineProblem:
    if "dubious ownership" in said:
        return BaselineProblem(
            f"git does not trust {rootdir}, because another user owns it. Type: "
            f"git config --global --add safe.directory {rootdir}"
        )
    return BaselineProblem(
        f"{rootdir} is not in a git repository, so there is no ref to compare with. "
        "Compare with a file instead: --evo-gate=baseline, or --evo-gate=FILE "
        "(pytest --evo-baseline-update writes one)."
    )


def as_entry(entry: GitEntry, data: bytes, blobs: BlobStore) -> TreeEntry:
    """A file or link of a commit as an entry of a version."""
    if entry.kind == "link":
        return TreeEntry(entry.path, "link", 0o777, target=os.fsdecode(data))
    mode = 0o755 if entry.mode & 0o100 else 0o644
    return TreeEntry(entry.path, "file", mode, blobs.put(data), len(data))


def folders_of(paths: Sequence[str]) -> list[TreeEntry]:
    """The folders that files and links are in."""
    found: set[str] = set()
    for path in paths:
        parts = path.split("/")[:-1]
        found.update("/".join(parts[:n]) for n in range(1, len(parts) + 1))
    return [TreeEntry(path, "dir", 0o755) for path in sorted(found)]
