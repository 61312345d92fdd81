"""What a proposer may name: every path it gives goes through here.

A name is resolved like the kernel would, links included, and refused where it leaves
the directory. Reading and writing then walk down through descriptors that follow no
link, so a link that is put there between the look and the act is met as an error.
"""

from __future__ import annotations

import configparser
import os
import re
import stat
import tomllib
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from secrets import token_hex
from typing import Literal

from pytest_evo.errors import ProposalRefused

_MOST_HOPS = 40
_MOST_BYTES = 1024
_MOST_PARTS = 64
_MOST_NAME = 240
_DRIVE = re.compile(r"[A-Za-z]:")
_BY_DIRECTORY = os.open in os.supports_dir_fd
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_DIRECTORY", 0)
_READ = os.O_RDONLY | _NO_FOLLOW | getattr(os, "O_NONBLOCK", 0)
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_FOLLOW
_RESERVED = frozenset(
    {"con", "prn", "aux", "nul"}
    | {f"{port}{number}" for port in ("com", "lpt") for number in range(1, 10)}
)

# Loaded by pytest, python or an installer without being asked for.
_FORBIDDEN_NAMES = frozenset(
    {"conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"}
)
_FORBIDDEN_SUFFIXES = (".pth", ".pyc", ".pyo", ".egg-link")
_FORBIDDEN_FOLDERS = (".dist-info", ".egg-info")
_FORBIDDEN_MODULES = frozenset(
    {"sitecustomize", "usercustomize", "pytest", "_pytest", "pluggy", "execnet"}
    | {"xdist", "pytest_evo"}
)
_MAY_HOLD_PYTEST = frozenset({"pyproject.toml", "setup.cfg", "tox.ini"})


# -- names that act by themselves ----------------------------------------------------


def forbidden(path: str) -> str | None:
    """Why no proposal may add or change this path, or None.

    Upper and lower case count as the same: they are on some file systems.
    """
    parts = unicodedata.normalize("NFKC", path).casefold().split("/")
    name = parts[-1]
    if ".git" in parts:
        return "version control is no part of the artifact"
    if "__pycache__" in parts or name.endswith((".pyc", ".pyo")):
        return "byte code would be run instead of the source"
    if name in _FORBIDDEN_NAMES:
        return "pytest loads it by itself"
    if name.endswith(_FORBIDDEN_SUFFIXES):
        return "python runs it by itself"
    if any(part.endswith(_FORBIDDEN_FOLDERS) for part in parts):
        return "it can register a plugin"
    if name.startswith("__init__.") and len(parts) > 1:
        name = f"{parts[-2]}.py"
    module, dot, suffix = name.partition(".")
    if module in _FORBIDDEN_MODULES and dot and suffix.endswith(("py", "so", "pyd")):
        return "it would be imported in place of what runs the tests"
    return None


def holds_pytest_settings(path: str, data: bytes) -> bool:
    """Whether a file would be read by pytest as its configuration.

    A file that cannot be parsed is not: pytest cannot read it either.
    """
    name = path.rpartition("/")[2].casefold()
    if name not in _MAY_HOLD_PYTEST:
        return False
    try:
        text = data.decode()
        if name == "pyproject.toml":
            tool = tomllib.loads(text).get("tool")
            return isinstance(tool, dict) and bool({"pytest", "pytest_evo"} & {*tool})
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(text)
    except (ValueError, RecursionError, configparser.Error):
        return False
    return parser.has_section("tool:pytest") or parser.has_section("pytest")


# -- where a name leads --------------------------------------------------------------


def resolve_inside(root: Path, relative: str) -> Path:
    """The real place of a path that a proposer names, below ``root``.

    The file need not exist. ``..`` and links are fine as long as they stay inside.

    Raises:
        ProposalRefused: the path is absolute, leads out, is a folder, goes through a
            file, is a name that acts by itself, or cannot be a name everywhere.
    """
    parts = _parts(relative)
    place: list[str] = []
    hops = 0
    while parts:
        part = parts.pop()
        if part in ("", "."):
            continue
        if part == "..":
            if not place:
                raise _refused(relative, "leads out of the artifact")
            place.pop()
            continue
        facts = _look(root, (*place, part), relative)
        if facts is not None and stat.S_ISLNK(facts.st_mode):
            hops += 1
            target = os.readlink(root.joinpath(*place, part))  # noqa: PTH115, a text
            if hops > _MOST_HOPS or os.path.isabs(target):  # noqa: PTH117
                raise _refused(relative, "goes through a link that leads out or round")
            parts += target.split("/")[::-1]
            continue
        place.append(part)
        _check_kind(facts, bool(parts), relative)
    if not place:
        raise _refused(relative, "is the artifact itself, not a file in it")
    reason = forbidden("/".join(place))
    if reason:
        raise _refused(relative, f"may not be used: {reason}")
    return root.joinpath(*place)


def _check_kind(facts: os.stat_result | None, more: bool, relative: str) -> None:
    if facts is None:
        return
    folder = stat.S_ISDIR(facts.st_mode)
    if more and not folder:
        raise _refused(relative, "goes through a file as if it were a folder")
    if not more and not folder and not stat.S_ISREG(facts.st_mode):
        raise _refused(relative, "is a pipe, a socket or a device")
    if not more and folder:
        raise _refused(relative, "is a folder, not a file")


def _parts(relative: str) -> list[str]:
    """The names in a path, last first."""
    try:
        size = len(relative.encode())
    except UnicodeEncodeError:
        raise _refused(relative, "is not UTF-8") from None
    if any(sign < " " or sign == "\x7f" for sign in relative):
        raise _refused(relative, "holds a control character")
    if relative.startswith(("/", "~")) or _DRIVE.match(relative) or "://" in relative:
        raise _refused(relative, "is not relative to the artifact")
    if "\\" in relative:
        raise _refused(relative, "holds a backslash; folders are divided by /")
    if not relative or relative.endswith("/"):
        raise _refused(relative, "does not name a file")
    parts = relative.split("/")
    long = any(len(part.encode()) > _MOST_NAME for part in parts)
    if size > _MOST_BYTES or len(parts) > _MOST_PARTS or long:
        raise _refused(relative, "is too long")
    for part in parts:
        plain = unicodedata.normalize("NFKC", part)
        if part not in ("", ".", "..") and (
            plain in (".", "..") or plain.endswith((".", " "))
        ):
            raise _refused(relative, f"holds {part!r}, which is no name on all systems")
        if plain.split(".")[0].casefold() in _RESERVED or ":" in plain:
            raise _refused(relative, f"holds {part!r}, which is no name on all systems")
    return parts[::-1]


def _look(root: Path, place: tuple[str, ...], relative: str) -> os.stat_result | None:
    try:
        return root.joinpath(*place).lstat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(relative, f"cannot be used ({error.strerror})") from error


def _refused(relative: str, reason: str) -> ProposalRefused:
    shown = relative if len(relative) <= 120 else f"{relative[:117]}..."
    return ProposalRefused(
        f"{shown!r} {reason}. Name a file inside the artifact, relative to it, like "
        "'folder/name.md'."
    )


# -- acting on it --------------------------------------------------------------------


def read_inside(root: Path, relative: str) -> bytes:
    """The content of a file that a proposer names.

    Raises:
        ProposalRefused: see :func:`resolve_inside`; or there is no such file.
    """
    with _folder_of(root, relative, "read") as (folder, name, path):
        handle = os.open(path if folder is None else name, _READ, dir_fd=folder)
        with open(handle, "rb") as file:  # noqa: PTH123, a descriptor
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise _refused(relative, "is not a plain file")
            return file.read()


def write_inside(root: Path, relative: str, data: bytes) -> Path:
    """Write a file that a proposer names; folders are made, permissions are kept.

    A read-only file is replaced; a read-only folder is refused, for root too.

    Returns:
        Where it really is.

    Raises:
        ProposalRefused: see :func:`resolve_inside`.
    """
    with _folder_of(root, relative, "write") as (folder, name, path):
        new = f".{token_hex(8)}.new"
        fresh = str(path.with_name(new)) if folder is None else new
        target = str(path) if folder is None else name
        mode = _mode_of(target, folder)
        handle = os.open(fresh, _WRITE, 0o600, dir_fd=folder)
        try:
            with open(handle, "wb") as file:  # noqa: PTH123, a descriptor
                file.write(data)
                os.chmod(fresh if folder is None else handle, mode)  # noqa: PTH101
            os.replace(fresh, target, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException:
            os.unlink(fresh, dir_fd=folder)
            raise
    return path


def delete_inside(root: Path, relative: str) -> None:
    """Delete a file that a proposer names.

    Raises:
        ProposalRefused: see :func:`resolve_inside`; or there is no such file.
    """
    with _folder_of(root, relative, "delete") as (folder, name, path):
        os.unlink(path if folder is None else name, dir_fd=folder)


@contextmanager
def _folder_of(
    root: Path, relative: str, act: Literal["read", "write", "delete"]
) -> Iterator[tuple[int | None, str, Path]]:
    """The folder of a path as a descriptor (None where there are none), and names."""
    path = resolve_inside(root, relative)
    if not _BY_DIRECTORY:
        if act == "write":
            path.parent.mkdir(parents=True, exist_ok=True)
        yield None, path.name, path
        return
    handle = -1
    try:
        handle = os.open(root, _FOLDER)
        for folder in path.relative_to(root).parts[:-1]:
            if act == "write":
                _make_folder(folder, handle, relative)
            inner = os.open(folder, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        if act != "read":
            _check_writable(handle, relative)
        yield handle, path.name, path
    except OSError as error:
        raise _refused(relative, f"cannot be used ({error.strerror})") from error
    finally:
        if handle >= 0:
            os.close(handle)


def _make_folder(name: str, parent: int, relative: str) -> None:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        _check_writable(parent, relative)
        os.mkdir(name, dir_fd=parent)


def _check_writable(folder: int, relative: str) -> None:
    # root could write there and a user could not: the answer is the same for both
    if not os.fstat(folder).st_mode & 0o200:
        raise _refused(relative, "is in a read-only folder")


def _mode_of(name: str, folder: int | None) -> int:
    try:
        facts = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return 0o644
    return stat.S_IMODE(facts.st_mode) & 0o777 if stat.S_ISREG(facts.st_mode) else 0o644
