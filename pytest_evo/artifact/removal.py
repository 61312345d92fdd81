"""Removing what candidates leave behind: read-only, unreadable or very deep folders."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import time
from pathlib import Path

_OUTLASTED = 1.0  # s
_PAUSE = 0.01  # s
_BY_DIRECTORY = os.open in os.supports_dir_fd and os.scandir in os.supports_fd
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)
_FOLDER |= getattr(os, "O_CLOEXEC", 0)
_CHANGING = {
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.EEXIST,
    errno.ENOTEMPTY,
    errno.ELOOP,
}


def remove(directory: Path) -> None:
    """Remove a directory with read-only, unreadable or very deep folders in it.

    No link is followed; a link is removed itself. A missing directory is fine. A
    process that still works in the directory is outlasted for a second.

    Raises:
        OSError: something in it is not ours, or somebody never stops adding to it.
    """
    end = time.monotonic() + _OUTLASTED
    while True:
        try:
            _remove(directory)
        except OSError as error:
            if error.errno not in _CHANGING or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
        else:
            return


def _remove(directory: Path) -> None:
    if _BY_DIRECTORY:
        try:
            _remove_by_descriptor(str(directory), None)
        except FileNotFoundError:
            if not os.path.lexists(directory):
                return
        except (OSError, RecursionError):
            pass  # what it is, or in it, takes more than that
        else:
            return
    if directory.is_symlink() or directory.is_file():
        directory.unlink(missing_ok=True)
        return
    try:
        shutil.rmtree(directory)
    except (OSError, RecursionError):
        if os.path.lexists(directory):
            _remove_by_force(directory)


def _remove_by_descriptor(name: str, parent: int | None) -> None:
    """Remove a folder as most are: a link in its place is met as an error."""
    handle = os.open(name, _FOLDER, dir_fd=parent)
    try:
        with os.scandir(handle) as found:
            inner = [(one.name, one.is_dir(follow_symlinks=False)) for one in found]
        for one, is_folder in inner:
            if is_folder:
                _remove_by_descriptor(one, handle)
            else:
                os.unlink(one, dir_fd=handle)
    finally:
        os.close(handle)
    os.rmdir(name, dir_fd=parent)


def _remove_by_force(top: Path) -> None:
    """Lift what is deep to the top, so that neither depth nor modes can stop it."""
    token = secrets.token_hex(8)  # no name of a candidate's may be in the way
    number = 0
    _open_up(top)
    while folders := _remove_files(top):
        for folder in folders:
            _open_up(folder)
            for inner in _remove_files(folder):
                _open_up(inner)  # a folder that moves has to be writable itself
                number += 1
                inner.rename(top / f".{token}-{number}")
            folder.rmdir()
    top.rmdir()


def _remove_files(folder: Path) -> list[Path]:
    """Remove what is not a folder; return the folders."""
    folders = []
    with os.scandir(folder) as found:
        for entry in list(found):
            if entry.is_dir(follow_symlinks=False):
                folders.append(folder / entry.name)
            else:
                (folder / entry.name).unlink()
    return folders


def _open_up(folder: Path) -> None:
    if not folder.is_symlink():
        folder.chmod(0o700)
