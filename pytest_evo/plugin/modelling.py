"""The language models of a run: made once, checked before anything is spent.

The environment is read here: which variable holds the key, and which variables rollouts
must not see because of it.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from fnmatch import fnmatchcase
from random import Random

from pytest_evo.errors import ModelProblem
from pytest_evo.llm.client import LiteLLMModel
from pytest_evo.plugin.taping import ReplayTape
from pytest_evo.plugin.taping import RunTape
from pytest_evo.protocols import ChatModel
from pytest_evo.settings import Settings
from pytest_evo.settings_model import ModelSettings

SECRETS = ("*_API_KEY", "*_ACCESS_KEY", "*_SECRET_KEY", "*_AUTH_TOKEN")
"""Variables that hold keys of models, where it is not known which one is used."""

# what is not just the provider's name and _API_KEY
_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    "together_ai": ("TOGETHERAI_API_KEY", "TOGETHER_AI_API_KEY", "TOGETHER_API_KEY"),
    "fireworks_ai": ("FIREWORKS_AI_API_KEY", "FIREWORKS_API_KEY"),
    "azure": ("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
    "huggingface": ("HF_TOKEN", "HUGGINGFACE_API_KEY"),
    "ollama": (),
    "ollama_chat": (),
}
_FAMILIES = {
    "claude": "anthropic",
    "chatgpt": "openai",
    "gemini": "gemini",
    "gpt": "openai",
    "o1": "openai",
    "o3": "openai",
    "o4": "openai",
}


class RunModels:
    """Models by name and options; those that are the same are one object.

    Args:
        environment: holds the keys.
        hide: takes secrets out of what providers say.
        seed: of the waits' jitter.
        tape: where exchanges are recorded, or where answers come from: then no model
            is made, and no key is looked for.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        hide: Callable[[str], str] = str,
        seed: int = 0,
        tape: RunTape | None = None,
    ) -> None:
        self._environment = environment
        self._hide = hide
        self._seed = seed
        self._tape = tape
        self._made: list[tuple[str, ModelSettings, ChatModel]] = []
        self._live: list[LiteLLMModel] = []

    def model(self, name: str, options: ModelSettings) -> ChatModel:
        """The model of this name; nothing is loaded or asked yet."""
        for known, how, made in self._made:
            if (known, how) == (name, options):
                return made
        model = self._make(name, options)
        self._made.append((name, options, model))
        return model

    def _make(self, name: str, options: ModelSettings) -> ChatModel:
        key = self._key(name, options)
        if self._tape is not None and key is not None:
            self._tape.cleaner.hide_too(key)
        if isinstance(self._tape, ReplayTape):
            return self._tape.model(name)
        live = LiteLLMModel(
            name,
            options,
            rng=Random(f"{self._seed} {name}"),
            key=key,
            hide=self._hide,
        )
        self._live.append(live)
        return live if self._tape is None else self._tape.wrap(live)

    def _key(self, name: str, options: ModelSettings) -> str | None:
        names = [options.api_key_env] if options.api_key_env else key_variables(name)
        found = (self._environment.get(variable) for variable in names)
        return next(filter(None, found), None)

    def check(self) -> None:
        """Look at names and keys without any network.

        Raises:
            ModelProblem: one of them cannot be used.
        """
        for model in self._live:
            model.check()

    def check_tape(self, seed: int, slots: int) -> None:
        """Look whether the cassette fits the run.

        Raises:
            SettingsProblem: it does not; says what to type.
        """
        if self._tape is not None:
            self._tape.check([name for name, _, _ in self._made], seed, slots)

    def probe(self, *, budget_usd: float | None = None) -> None:
        """Ask each model for a word, which is charged with its first answer.

        Raises:
            ModelProblem: a model cannot be used, or money is limited and its price is
                not known.
        """
        if isinstance(self._tape, ReplayTape) and budget_usd is not None:
            self._tape.check_prices(budget_usd)
        for model in self._live:
            cost = model.probe().estimated_usd
            if budget_usd is not None and cost is None:
                raise ModelProblem(
                    f"--budget-usd={budget_usd:g} cannot be kept: nobody knows what "
                    f"{model.name} costs. Write input_usd and output_usd (for a "
                    "million tokens) into [tool.pytest_evo.model_options], or limit "
                    "--budget-tokens instead."
                )

    def begin_tape(self, run: str, seed: int, slots: int) -> None:
        """Record from now on, where that was asked for.

        Raises:
            ModelProblem: the file is there already, or the disk refuses.
        """
        if self._tape is not None:
            self._tape.begin(run, seed, slots)

    def discard_tape(self) -> None:
        """Leave no cassette behind of a run that never began."""
        if self._tape is not None:
            self._tape.discard()

    def remark(self, *, ended: bool) -> str:
        """What a person should know about the cassette; empty where nothing.

        Raises:
            ModelProblem: something was asked that is not on it.
        """
        return "" if self._tape is None else self._tape.remark(ended=ended)

    def close(self) -> None:
        """End the cassette, then all waits and connections."""
        if self._tape is not None:
            self._tape.close()
        for model in self._live:
            model.close()


def hidden_variables(
    settings: Settings, environment: Mapping[str, str]
) -> tuple[str, ...]:
    """Names or globs of variables that rollouts must not see because of models.

    It is the variable that holds a model's key, and every other one with the same
    value; where nobody can tell which that is, all that look like keys.
    """
    asked = [(settings.model, settings.model_options)]
    if settings.diagnosis_model is not None:
        how = settings.diagnosis_options or settings.model_options
        asked.append((settings.diagnosis_model, how))
    hidden: list[str] = []
    for name, options in asked:
        if name is not None and not options.share_key:
            hidden += _of_model(name, options, environment)
    return tuple(dict.fromkeys(hidden))


def _of_model(
    name: str, options: ModelSettings, environment: Mapping[str, str]
) -> list[str]:
    names = [options.api_key_env] if options.api_key_env else key_variables(name)
    values = {environment[one] for one in names if environment.get(one)}
    if not values and options.api_base is None:
        return list(SECRETS)
    same = [one for one, value in environment.items() if value in values]
    return [*names, *same]


def key_variables(model: str) -> list[str]:
    """The variables in which litellm looks for a model's key, as far as known."""
    provider, slash, _ = model.partition("/")
    if not slash:
        known = [family for family in _FAMILIES if model.startswith(family)]
        if not known:
            return []
        provider = _FAMILIES[known[0]]
    return list(_VARIABLES.get(provider, (f"{provider.upper()}_API_KEY",)))


def kept_back(settings: Settings, environment: Mapping[str, str]) -> list[str]:
    """Variables that are set and that rollouts do not see because of models."""
    patterns = hidden_variables(settings, environment)
    return sorted(
        name
        for name in environment
        if any(fnmatchcase(name, pattern) for pattern in patterns)
    )
