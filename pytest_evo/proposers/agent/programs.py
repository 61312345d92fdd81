"""What has to be readable so that an installed program can run.

A program is rarely one file: it is a link to a script that names an interpreter, which
stands in a folder with libraries. In the sandbox only these places are shown.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYSTEM = tuple(
    Path(name)
    for name in (
        *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"),
        *("/nix/store", "/gnu/store", "/etc/alternatives", "/etc/ssl", "/etc/pki"),
        *("/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/ld.so.cache"),
        *("/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/fonts"),
        *("/etc/mime.types", "/etc/services", "/etc/protocols", "/etc/shells"),
    )
)
"""Shown in every sandbox: programs and libraries of the system, nothing of a user's."""
_MOST_HOPS = 16
_SHEBANG = 256


@dataclass(frozen=True, slots=True)
class Places:
    """Where a program is: what to run and to show, and folders for ``PATH``."""

    program: Path
    shown: tuple[Path, ...]
    folders: tuple[Path, ...]


def places_of(program: Path, path: str | None = None) -> Places:
    """The files and folders that a program is made of, outside of the system's.

    Args:
        program: absolute; a link, a script with an interpreter, or a binary.
        path: where interpreters are looked for; this process's ``PATH`` if left out.
    """
    shown: dict[Path, None] = {}
    folders: dict[Path, None] = {}
    waiting = [program]
    for _ in range(_MOST_HOPS):
        if not waiting:
            break
        found = waiting.pop()
        folders[found.parent] = None
        shown.update(dict.fromkeys(_installed_in(found)))
        for hop in _hops(found):
            shown[hop] = None
            shown.update(dict.fromkeys(_installed_in(hop)))
        interpreter = _interpreter(found, path)
        if interpreter is not None:
            waiting.append(interpreter)
    outside = [path for path in shown if not is_below(path, SYSTEM)]
    # a link in a folder that is not shown leads to a script that looks beside itself
    kept = (*SYSTEM, *(path for path in outside if path.is_dir()))
    run = program if is_below(program, kept) else program.resolve()
    return Places(run, tuple(outside), tuple(folders))


def python() -> Places:
    """A Python that runs without an environment."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    return places_of(Path(base).resolve())


def is_below(path: Path, folders: tuple[Path, ...]) -> bool:
    """Whether a path is one of the folders or in one."""
    return any(path.is_relative_to(folder) for folder in folders)


def _hops(path: Path) -> Iterator[Path]:
    """The path, what it links to, and so on."""
    for _ in range(_MOST_HOPS):
        yield path
        if not path.is_symlink():
            break
        path = Path(os.path.normpath(path.parent / path.readlink()))
    yield path.resolve()


def _installed_in(path: Path) -> Iterator[Path]:
    """The folder that a program was installed into, if it needs one."""
    if "node_modules" in path.parts:
        yield Path(*path.parts[: path.parts.index("node_modules") + 1])
    folder = path.parent
    if folder.name in ("bin", "Scripts"):
        home = folder.parent
        if (home / "pyvenv.cfg").is_file():
            yield home
        elif any(home.glob("lib/python3*/os.py")):
            yield home / "bin"
            yield home / "lib"


def _interpreter(script: Path, path: str | None) -> Path | None:
    """The program that a script names in its first line."""
    try:
        with script.open("rb") as file:
            first = file.readline(_SHEBANG)
    except OSError:
        return None
    if not first.startswith(b"#!"):
        return None
    words = first[2:].decode("utf-8", "replace").split()
    if words and Path(words[0]).name == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    found = shutil.which(words[0], path=path) if words else None
    return Path(found) if found else None
