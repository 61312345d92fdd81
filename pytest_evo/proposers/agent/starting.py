"""From settings to an agent that was found, with everything checked that can be.

Whatever is wrong is said here, before a rollout is spent.
"""

from __future__ import annotations

import difflib
import os
import shutil
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytest_evo.errors import ModelProblem
from pytest_evo.errors import SettingsProblem
from pytest_evo.proposers.agent.gateway_forward import Upstream
from pytest_evo.proposers.agent.gateway_meter import Meter
from pytest_evo.proposers.agent.gateway_meter import Prices
from pytest_evo.proposers.agent.presets import fill
from pytest_evo.proposers.agent.presets import Preset
from pytest_evo.proposers.agent.presets import PRESETS
from pytest_evo.proposers.agent.presets import split_command
from pytest_evo.proposers.agent.probing import probe
from pytest_evo.proposers.agent.programs import places_of
from pytest_evo.proposers.agent.prompt import read_template
from pytest_evo.proposers.agent.proposer import AgentProposer
from pytest_evo.proposers.agent.sandbox import find_sandbox
from pytest_evo.proposers.agent.sandbox import Sandbox
from pytest_evo.proposers.agent.session import Agent
from pytest_evo.proposers.agent.session import Conditions
from pytest_evo.proposers.archive import Archive
from pytest_evo.settings import Settings
from pytest_evo.settings_agent import AgentSettings

_OPTIONS = "[tool.pytest_evo.agent_options]"
_PASSED = ("LANG", "LC_ALL", "LC_CTYPE", "PATH", "TZ")


def make_agent_proposer(
    settings: Settings,
    rootdir: Path,
    *,
    archive: Archive | None = None,
    notice: Callable[[str], None] = lambda text: None,
    environment: Mapping[str, str] | None = None,
) -> AgentProposer:
    """The proposer that the settings ask for.

    Args:
        settings: ``agent`` and ``agent_options``.
        rootdir: of the project, which is hidden from the agent.
        archive: keeps what agents leave.
        notice: told what a person should know, like that there is no sandbox.
        environment: the variables; this process's if left out.

    Raises:
        SettingsProblem: a setting is missing or contradicts another one.
        ModelProblem: the agent, its key or the sandbox is not there, or its provider
            refuses the key or the model.
    """
    if os.name != "posix":
        raise SettingsProblem(
            "Agents run on Linux and macOS only. Type --evo-model=MODEL for the llm "
            "proposer instead."
        )
    variables = os.environ if environment is None else environment
    options = settings.agent_options
    if not settings.agent:
        raise SettingsProblem(
            "The proposer 'agent' needs an agent. Type --evo-agent=NAME with one of "
            f"{', '.join(PRESETS)}, or --evo-agent='COMMAND {{prompt_file}}'."
        )
    preset = PRESETS.get(settings.agent.strip())
    if preset is None:
        agent = _any_agent(settings.agent, rootdir, variables)
    else:
        agent = _known_agent(preset, options, variables)
    upstream = _upstream(preset, options, variables)
    _check_money(settings, upstream, notice)
    shown = tuple(_shown(name, rootdir) for name in options.show)
    conditions = Conditions(
        template=read_template(options.prompt, rootdir),
        environment=_environment(options, variables),
        sandbox=_sandbox(settings, rootdir, variables, notice),
        upstream=upstream,
        model=options.model,
        network=options.network,
        seconds=options.timeout,
        project=rootdir,
    )
    return AgentProposer(
        replace(agent, shown=(*agent.shown, *shown)),
        conditions,
        meter=_meter(settings, preset, upstream, notice),
        archive=archive,
        notice=notice,
    )


# -- the agent ---------------------------------------------------------------------


def _known_agent(
    preset: Preset, options: AgentSettings, variables: Mapping[str, str]
) -> Agent:
    program = shutil.which(preset.program, path=variables.get("PATH"))
    if program is None:
        raise ModelProblem(
            f"The agent {preset.name!r} is not installed: there is no program "
            f"{preset.program!r} in PATH. Type: {preset.install}"
        )
    if preset.needs_model and options.model is None:
        raise SettingsProblem(
            f"The agent {preset.name!r} needs a model. Set, by its provider's name:\n"
            f'    {_OPTIONS}\n    model = "MODEL"'
        )
    return Agent(
        preset.name,
        preset.build,
        places_of(Path(program), variables.get("PATH")),
        preset.speech,
    )


def _any_agent(line: str, rootdir: Path, variables: Mapping[str, str]) -> Agent:
    words = list(split_command(line))
    if not words:
        raise SettingsProblem("agent is empty. Type --evo-agent=NAME or a command.")
    first = str(rootdir / words[0]) if "/" in words[0] else words[0]
    program = shutil.which(first, path=variables.get("PATH"))
    if program is None:
        close = difflib.get_close_matches(words[0], PRESETS, 1)
        hint = f"Did you mean --evo-agent={close[0]}? " if close else ""
        raise ModelProblem(
            f"The agent {line!r} cannot be run: there is no program {words[0]!r}. "
            f"{hint}Known are {', '.join(PRESETS)}; any other command has to be in "
            "PATH or named by its path."
        )
    shown = []
    for place, word in enumerate(words[1:], 1):
        path = rootdir / word
        if not word.startswith("-") and path.is_file():
            words[place] = str(path)
            shown.append(path)
    filled = tuple(words)
    return Agent(
        Path(words[0]).name,
        lambda job: fill(filled, job),
        places_of(Path(program), variables.get("PATH")),
        shown=tuple(shown),
    )


# -- the model ---------------------------------------------------------------------


def _upstream(
    preset: Preset | None, options: AgentSettings, variables: Mapping[str, str]
) -> Upstream | None:
    name = options.api_key_env
    if preset is None and options.api_base is None:
        if name is not None:
            raise SettingsProblem(
                f"{_OPTIONS} api_key_env = {name!r} needs api_base, the address that "
                "the key is for. Write both, or neither."
            )
        return None
    base = options.api_base or (preset.base if preset is not None else "")
    if name is None and options.api_base is None and preset is not None:
        name = preset.key_variable
    key = variables.get(name) if name is not None else None
    if name is not None and not key:
        raise ModelProblem(
            f"The agent's model at {base} needs a key, and the environment variable "
            f"{name} is not set. Set it, or name another one with api_key_env in "
            f"{_OPTIONS}; for a server without keys set api_base alone."
        )
    return Upstream(base, key)


def _prices(options: AgentSettings) -> Prices | None:
    if options.input_usd is None or options.output_usd is None:
        return None
    cached = options.cached_usd
    return Prices(
        options.input_usd,
        options.input_usd if cached is None else cached,
        options.output_usd,
    )


def _check_money(
    settings: Settings, upstream: Upstream | None, notice: Callable[[str], None]
) -> None:
    if settings.budget_usd is None:
        return
    if upstream is None:
        notice(
            f"--budget-usd={settings.budget_usd:g} counts only what the agent itself "
            "says that it costs: it has no api_base, so no gateway counts. Where it "
            "says nothing, the run ends after its first proposal"
        )
        return
    if settings.agent_options.input_usd is None:
        raise SettingsProblem(
            f"--budget-usd={settings.budget_usd:g} cannot be kept: the price of the "
            f"agent's model is unknown. Write input_usd and output_usd into {_OPTIONS} "
            "(dollars per million tokens), or use --budget-tokens."
        )


def _meter(
    settings: Settings,
    preset: Preset | None,
    upstream: Upstream | None,
    notice: Callable[[str], None],
) -> Meter:
    """What counts the agents' calls, after the provider was asked once."""
    meter = Meter(_prices(settings.agent_options))
    # nobody knows which form a command of a person's speaks
    if upstream is not None and preset is not None and not settings.dry_run:
        tokens, remark = probe(upstream, preset.wire, settings.agent_options.model)
        meter.owe(tokens)
        if remark:
            notice(remark)
    return meter


# -- where it works ----------------------------------------------------------------


def _sandbox(
    settings: Settings,
    rootdir: Path,
    variables: Mapping[str, str],
    notice: Callable[[str], None],
) -> Sandbox | None:
    wanted = settings.agent_options.sandbox
    why = "agent_options.sandbox is 'never'"
    if wanted != "never":
        run_dir = rootdir / settings.run_dir
        found = find_sandbox((rootdir, run_dir, Path.home()), variables)
        if isinstance(found, Sandbox):
            return found
        why = found
    if wanted == "required":
        raise ModelProblem(
            f"There is no sandbox for the agent: {why}. Type apt-get install "
            "bubblewrap (or what your system has), or pip install "
            "'pytest-evo[sandbox]'; in a container, allow user namespaces. Or set "
            'sandbox = "auto" in '
            f"{_OPTIONS} to go on without."
        )
    notice(
        f"NO SANDBOX for the agent: {why}. It can read and change everything that you "
        "can, tests and held-out cases included. Use a container, or install "
        "bubblewrap: pip install 'pytest-evo[sandbox]'"
    )
    return None


def _environment(
    options: AgentSettings, variables: Mapping[str, str]
) -> dict[str, str]:
    names = (*_PASSED, *options.env_allow)
    return {name: variables[name] for name in names if name in variables}


def _shown(name: str, rootdir: Path) -> Path:
    path = (rootdir / name).resolve()
    if not path.exists():
        raise SettingsProblem(
            f"{_OPTIONS} show: there is no {name!r} ({path}). Name files and folders "
            "that the agent has to read."
        )
    if rootdir.resolve().is_relative_to(path):
        raise SettingsProblem(
            f"{_OPTIONS} show: {name!r} holds the whole project, which the agent must "
            "not see. Name the folder inside it that the agent needs."
        )
    return path
