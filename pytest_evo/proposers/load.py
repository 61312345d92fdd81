"""From a name in the settings to a proposer."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import cast

from pytest_evo.errors import SettingsProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.proposers.agent.starting import make_agent_proposer
from pytest_evo.proposers.archive import Archive
from pytest_evo.proposers.llm.proposer import LlmProposer
from pytest_evo.proposers.patches import load_patch
from pytest_evo.proposers.patches import SUFFIXES
from pytest_evo.proposers.scripted import FunctionProposer
from pytest_evo.proposers.scripted import PatchProposer
from pytest_evo.proposers.scripted import Propose
from pytest_evo.proposers.search import SearchProposer
from pytest_evo.proposers.tpe import load_optuna
from pytest_evo.protocols import ChatModel
from pytest_evo.protocols import Proposer
from pytest_evo.settings import Settings

NAMES = ("search", "llm", "agent", "scripted")


def choose_proposer(settings: Settings) -> str:
    """The proposer's name: what is set, else what the other settings ask for.

    ``llm`` if a model is set, ``agent`` if an agent is, ``scripted`` if a script is,
    else ``search``.
    """
    if settings.proposer is not None:
        return settings.proposer
    if settings.model is not None:
        return "llm"
    if settings.agent is not None:
        return "agent"
    return "scripted" if settings.scripted is not None else "search"


def load_proposer(
    name: str | None,
    settings: Settings,
    schema: ArtifactSchema,
    rootdir: Path,
    *,
    model: ChatModel | None = None,
    archive: Archive | None = None,
    notice: Callable[[str], None] = lambda text: None,
) -> Proposer:
    """Make the proposer of a run.

    Args:
        name: ``search``, ``llm``, ``agent``, ``scripted``, ``package.module:name`` or
            ``path/to/file.py`` with or without ``:name``; None: see
            :func:`choose_proposer`.
        settings: for what the proposer itself needs.
        schema: of the artifact; ``search`` needs knobs in it.
        rootdir: relative paths start here; ``package.module`` may lie here.
        model: that ``llm`` asks.
        archive: keeps what a proposer leaves beside its edits.
        notice: told what a person should know before the run.

    Raises:
        SettingsProblem: there is no such proposer, or it lacks something.
        ModelProblem: the agent that it runs is not there.
    """
    chosen = name or choose_proposer(settings)
    if chosen == "search":
        return _search(schema)
    if chosen == "scripted":
        return _scripted(settings.scripted, rootdir)
    if chosen == "agent":
        return make_agent_proposer(settings, rootdir, archive=archive, notice=notice)
    if chosen == "llm" and settings.agent is not None and settings.proposer is None:
        notice(
            f"the model proposes, not the agent {settings.agent!r}: both are set. Type "
            "--evo-proposer=agent for the agent"
        )
    if chosen == "llm":
        return _llm(settings, rootdir, model, archive)
    if ":" in chosen or Path(chosen).suffix == ".py":
        return load_object(chosen, rootdir, "proposer")
    close = difflib.get_close_matches(chosen, NAMES, 1) or ["search"]
    raise SettingsProblem(
        f"There is no proposer {chosen!r}; there are {', '.join(NAMES)}, "
        f"package.module:name and path/to/file.py. Type --evo-proposer={close[0]}."
    )


def _search(schema: ArtifactSchema) -> Proposer:
    if not schema.knobs:
        raise SettingsProblem(
            "The proposer 'search' turns knobs, and none is declared. Either declare "
            "values that it may turn:\n"
            "    [[tool.pytest_evo.file]]\n"
            '    path = "FILE.toml"\n'
            "    [[tool.pytest_evo.file.knob]]\n"
            '    key = "section.name"\n'
            '    type = "float"\n'
            "    low = 0.0\n"
            "    high = 1.0\n"
            "or let something else edit the files: --evo-model=MODEL, "
            "--evo-agent=NAME, or scripted = [...] in [tool.pytest_evo]."
        )
    load_optuna()
    return SearchProposer()


def _llm(
    settings: Settings,
    rootdir: Path,
    model: ChatModel | None,
    archive: Archive | None,
) -> Proposer:
    if model is None:
        raise SettingsProblem(
            "The proposer 'llm' needs a model. Type --evo-model=PROVIDER/NAME, like "
            "openai/gpt-5-mini, or set model in [tool.pytest_evo]."
        )
    return LlmProposer(model, settings.model_options, rootdir=rootdir, archive=archive)


# -- scripted ----------------------------------------------------------------------


def _scripted(script: str | Sequence[str] | None, rootdir: Path) -> Proposer:
    if not script:
        raise SettingsProblem(
            "The proposer 'scripted' needs a script. Set scripted in "
            '[tool.pytest_evo]: "proposals.py" with a function propose(request), or a '
            'list of folders and diffs like ["edits/01", "edits/02.patch"].'
        )
    if not isinstance(script, str):
        return PatchProposer([load_patch(rootdir / source) for source in script])
    path, colon, _ = script.partition(":")
    if Path(path).suffix == ".py":
        return load_object(script, rootdir, "scripted")
    place = rootdir / script
    if place.is_dir() or place.suffix in SUFFIXES:
        return PatchProposer([load_patch(place)])
    return load_object(script if colon else f"{script}:", rootdir, "scripted")


# -- objects by name ---------------------------------------------------------------


def load_object(target: str, rootdir: Path, setting: str) -> Proposer:
    """Load ``package.module:name`` or ``path/to/file.py:name``.

    ``name`` is a function, a method (``Class.method`` of a class that needs no
    arguments), a class or an object with a method ``propose``. Without it, that is
    the module's own ``propose``.

    Raises:
        SettingsProblem: it cannot be imported, or is none of these.
    """
    where, _, attribute = target.partition(":")
    module = _module(where, rootdir, setting)
    found: object = module
    for part in attribute.split(".") if attribute else ():
        if isinstance(found, type):
            found = _made(found, target, setting)
        if not hasattr(found, part):
            raise SettingsProblem(
                f"{setting} = {target!r}: {where} has no {attribute!r}. "
                f"{_known(module)}"
            )
        found = getattr(found, part)
    if isinstance(found, type):
        found = _made(found, target, setting)
    method = getattr(found, "propose", None)
    if callable(method):
        return cast(Proposer, found) if found is not module else _function(method)
    if callable(found):
        return _function(found)
    raise SettingsProblem(
        f"{setting} = {target!r}: {attribute or where} cannot propose. "
        f"Name a function propose(request), or an object with that method. "
        f"{_known(module)}"
    )


def _function(found: Callable[..., object]) -> FunctionProposer:
    return FunctionProposer(cast(Propose, found))


def _made(kind: type, target: str, setting: str) -> object:
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise SettingsProblem(
            f"{setting} = {target!r}: {kind.__name__} cannot be made without arguments "
            f"({error}). Name an object made from it instead."
        ) from error
    except ValueError:
        pass  # a class of an extension tells no signature
    return kind()


def _known(module: ModuleType) -> str:
    names = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and callable(value)
        and getattr(value, "__module__", "") == module.__name__
    ]
    return f"It defines: {', '.join(names) or 'nothing that can be called'}."


def _module(where: str, rootdir: Path, setting: str) -> ModuleType:
    try:
        if where.endswith(".py"):
            return _from_file(rootdir / where)
        if str(rootdir) not in sys.path:
            # at the end: nothing that is importable now may change its meaning
            sys.path.append(str(rootdir))
        return importlib.import_module(where)
    except Exception as error:
        raise SettingsProblem(
            f"{setting}: {where!r} cannot be imported ({type(error).__name__}: "
            f"{error}). Correct the name (package.module:name, or path/to/file.py) or "
            "the module."
        ) from error


def _from_file(path: Path) -> ModuleType:
    name = f"_pytest_evo_script_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look their module up
    spec.loader.exec_module(module)
    return module
