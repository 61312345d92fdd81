"""Which diagnoser reads the failures of a run, and how it is made."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import replace
from pathlib import Path

from pytest_evo.diagnosis import ecdysis
from pytest_evo.diagnosis import mara
from pytest_evo.diagnosis.briefing import Versions
from pytest_evo.diagnosis.ecdysis import AcrossCases
from pytest_evo.diagnosis.mara import CaseByCase
from pytest_evo.diagnosis.none import NoDiagnosis
from pytest_evo.diagnosis.templates import Prompts
from pytest_evo.errors import SettingsProblem
from pytest_evo.models import Detail
from pytest_evo.models import Node
from pytest_evo.models import Rollout
from pytest_evo.protocols import ChatModel
from pytest_evo.protocols import Diagnosed
from pytest_evo.protocols import Diagnoser
from pytest_evo.settings import Settings
from pytest_evo.strategies.presets import import_part

NONE = "none"
READERS = frozenset({"llm", "agent"})
"""Proposers that read diagnoses without being told to."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What a diagnoser that asks a model needs."""

    model: ChatModel
    versions: Versions
    objective: str = ""
    prompts: Path | None = None


DIAGNOSERS: Mapping[str, Callable[[Tools], Diagnoser]] = {
    "mara": lambda t: CaseByCase(t.model, t.versions, t.objective, t.prompts),
    "ecdysis": lambda t: AcrossCases(t.model, t.versions, t.objective, t.prompts),
}
_PROMPTS = {"mara": mara.VARIABLES, "ecdysis": ecdysis.VARIABLES}
_KNOWN = {NONE: None, **DIAGNOSERS}


def choose_diagnoser(settings: Settings, proposer: str) -> str:
    """The name of the diagnoser: what is set, else what the other settings ask for.

    ``mara`` where ``diagnosis_model`` is set, or ``model`` is and the proposer reads
    diagnoses by itself; else ``none``: nobody pays for what nobody reads.

    Raises:
        SettingsProblem: the one that is set needs a model, or nothing needs the one
            that is set.
    """
    name = settings.diagnoser
    if name is None:
        wanted = settings.diagnosis_model is not None or (
            settings.model is not None and proposer in READERS
        )
        return "mara" if wanted else NONE
    if name in DIAGNOSERS and model_name(settings) is None:
        raise SettingsProblem(
            f"diagnoser = {name!r} asks a model, and none is set. Write model or "
            "diagnosis_model = \"PROVIDER/NAME\", or diagnoser = 'none'."
        )
    if name == NONE and settings.diagnosis_model is not None:
        raise SettingsProblem(
            "diagnosis_model is set and diagnoser = 'none' never asks it. Remove one "
            "of them."
        )
    return name


def model_name(settings: Settings) -> str | None:
    """The model that diagnoses."""
    return settings.diagnosis_model or settings.model


def check_prompts(name: str, folder: Path | None) -> None:
    """Find what is wrong with the prompts of a diagnoser before anything is run.

    Raises:
        SettingsProblem: one is missing or malformed.
    """
    if name in _PROMPTS:
        Prompts(_PROMPTS[name], folder)


def make_diagnoser(name: str, tools: Callable[[], Tools]) -> Diagnoser:
    """Make a diagnoser by its short name or its dotted one, ``package.module:name``.

    Args:
        name: as :func:`choose_diagnoser` gives it.
        tools: called where the diagnoser asks a model.

    Raises:
        SettingsProblem: the name is unknown or cannot be imported, or a prompt is
            missing.
    """
    if name == NONE:
        return NoDiagnosis()
    if name in DIAGNOSERS:
        return DIAGNOSERS[name](tools())
    made: Diagnoser = import_part("diagnoser", name, _KNOWN)
    return made


class WithDetails:
    """Gives a diagnoser rollouts that bring their details.

    Args:
        diagnoser: that reads them.
        detail: reads a detail by a rollout's ``trace``.
    """

    def __init__(self, diagnoser: Diagnoser, detail: Callable[[str], Detail]) -> None:
        self._diagnoser = diagnoser
        self._detail = detail

    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        """What the diagnoser says of the same nodes."""
        return await self._diagnoser.diagnose([self._whole(node) for node in nodes])

    def _whole(self, node: Node) -> Node:
        return replace(node, rollouts=tuple(map(self._with_detail, node.rollouts)))

    def _with_detail(self, rollout: Rollout) -> Rollout:
        if rollout.detail is not None or rollout.trace is None:
            return rollout
        return replace(rollout, detail=self._detail(rollout.trace))
