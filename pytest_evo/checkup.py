"""Finding out why ``pytest --evolve`` would not run, without running it."""

from __future__ import annotations

import difflib
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from pytest_evo.artifact.checks import check_files
from pytest_evo.artifact.schema import locate
from pytest_evo.artifact.schema import refuse_own_files_inside
from pytest_evo.artifact.schema import schema_of
from pytest_evo.errors import SettingsProblem
from pytest_evo.errors import UsageProblem
from pytest_evo.llm.cassettes import read_cassette
from pytest_evo.llm.client import LiteLLMModel
from pytest_evo.llm.exchanges import Cleaner
from pytest_evo.llm.taping import Player
from pytest_evo.llm.taping import Replaying
from pytest_evo.proposers.load import choose_proposer
from pytest_evo.proposers.load import load_proposer
from pytest_evo.proposers.load import NAMES
from pytest_evo.protocols import ChatModel
from pytest_evo.settings import load_settings
from pytest_evo.settings import Settings
from pytest_evo.settings_model import ModelSettings
from pytest_evo.store.run_directory import run_ids
from pytest_evo.strategies.diagnosers import check_prompts
from pytest_evo.strategies.diagnosers import choose_diagnoser
from pytest_evo.strategies.diagnosers import DIAGNOSERS
from pytest_evo.strategies.diagnosers import model_name
from pytest_evo.strategies.diagnosers import NONE
from pytest_evo.strategies.presets import import_part
from pytest_evo.strategies.presets import make_strategy
from pytest_evo.strategies.presets import PRESETS
from pytest_evo.strategies.presets import with_preset
from pytest_evo.wording import count

REQUIRED = ("pytest", "pytest-xdist", "pluggy", "pydantic", "junitparser", "rich")

_MOUNT_PROBE = "pytest_evo.plugin.isolation.mount"
"""Tried in a process of its own, for what it does to the one that it is in."""


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
    rootdir = rootdir.resolve()
    if str(rootdir) not in sys.path:
        sys.path.append(str(rootdir))  # parts may be named in modules of the project
    artifact = None
    try:
        schema = schema_of(settings)
        artifact = locate(rootdir, schema)
        refuse_own_files_inside(rootdir, artifact, settings)
        check_files(artifact, schema)
        yield Finding("ok", "artifact", settings.artifact or "")
    except UsageProblem as problem:
        yield Finding("problem", "artifact", str(problem))
    yield from _parts(settings, rootdir)
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


# -- the parts of the loop -----------------------------------------------------------


def _parts(settings: Settings, rootdir: Path) -> Iterator[Finding]:
    name = choose_proposer(settings)
    yield from _tried(
        "proposer", name, NAMES, partial(_proposer, name, settings, rootdir)
    )
    yield from _tried(
        "strategy", settings.strategy, PRESETS, partial(_strategy, settings)
    )
    yield from _tried(
        "diagnoser",
        settings.diagnoser or NONE,
        (NONE, *DIAGNOSERS),
        partial(_diagnoser, name, settings, rootdir),
    )


def _tried(
    about: str,
    name: str,
    known: Collection[str],
    check: Callable[[], Iterator[Finding]],
) -> Iterator[Finding]:
    """What a check finds.

    Names that only a hook or pytest's own path can know are no problem here.
    """
    try:
        yield from check()
    except UsageProblem as problem:
        mistyped = difflib.get_close_matches(name, known, 1, 0.5)
        if name in known or mistyped or name.endswith(".py"):
            yield Finding("problem", about, str(problem))
            return
        text = (
            f"{problem} Under pytest a hook of a conftest.py or a plugin may know it; "
            "to see that, type: pytest --evolve --evo-dry-run"
        )
        yield Finding("note", about, text)


def _proposer(name: str, settings: Settings, rootdir: Path) -> Iterator[Finding]:
    """Make the proposer as a run does, but ask no provider anything."""
    notes: list[str] = []
    schema = schema_of(
        settings.model_copy(update={"artifact": settings.artifact or "."})
    )
    model = None
    if name == "llm":
        model = _model(settings.model, settings.model_options, settings, rootdir)
    load_proposer(
        name,
        settings.model_copy(update={"dry_run": True}),
        schema,
        rootdir,
        model=model,
        notice=notes.append,
    )
    detail = {
        "llm": f" with {settings.model}",
        "agent": f" with {settings.agent}",
        "scripted": f" from {_listed(settings.scripted)}",
        "search": f" over {count(len(schema.knobs), 'knob')}",
    }.get(name, "")
    yield Finding("ok", "proposer", f"{name}{detail}")
    yield from (Finding("note", "proposer", note) for note in notes)


def _model(
    name: str | None, options: ModelSettings, settings: Settings, rootdir: Path
) -> ChatModel | None:
    if name is None:
        return None
    if settings.replay is not None:
        cassette = read_cassette(rootdir / settings.replay, "--evo-replay")
        return Replaying(name, Player(cassette, Cleaner()))
    key = os.environ.get(options.api_key_env or "")
    model = LiteLLMModel(name, options, rng=Random(0), key=key)
    model.check()
    return model


def _strategy(settings: Settings) -> Iterator[Finding]:
    make_strategy(with_preset(settings), settings.top_n or 1)
    yield Finding("ok", "strategy", settings.strategy)


def _diagnoser(proposer: str, settings: Settings, rootdir: Path) -> Iterator[Finding]:
    name = choose_diagnoser(settings, proposer)
    told = name
    if name in DIAGNOSERS:
        folder = settings.diagnosis_prompts
        check_prompts(name, None if folder is None else rootdir / folder)
        options = settings.diagnosis_options or settings.model_options
        _model(model_name(settings), options, settings, rootdir)
        told = f"{name} with {model_name(settings)}"
    elif name != NONE:
        import_part("diagnoser", name, {NONE: None, **DIAGNOSERS})
    if name != NONE:
        yield Finding("ok", "diagnoser", told)


def _listed(scripted: str | Sequence[str] | None) -> str:
    return scripted if isinstance(scripted, str) else ", ".join(scripted or ())


# -- the system ----------------------------------------------------------------------


def _mounting(artifact: Path) -> Finding:
    if sys.platform != "linux":
        text = "Linux only: code that reads fixed paths runs in copies of the project"
        return Finding("note", "mount", text)
    try:
        done = subprocess.run(
            [sys.executable, "-m", _MOUNT_PROBE, str(artifact)],
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
    runs = count(len(run_ids(root)), "run")
    return Finding("ok", "run directory", f"{root} ({runs})")
