"""How each known coding agent is started: data, and one function that fills it in.

No preset gives the prompt as an argument: it would be in every list of processes, and
has a limit. No preset gives a key: what it calls one is a token of the gateway.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field
from enum import StrEnum

from pytest_evo.errors import SettingsProblem
from pytest_evo.proposers.agent.gateway_wire import Wire

CHANGELOG = "changelog.json"
"""Beside ``artifact/``: what the agent says of its edits."""
PROMPT_FILE = "prompt.md"
TRAJECTORY_FILE = "trajectory.json"
_PROVIDER = "evo"
_NO_COLOUR = {"NO_COLOR": "1", "CI": "1"}
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]+)\}")
_KNOWN = frozenset({"prompt_file", "workspace", "model", "base_url"})
_CONTEXT = 200_000
_OUTPUT = 32_000


class Speech(StrEnum):
    """How an agent tells what it did."""

    EVENTS = "events"  # a JSON object a line
    TRAJECTORY = "trajectory"  # a file at the end
    TEXT = "text"  # lines for people


@dataclass(frozen=True, slots=True)
class Job:
    """What a command is made of; paths are as the agent sees them.

    ``root`` is the gateway's address without a version, empty without a gateway, and
    ``token`` what it takes. ``files`` are the artifact's files below ``workspace``.
    """

    workspace: str
    home: str
    prompt: str
    model: str | None = None
    root: str = ""
    token: str = ""
    files: tuple[str, ...] = ()

    @property
    def prompt_file(self) -> str:
        """The file that holds the prompt."""
        return f"{self.home}/{PROMPT_FILE}"

    @property
    def base(self) -> str:
        """The gateway's address as clients of chat and responses want it."""
        return f"{self.root}/v1"


@dataclass(frozen=True, slots=True)
class Command:
    """What is run. ``files`` are written below the home; ``stdin``: the prompt is."""

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    stdin: bool = True


@dataclass(frozen=True, slots=True)
class Preset:
    """A coding agent that is known by name.

    Args:
        name: as it is typed.
        program: what has to be installed.
        install: the command that does it.
        wire: how it speaks to a model.
        build: fills the command line in.
        speech: how it tells what it did.
        needs_model: it has no model of its own choice.
    """

    name: str
    program: str
    install: str
    wire: Wire
    build: Callable[[Job], Command]
    speech: Speech = Speech.EVENTS
    needs_model: bool = True

    @property
    def base(self) -> str:
        """The provider where nothing is said."""
        messages = self.wire is Wire.MESSAGES
        return "https://api.anthropic.com" if messages else "https://api.openai.com/v1"

    @property
    def key_variable(self) -> str:
        """The variable that holds its key where nothing is said."""
        messages = self.wire is Wire.MESSAGES
        return "ANTHROPIC_API_KEY" if messages else "OPENAI_API_KEY"


# -- the presets -------------------------------------------------------------------


def _claude(job: Job) -> Command:
    words = ["claude", "-p", "--bare", "--output-format", "stream-json", "--verbose"]
    words += ["--permission-mode", "bypassPermissions", "--no-session-persistence"]
    words += ["--model", job.model] if job.model else []
    return Command(
        tuple(words),
        {
            **_NO_COLOUR,
            "ANTHROPIC_API_KEY": job.token,
            "ANTHROPIC_BASE_URL": job.root,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_RETRIES": "4",
            "CLAUDE_CONFIG_DIR": f"{job.home}/claude",
            "DISABLE_AUTOUPDATER": "1",
            "IS_SANDBOX": "1",  # else it refuses to work for root
        },
    )


def _codex(job: Job) -> Command:
    provider = (
        f'{{name="{_PROVIDER}",base_url="{job.base}",env_key="EVO_TOKEN",'
        'wire_api="responses",request_max_retries=4,stream_max_retries=4}'
    )
    words = ["codex", "exec", "--json", "--ephemeral", "--skip-git-repo-check"]
    # it is in a sandbox of ours, or it was said loudly that there is none
    words += ["--dangerously-bypass-approvals-and-sandbox", "-C", job.workspace]
    words += ["-c", "analytics.enabled=false"]
    words += ["-c", "check_for_update_on_startup=false"]
    words += ["--disable", "plugins", "--disable", "apps"]
    words += ["-c", f"model_provider={_PROVIDER}"]
    words += ["-c", f"model_providers.{_PROVIDER}={provider}"]
    words += ["-m", job.model] if job.model else []
    return Command(
        (*words, "-"),
        {**_NO_COLOUR, "CODEX_HOME": f"{job.home}/codex", "EVO_TOKEN": job.token},
        {"codex/config.toml": ""},
    )


def _opencode(job: Job) -> Command:
    model = f"{_PROVIDER}/{job.model}"
    settings = {
        "autoupdate": False,
        "share": "disabled",
        "model": model,
        "small_model": model,
        "permission": {"*": "allow"},
        "provider": {
            _PROVIDER: {
                "npm": "@ai-sdk/openai-compatible",
                "name": _PROVIDER,
                "options": {"baseURL": job.base, "apiKey": job.token},
                "models": {
                    str(job.model): {
                        "name": job.model,
                        "limit": {"context": _CONTEXT, "output": _OUTPUT},
                    }
                },
            }
        },
    }
    words = ["opencode", "run", "--pure", "--format", "json"]
    words += ["--title", "evo"]  # else it asks the model for one
    words += ["--model", model, "--dir", job.workspace]
    return Command(
        tuple(words),
        {
            **_NO_COLOUR,
            "OPENCODE_CONFIG_CONTENT": json.dumps(settings),
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
        },
    )


def _pi(job: Job) -> Command:
    model = {
        "id": job.model,
        "contextWindow": _CONTEXT,
        "maxTokens": _OUTPUT,
        "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
    }
    provider = {
        "baseUrl": job.base,
        "api": "openai-completions",
        "apiKey": job.token,
        "compat": {"supportsDeveloperRole": False, "supportsReasoningEffort": False},
        "models": [model],
    }
    words = ["pi", "-p", "--mode", "json", "--no-session", "--no-extensions"]
    words += ["--no-skills", "--no-context-files"]
    words += ["--model", f"{_PROVIDER}/{job.model}"]
    return Command(
        tuple(words),
        {
            **_NO_COLOUR,
            "PI_CODING_AGENT_DIR": f"{job.home}/pi",
            "PI_OFFLINE": "1",
            "PI_TELEMETRY": "0",
        },
        {"pi/models.json": json.dumps({"providers": {_PROVIDER: provider}})},
    )


def _qwen(job: Job) -> Command:
    words = ["qwen", "--bare", "--auth-type", "openai", "--approval-mode", "yolo"]
    words += ["--output-format", "stream-json", "--model", str(job.model)]
    quiet = {"privacy": {"usageStatisticsEnabled": False}}
    return Command(
        tuple(words),
        {**_NO_COLOUR, "OPENAI_API_KEY": job.token, "OPENAI_BASE_URL": job.base},
        {".qwen/settings.json": json.dumps(quiet)},
    )


def _mini(job: Job) -> Command:
    settings = {
        "run": {"task": job.prompt},  # it takes a task as an argument, or from here
        "agent": {"cost_limit": 0},  # the gateway counts
        "model": {"model_kwargs": {"api_base": job.base}},
    }
    words = ["mini", "-m", f"openai/{job.model}", "-y", "--exit-immediately"]
    words += ["-o", f"{job.home}/{TRAJECTORY_FILE}"]
    words += ["-c", "mini.yaml", "-c", f"{job.home}/task.yaml"]
    return Command(
        tuple(words),
        {
            **_NO_COLOUR,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",
            "MSWEA_GLOBAL_CONFIG_DIR": f"{job.home}/mini",
            "MSWEA_MODEL_RETRY_STOP_AFTER_ATTEMPT": "4",
            "MSWEA_SILENT_STARTUP": "1",
            "OPENAI_API_KEY": job.token,
        },
        {"task.yaml": json.dumps(settings)},  # JSON is YAML too
        stdin=False,
    )


def _aider(job: Job) -> Command:
    words = ["aider", "--model", f"openai/{job.model}"]
    words += ["--message-file", job.prompt_file, "--yes-always", "--no-git"]
    words += ["--no-check-update", "--no-show-release-notes", "--analytics-disable"]
    words += ["--no-show-model-warnings", "--no-gitignore", "--no-auto-commits"]
    words += ["--no-stream", "--no-pretty", "--edit-format", "diff", "--map-tokens=0"]
    words += ["--no-detect-urls", "--no-suggest-shell-commands"]
    words += ["--chat-history-file", f"{job.home}/chat.md"]
    words += ["--input-history-file", f"{job.home}/input.txt"]
    return Command(
        # it edits what it is given; the folder that holds all of that is its root
        (*words, *(f"{job.workspace}/{name}" for name in (CHANGELOG, *job.files))),
        {
            **_NO_COLOUR,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "OPENAI_API_BASE": job.base,
            "OPENAI_API_KEY": job.token,
        },
        stdin=False,
    )


PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset(
            "claude",
            "claude",
            "npm install -g @anthropic-ai/claude-code",
            Wire.MESSAGES,
            _claude,
            needs_model=False,
        ),
        Preset(
            "codex",
            "codex",
            "npm install -g @openai/codex",
            Wire.RESPONSES,
            _codex,
            needs_model=False,
        ),
        Preset(
            "opencode", "opencode", "npm install -g opencode-ai", Wire.CHAT, _opencode
        ),
        Preset(
            "pi", "pi", "npm install -g @earendil-works/pi-coding-agent", Wire.CHAT, _pi
        ),
        Preset("qwen", "qwen", "npm install -g @qwen-code/qwen-code", Wire.CHAT, _qwen),
        Preset(
            "mini",
            "mini",
            "pipx install mini-swe-agent",
            Wire.CHAT,
            _mini,
            Speech.TRAJECTORY,
        ),
        Preset(
            "aider", "aider", "pipx install aider-chat", Wire.CHAT, _aider, Speech.TEXT
        ),
    )
}


# -- any command line --------------------------------------------------------------


def split_command(line: str) -> tuple[str, ...]:
    """The words of a command line that a person gave as an agent.

    Raises:
        SettingsProblem: it cannot be split, or holds a placeholder that is none.
    """
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise SettingsProblem(
            f"agent = {line!r} cannot be read as a command line ({error}). Write it as "
            "in a shell, with balanced quotes."
        ) from error
    for name in _PLACEHOLDER.findall(line):
        if name not in _KNOWN:
            known = ", ".join(f"{{{known}}}" for known in sorted(_KNOWN))
            raise SettingsProblem(
                f"agent = {line!r} holds {{{name}}}, and there is no such placeholder. "
                f"There are {known}; put a command that needs braces into a script."
            )
    return tuple(words)


def fill(words: tuple[str, ...], job: Job) -> Command:
    """A command line of a person's: placeholders are filled in, nothing is run by it.

    Without ``{prompt_file}`` in it the prompt is its standard input.
    """
    values = {
        "{prompt_file}": job.prompt_file,
        "{workspace}": job.workspace,
        "{model}": job.model or "",
        "{base_url}": job.base if job.root else "",
    }
    filled = []
    for word in words:
        for name, value in values.items():
            word = word.replace(name, value)
        filled.append(word)
    environment: dict[str, str] = {}
    if job.root:
        environment = {
            "ANTHROPIC_API_KEY": job.token,
            "ANTHROPIC_BASE_URL": job.root,
            "OPENAI_API_BASE": job.base,
            "OPENAI_API_KEY": job.token,
            "OPENAI_BASE_URL": job.base,
        }
    asks_for_file = any("{prompt_file}" in word for word in words)
    return Command(tuple(filled), environment, stdin=not asks_for_file)
