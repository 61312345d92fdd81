"""Named strategies: each is a choice among the engine's parts."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from pytest_evo.engine.acceptance import EqualOrBetter
from pytest_evo.engine.acceptance import Paired
from pytest_evo.engine.acceptance import SumDelta
from pytest_evo.engine.parts import Strategy
from pytest_evo.engine.population import IncumbentOnly
from pytest_evo.engine.population import KeepAll
from pytest_evo.engine.population import ParetoTopN
from pytest_evo.engine.refining import Chain
from pytest_evo.engine.refining import NoRefinement
from pytest_evo.engine.refining import Tree
from pytest_evo.engine.sampling import Epoch
from pytest_evo.engine.sampling import Guards
from pytest_evo.engine.sampling import HighVariance
from pytest_evo.engine.sampling import Incumbent
from pytest_evo.engine.sampling import LeadCount
from pytest_evo.engine.sampling import ParetoFrequency
from pytest_evo.engine.validation import Full
from pytest_evo.engine.validation import Staged
from pytest_evo.errors import SettingsProblem
from pytest_evo.settings import Settings

Maker = Callable[[int], Any]
"""Makes a part; it is told the size of the population."""

PARTS: Mapping[str, Mapping[str, Maker]] = {
    "parents": {
        "lead-count": lambda size: LeadCount(),
        "pareto-frequency": lambda size: ParetoFrequency(),
        "incumbent": lambda size: Incumbent(),
    },
    "batches": {
        "guards": lambda size: Guards(),
        "epoch": lambda size: Epoch(),
        "high-variance": lambda size: HighVariance(),
    },
    "acceptance": {
        "paired": lambda size: Paired(),
        "sum-delta": lambda size: SumDelta(),
        "equal-or-better": lambda size: EqualOrBetter(),
    },
    "refiner": {
        "chain": lambda size: Chain(),
        "tree": lambda size: Tree(),
        "none": lambda size: NoRefinement(),
    },
    "validation": {
        "staged": lambda size: Staged(),
        "full": lambda size: Full(),
    },
    "survivors": {
        "pareto-top-n": ParetoTopN,
        "keep-all": lambda size: KeepAll(),
        "incumbent": lambda size: IncumbentOnly(),
    },
}


@dataclass(frozen=True, slots=True)
class Preset:
    """What a named strategy sets where a person sets nothing else."""

    parts: Mapping[str, str]
    numbers: Mapping[str, int]  # settings of these names


_MARA = {
    "parents": "lead-count",
    "batches": "guards",
    "acceptance": "paired",
    "refiner": "chain",
    "validation": "staged",
    "survivors": "pareto-top-n",
}
PRESETS: Mapping[str, Preset] = {
    "mara": Preset(_MARA, {}),
    # the published defaults: slots, depth, population and batch
    "mara-paper": Preset(
        {
            **_MARA,
            "batches": "epoch",
            "acceptance": "sum-delta",
            "validation": "full",
        },
        {"slots": 1, "chain_depth": 5, "top_n": 3, "batch": 4},
    ),
}


def preset(name: str) -> Preset:
    """The preset of a name.

    Raises:
        SettingsProblem: there is none.
    """
    if name in PRESETS:
        return PRESETS[name]
    raise SettingsProblem(_unknown("strategy", name, PRESETS))


def with_preset(settings: Settings) -> Settings:
    """Fill in what the preset says and nobody else has said."""
    chosen = preset(settings.strategy)
    said = settings.model_fields_set
    update: dict[str, object] = {
        name: value
        for name, value in {**chosen.parts, **chosen.numbers}.items()
        if name not in said or getattr(settings, name) is None
    }
    return settings.model_copy(update=update)


def make_strategy(settings: Settings, population: int) -> Strategy:
    """Make all parts of a strategy.

    Args:
        settings: with the preset filled in.
        population: how many candidates survive.

    Raises:
        SettingsProblem: a name is unknown or cannot be imported.
    """
    made = {
        kind: make_part(kind, getattr(settings, kind), population) for kind in PARTS
    }
    return Strategy(**made)


def make_part(kind: str, name: str, population: int) -> Any:
    """Make one part by its short name or its dotted one, ``package.module:name``.

    Raises:
        SettingsProblem: the name is unknown or cannot be imported.
    """
    if name in PARTS[kind]:
        return PARTS[kind][name](population)
    return import_part(kind, name, PARTS[kind])


def import_part(kind: str, name: str, known: Mapping[str, object]) -> Any:
    """Import one part by its dotted name; a class is called without arguments.

    Args:
        kind: the setting that names it.
        name: ``package.module:name``.
        known: the short names there are, for the message.

    Raises:
        SettingsProblem: the name is unknown or cannot be imported.
    """
    module, colon, attribute = name.partition(":")
    if not colon:
        raise SettingsProblem(_unknown(kind, name, known))
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise SettingsProblem(
            f"{kind} = {name!r} cannot be imported: {error}. Write "
            f"package.module:name, or one of {', '.join(known)}."
        ) from error
    return found() if isinstance(found, type) else found


def _unknown(kind: str, name: str, known: Mapping[str, object]) -> str:
    close = get_close_matches(name, known, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"{kind} = {name!r} is not known.{hint} Write one of {', '.join(known)}" + (
        ", or package.module:name." if kind != "strategy" else "."
    )
