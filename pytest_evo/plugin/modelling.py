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
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        hide: Callable[[str], str] = str,
        seed: int = 0,
    ) -> None:
        self._environment = environment
        self._hide = hide
        self._seed = seed
        self._made: list[tuple[str, ModelSettings, LiteLLMModel]] = []

    def model(self, name: str, options: ModelSettings) -> LiteLLMModel:
        """The model of this name; nothing is loaded or asked yet."""
        for known, how, made in self._made:
            if (known, how) == (name, options):
                return made
        model = LiteLLMModel(
            name,
            options,
            rng=Random(f"{self._seed} {name}"),
            key=self._key(name, options),
            hide=self._hide,
        )
        self._made.append((name, options, model))
        return model

    def _key(self, name: str, options: ModelSettings) -> str | None:
        names = [options.api_key_env] if options.api_key_env else key_variables(name)
        found = (self._environment.get(variable) for variable in names)
        return next(filter(None, found), None)

    def check(self) -> None:
        """Look at names and keys without any network.

        Raises:
            ModelProblem: one of them cannot be used.
        """
        for _, _, model in self._made:
            model.check()

    def probe(self, *, budget_usd: float | None = None) -> None:
        """Ask each model for a word, which is charged with its first answer.

        Raises:
            ModelProblem: a model cannot be used, or money is limited and its price is
                not known.
        """
        for name, _, model in self._made:
            cost = model.probe().usd
            if budget_usd is not None and cost is None:
                raise ModelProblem(
                    f"--budget-usd={budget_usd:g} cannot be kept: nobody knows what "
                    f"{name} costs. Write input_usd and output_usd (for a million "
                    "tokens) into [tool.pytest_evo.model_options], or limit "
                    "--budget-tokens instead."
                )

    def close(self) -> None:
        """End all waits and connections."""
        for _, _, model in self._made:
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
