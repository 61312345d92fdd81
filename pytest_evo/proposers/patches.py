"""Prepared edits: folders to lay over the artifact, and unified diffs.

A diff is applied strictly. Its context has to be there word for word, at the stated
lines or, where lines were added or taken above, at the one other place where it fits.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pytest_evo.artifact.guard import delete_inside
from pytest_evo.artifact.guard import read_inside
from pytest_evo.artifact.guard import resolve_inside
from pytest_evo.artifact.guard import write_inside
from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import SettingsProblem

SUFFIXES = (".patch", ".diff")
_DELETIONS = ".delete"
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_NO_NEWLINE = b"\\ No newline at end of file"


@dataclass(frozen=True, slots=True)
class Overlay:
    """Files that replace or join those of the artifact, and paths that go."""

    name: str
    files: tuple[tuple[str, bytes, bool], ...]  # path, content, executable
    deleted: tuple[str, ...]

    @property
    def reason(self) -> str:
        """What the changelog says."""
        return f"prepared edit {self.name}"

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it names."""
        return (*self.deleted, *(path for path, _, _ in self.files))

    def apply(self, root: Path) -> None:
        """Change the files below ``root``.

        Raises:
            ProposalRefused: a path is hostile, or a file to delete is not there.
        """
        for path in self.deleted:
            delete_inside(root, path)
        for path, content, executable in self.files:
            place = write_inside(root, path, content)
            _set_executable(place, executable)


@dataclass(frozen=True, slots=True)
class _Hunk:
    start: int  # first old line, from 0
    old: tuple[bytes, ...]
    new: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class _FilePatch:
    old: str | None  # None: the file is new
    new: str | None  # None: the file goes
    hunks: tuple[_Hunk, ...]
    executable: bool | None


@dataclass(frozen=True, slots=True)
class Diff:
    """A unified diff of one or more files."""

    name: str
    reason: str
    files: tuple[_FilePatch, ...]

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that it names."""
        return tuple(file.new or file.old or "" for file in self.files)

    def apply(self, root: Path) -> None:
        """Change the files below ``root``; all of them or, on refusal, some.

        Raises:
            ProposalRefused: a path is hostile, or the files are not as the diff says.
        """
        for file in self.files:
            _apply_file(root, file, self.name)


Patch: TypeAlias = Overlay | Diff


# -- reading -----------------------------------------------------------------------


def load_patch(source: Path) -> Patch:
    """Read a folder (with ``NAME.delete`` beside it) or a diff.

    Raises:
        SettingsProblem: there is no such thing, or it cannot be read.
    """
    deletions = source.with_name(source.name + _DELETIONS)
    if source.suffix in SUFFIXES and source.is_file():
        return parse_diff(source.name, source.read_bytes())
    if source.is_dir() or deletions.is_file():
        return Overlay(source.name, tuple(_files_of(source)), _lines_of(deletions))
    raise SettingsProblem(
        f"scripted: {source} is neither a folder nor a {' or '.join(SUFFIXES)} file. "
        "Name a folder that is laid over the artifact, or a unified diff."
    )


def _files_of(folder: Path) -> Iterator[tuple[str, bytes, bool]]:
    for path in sorted(folder.rglob("*")):
        if path.is_symlink():
            raise SettingsProblem(
                f"scripted: {path} is a link; put the file itself there."
            )
        if path.is_file():
            executable = bool(path.stat().st_mode & stat.S_IXUSR)
            yield path.relative_to(folder).as_posix(), path.read_bytes(), executable


def _lines_of(deletions: Path) -> tuple[str, ...]:
    if not deletions.is_file():
        return ()
    lines = deletions.read_text(encoding="utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip())


def parse_diff(name: str, data: bytes) -> Diff:
    """Read a unified diff, git's or plain.

    Raises:
        SettingsProblem: it is malformed, binary, renames, or holds no change.
    """
    return _Parser(name, data).parse()


class _Parser:
    def __init__(self, name: str, data: bytes) -> None:
        self._name = name
        # a carriage return belongs to the line, only "\n" ends it
        self._lines = data.removesuffix(b"\n").split(b"\n") if data else []
        self._at = 0

    def parse(self) -> Diff:
        files: list[_FilePatch] = []
        reason = ""
        executable: bool | None = None
        empty = False  # a section of git's that had no lines yet
        while self._at < len(self._lines):
            line = self._lines[self._at]
            if line.startswith(b"--- ") and self._peek(1).startswith(b"+++ "):
                files.append(self._file(executable))
                executable, empty = None, False
                continue
            if line.startswith(b"diff --git "):
                if empty:
                    break
                executable, empty = None, True
            if line.startswith((b"GIT binary patch", b"Binary files ")):
                raise self._broken("holds a binary change; use a folder instead")
            if line.startswith((b"rename from ", b"copy from ")):
                raise self._broken("renames or copies; make it with --no-renames")
            if found := re.match(rb"new (?:file )?mode (\d{6})", line):
                executable = found[1].endswith(b"755")
            elif line.startswith(b"@@ "):
                raise self._broken("has a hunk without --- and +++ lines before it")
            elif not files and not reason and _is_prose(line):
                reason = line.removeprefix(b"Subject: ").decode(errors="replace")
            self._at += 1
        if empty:
            raise self._broken("has a file without changed lines; use a folder instead")
        if not files:
            raise self._broken("holds no change of a text file")
        return Diff(self._name, reason.strip() or f"patch {self._name}", tuple(files))

    def _peek(self, ahead: int) -> bytes:
        at = self._at + ahead
        return self._lines[at] if at < len(self._lines) else b""

    def _file(self, executable: bool | None) -> _FilePatch:
        old, new = self._path(b"--- "), self._path(b"+++ ")
        if (old or "a/").startswith("a/") and (new or "b/").startswith("b/"):
            old, new = old and old[2:], new and new[2:]
        if old is None and new is None:
            raise self._broken("has a change from /dev/null to /dev/null")
        if None not in (old, new) and old != new:
            raise self._broken(f"renames {old} to {new}; make it with --no-renames")
        hunks: list[_Hunk] = []
        while found := _HUNK.match(self._peek(0)):
            hunks.append(self._hunk(found))
        if not hunks:
            raise self._broken(f"has no hunk for {new or old}")
        return _FilePatch(old, new, tuple(hunks), executable)

    def _path(self, mark: bytes) -> str | None:
        text = self._lines[self._at].removeprefix(mark).split(b"\t")[0].rstrip(b"\r")
        self._at += 1
        if text == b"/dev/null":
            return None
        try:
            path = text.decode()
        except UnicodeDecodeError:
            path = '"'
        if path.startswith('"'):
            raise self._broken("has a quoted path; set core.quotePath to false")
        return path

    def _hunk(self, found: re.Match[bytes]) -> _Hunk:
        self._at += 1
        begin = int(found[1])
        wanted = [1 if part is None else int(part) for part in (found[2], found[4])]
        left = list(wanted)
        old: list[bytes] = []
        new: list[bytes] = []
        while any(left) or self._peek(0).startswith(_NO_NEWLINE):
            line = self._peek(0)
            if self._at >= len(self._lines):
                raise self._broken("ends within a hunk")
            self._at += 1
            sign, text = line[:1] or b" ", line[1:] + b"\n"
            if sign == b"\\":
                self._strip_newline(old, new, self._lines[self._at - 2][:1])
                continue
            if sign not in (b" ", b"-", b"+"):
                raise self._broken(f"has a hunk line that begins with {sign!r}")
            if sign != b"+":
                old.append(text)
                left[0] -= 1
            if sign != b"-":
                new.append(text)
                left[1] -= 1
            if min(left) < 0:
                raise self._broken("has a hunk with other lines than it counts")
        # a hunk without old lines is put after the line that it names
        return _Hunk(begin - 1 if wanted[0] else begin, tuple(old), tuple(new))

    @staticmethod
    def _strip_newline(old: list[bytes], new: list[bytes], sign: bytes) -> None:
        for side, signs in ((old, b" -"), (new, b" +")):
            if side and (sign or b" ") in signs:
                side[-1] = side[-1].removesuffix(b"\n")

    def _broken(self, what: str) -> SettingsProblem:
        return SettingsProblem(
            f"scripted: {self._name} {what} (line {self._at + 1}). Write a unified "
            "diff of text files, as `git diff --no-renames` does."
        )


def _is_prose(line: bytes) -> bool:
    text = line.strip()
    heads = (b"diff ", b"index ", b"From ", b"From:", b"Date:", b"old mode", b"---")
    return bool(text) and not text.startswith((*heads, b"deleted file", b"similarity"))


# -- applying ----------------------------------------------------------------------


def _apply_file(root: Path, file: _FilePatch, name: str) -> None:
    path = file.new or file.old
    assert path is not None
    if file.old is None:
        if resolve_inside(root, path).exists():
            raise ProposalRefused(f"{name}: {path} is there already")
        before: list[bytes] = []
    else:
        before = _lines(read_inside(root, path))
    after = _apply_hunks(before, file.hunks, f"{name}: {path}")
    if file.new is None:
        if after:
            raise ProposalRefused(f"{name}: {path} holds more than what is deleted")
        delete_inside(root, path)
        return
    place = write_inside(root, path, b"".join(after))
    if file.executable is not None:
        _set_executable(place, file.executable)


def _lines(data: bytes) -> list[bytes]:
    """Lines as a diff counts them: only a newline ends one."""
    *lines, last = data.split(b"\n")
    return [*(line + b"\n" for line in lines), *([last] if last else [])]


def _apply_hunks(
    before: list[bytes], hunks: tuple[_Hunk, ...], where: str
) -> list[bytes]:
    after: list[bytes] = []
    done = 0
    shift = 0
    for number, hunk in enumerate(hunks, 1):
        at = _place_of(before, hunk, done, hunk.start + shift)
        if at is None:
            raise ProposalRefused(
                f"{where}: hunk {number} does not fit; its context is not in the file, "
                "or in several places"
            )
        shift = at - hunk.start
        after += [*before[done:at], *hunk.new]
        done = at + len(hunk.old)
    return [*after, *before[done:]]


def _place_of(before: list[bytes], hunk: _Hunk, done: int, stated: int) -> int | None:
    size = len(hunk.old)

    def fits(at: int) -> bool:
        return at >= done and tuple(before[at : at + size]) == hunk.old

    if stated <= len(before) and fits(stated):
        return stated
    if not size:
        return None
    places = [at for at in range(done, len(before) - size + 1) if fits(at)]
    return places[0] if len(places) == 1 else None


def _set_executable(place: Path, executable: bool) -> None:
    mode = stat.S_IMODE(place.stat().st_mode)
    bits = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
    wanted = mode | bits if executable else mode & ~bits
    if wanted != mode:
        place.chmod(wanted)
