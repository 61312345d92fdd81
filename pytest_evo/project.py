"""Setting a project up, and finding out why one does not work."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import tomlkit

from pytest_evo.artifact.schema import locate
from pytest_evo.artifact.schema import schema_of
from pytest_evo.errors import SettingsProblem
from pytest_evo.errors import UsageProblem
from pytest_evo.settings import load_settings
from pytest_evo.settings import OWN_FILE
from pytest_evo.settings import PYPROJECT
from pytest_evo.settings import Settings
from pytest_evo.store.run_directory import run_ids

REQUIRED = ("pytest", "pytest-xdist", "pluggy", "pydantic", "junitparser", "rich")
LIKELY = ("prompts", "skills", "pipeline", "agent", "agents", "prompt")
"""Directories that are usually what a project wants to improve."""

_MOUNT_PROBE = """\
import sys
from pathlib import Path
from pytest_evo.plugin.isolation.mount import probe
print(probe(Path(sys.argv[1])) or "")
"""


def find_rootdir(start: Path) -> Path:
    """The nearest directory upwards that has settings or runs, else ``start``."""
    for directory in (start, *start.parents):
        if (directory / OWN_FILE).is_file() or (directory / ".evo/runs").is_dir():
            return directory
        if _has_table(directory / PYPROJECT):
            return directory
    return start


def _has_table(pyproject: Path) -> bool:
    try:
        tool = tomllib.loads(pyproject.read_text(encoding="utf-8")).get("tool")
    except (OSError, ValueError):
        return False
    return isinstance(tool, dict) and "pytest_evo" in tool


# -- init --------------------------------------------------------------------------


def init_project(rootdir: Path, artifact: str | None = None) -> str:
    """Add a minimal ``[tool.pytest_evo]`` to pyproject.toml; return what was added.

    Everything that is in the file stays as it is, byte for byte.

    Raises:
        SettingsProblem: there are settings already, or the file cannot be extended.
    """
    path = rootdir / PYPROJECT
    for file, there in ((rootdir / OWN_FILE, True), (path, _has_table(path))):
        if there and file.exists():
            raise SettingsProblem(
                f"{file} has settings already. Edit them there; to check them, type: "
                "pytest-evo doctor"
            )
    try:
        before = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    line_end = b"\r\n" if b"\r\n" in before else b"\n"
    table = _table(artifact or _guess(rootdir))
    gap = b"" if not before else line_end * (1 if before.endswith(b"\n") else 2)
    after = before + gap + table.encode().replace(b"\n", line_end)
    _check_extension(path, before, after)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(after)
        if before:
            draft.chmod(path.stat().st_mode & 0o777)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise _unusable(path, error.strerror or str(error)) from error
    return table


def _guess(rootdir: Path) -> str:
    return next((name for name in LIKELY if (rootdir / name).is_dir()), LIKELY[0])


def _table(artifact: str) -> str:
    table = tomlkit.table()
    table.add("artifact", artifact)
    table["artifact"].comment("the directory that may change")
    table.add("objective", "")
    table["objective"].comment("what a better one does, in a sentence or two")
    table.add(tomlkit.nl())
    table.add(tomlkit.comment("What the files are for, and what search may turn:"))
    table.add(tomlkit.comment("[[tool.pytest_evo.file]]"))
    table.add(tomlkit.comment('path = "*.md"'))
    table.add(tomlkit.comment('about = "who reads it, and when"'))
    document = tomlkit.document()
    document.add("tool", tomlkit.table(is_super_table=True).add("pytest_evo", table))
    return tomlkit.dumps(document)


def _check_extension(path: Path, before: bytes, after: bytes) -> None:
    """Nothing may be written that does not mean the old settings plus the new."""
    try:
        old = tomllib.loads(before.decode())
        new = tomllib.loads(after.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise _unusable(path, str(error)) from error
    new["tool"].pop("pytest_evo")
    old.setdefault("tool", {})
    if old != new:
        raise _unusable(path, "adding a table at its end would change another one")


def _unusable(path: Path, why: str) -> SettingsProblem:
    return SettingsProblem(
        f"{path} cannot be extended: {why}. Nothing was written. Correct it, or put "
        f"the settings into {path.with_name(OWN_FILE)}."
    )


# -- doctor ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ``state`` is ok, note or problem."""

    state: str
    about: str
    text: str


def checkup(rootdir: Path) -> Iterator[Finding]:
    """Look at everything that ``pytest --evolve`` needs, cheapest first."""
    yield _python()
    yield from _packages()
    yield _forking()
    try:
        settings = load_settings(rootdir, {})
        yield Finding("ok", "settings", f"read from {rootdir}")
    except SettingsProblem as problem:
        yield Finding("problem", "settings", str(problem))
        return
    artifact = None
    try:
        artifact = locate(rootdir, schema_of(settings))
        yield Finding("ok", "artifact", settings.artifact or "")
    except UsageProblem as problem:
        yield Finding("problem", "artifact", str(problem))
    yield _proposer(settings)
    if artifact is not None:
        yield _mounting(artifact)
    yield _run_directory(rootdir / settings.run_dir)


def _python() -> Finding:
    text = f"{platform.python_version()} on {platform.system()} ({sys.executable})"
    state = "ok" if sys.version_info >= (3, 11) else "problem"
    return Finding(state, "python", text)


def _packages() -> Iterator[Finding]:
    for name in ("pytest-evo", *REQUIRED):
        try:
            yield Finding("ok", name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            text = f"not installed. Type: pip install {name}"
            yield Finding("problem", name, text)


def _forking() -> Finding:
    if hasattr(os, "fork"):
        return Finding("ok", "fork", "available")
    return Finding("note", "fork", "not available here: isolation is 'workspace' only")


def _proposer(settings: Settings) -> Finding:
    knobs = sum(len(file.knob) for file in settings.file)
    wanted = settings.proposer
    if wanted is None:
        wanted = "llm" if settings.model else "agent" if settings.agent else "search"
    if wanted != "search":
        named = {"llm": settings.model, "agent": settings.agent}.get(wanted)
        return Finding("ok", "proposer", wanted + (f" with {named}" if named else ""))
    if not knobs:
        return Finding(
            "problem",
            "proposer",
            "search has no knobs to turn. Declare some with "
            "[[tool.pytest_evo.file.knob]], or set a model = or an agent =",
        )
    try:
        version = importlib.metadata.version("optuna")
    except importlib.metadata.PackageNotFoundError:
        text = "search needs optuna. Type: pip install 'pytest-evo[search]'"
        return Finding("problem", "proposer", text)
    return Finding("ok", "proposer", f"search over {knobs} knobs (optuna {version})")


def _mounting(artifact: Path) -> Finding:
    if sys.platform != "linux":
        text = "Linux only: code that reads fixed paths runs in copies of the project"
        return Finding("note", "mount", text)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _MOUNT_PROBE, str(artifact)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("note", "mount", f"could not be tried: {error}")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        return Finding("note", "mount", f"could not be tried: {last}")
    why = done.stdout.strip()
    if why:
        return Finding("note", "mount", f"not available: {why}")
    return Finding("ok", "mount", "available: code may read the artifact's real path")


def _run_directory(root: Path) -> Finding:
    place = root
    while not place.exists() and place != place.parent:
        place = place.parent
    if not place.is_dir() or not os.access(place, os.W_OK):
        text = f"{place} cannot be written to. Set run_dir = to another place"
        return Finding("problem", "run directory", text)
    count = len(run_ids(root))
    return Finding("ok", "run directory", f"{root} ({count} runs)")
