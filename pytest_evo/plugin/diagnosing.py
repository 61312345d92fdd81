"""What proposers are told: evidence and diagnoses, wired to a run's files."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.diagnosis.briefing import Versions
from pytest_evo.diagnosis.evidence import attempts_on
from pytest_evo.diagnosis.evidence import gather
from pytest_evo.diagnosis.evidence import Sources
from pytest_evo.diagnosis.hiding import HidingDiagnoser
from pytest_evo.diagnosis.none import NoDiagnosis
from pytest_evo.diagnosis.traces import Tracing
from pytest_evo.engine.budget import Budget
from pytest_evo.engine.parts import Gather
from pytest_evo.evidence import Evidence
from pytest_evo.models import Attempt
from pytest_evo.models import Case
from pytest_evo.models import Detail
from pytest_evo.models import Node
from pytest_evo.models import Rollout
from pytest_evo.plugin import hooks
from pytest_evo.plugin.knowing import Knowing
from pytest_evo.plugin.rationing import RationedModel
from pytest_evo.plugin.runfiles import RunFiles
from pytest_evo.plugin.task import Task
from pytest_evo.protocols import ChatModel
from pytest_evo.protocols import Diagnoser
from pytest_evo.settings import Settings
from pytest_evo.settings_model import ModelSettings
from pytest_evo.strategies.diagnosers import check_prompts
from pytest_evo.strategies.diagnosers import choose_diagnoser
from pytest_evo.strategies.diagnosers import DIAGNOSERS
from pytest_evo.strategies.diagnosers import make_diagnoser
from pytest_evo.strategies.diagnosers import model_name
from pytest_evo.strategies.diagnosers import Tools
from pytest_evo.strategies.diagnosers import WithDetails

ROLE = "diagnoser"
"""Under which the ledger counts what diagnoses cost."""


# -- evidence ----------------------------------------------------------------------


def gatherer(
    task: Task, files: RunFiles, redact: Callable[[str], str], knowing: Knowing
) -> Gather:
    """Collects evidence from a run's files; ``search`` reads none."""

    def detail(rollout: Rollout) -> Detail:
        return knowing.hiding().detail_of(rollout, files.rollouts.detail)

    tracing = Tracing(detail, redact)
    sources = Sources(
        tree=files.trees.get, schema=task.schema, redact=redact, trace=tracing.of
    )

    def collect(
        nodes: Sequence[Node], batch: Sequence[Case], attempts: Sequence[Attempt]
    ) -> Evidence:
        hiding = knowing.hiding()
        return gather(
            hiding.nodes(nodes),
            hiding.cases(batch),
            hiding.attempts(attempts_on(attempts, [case.id for case in batch])),
            sources,
        )

    def nothing(
        nodes: Sequence[Node], batch: Sequence[Case], attempts: Sequence[Attempt]
    ) -> Evidence:
        return Evidence()

    return nothing if task.proposer_name == "search" else collect


# -- diagnoses ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reading:
    """The diagnoser of a run; ``close`` ends what is still being asked."""

    diagnoser: Diagnoser
    close: Callable[[], None] = lambda: None


def open_reading(
    task: Task,
    files: RunFiles,
    redact: Callable[[str], str],
    budget: Callable[[], Budget | None],
    knowing: Knowing,
) -> Reading:
    """Make the diagnoser; it sees what proposers may see.

    Raises:
        UsageProblem: a setting, a prompt, the model's name or its key has to change;
            nothing was spent on rollouts.
    """
    settings = task.settings
    name = choose_diagnoser(settings, task.proposer_name)

    def shown(diagnoser: Diagnoser) -> Diagnoser:
        hidden = HidingDiagnoser(diagnoser, knowing.hiding)
        return WithDetails(hidden, files.rollouts.detail)

    made = hooks.make_diagnoser(task.config, name)
    if made is not None:
        return Reading(shown(made))
    model = _model(task) if name in DIAGNOSERS else None

    def tools() -> Tools:
        assert model is not None
        return Tools(
            RationedModel(model, ROLE, budget),
            Versions(files.trees.get, files.blobs.get, task.schema, redact),
            settings.objective,
            _prompts(settings, task.config.rootpath),
        )

    diagnoser = make_diagnoser(name, tools)
    if isinstance(diagnoser, NoDiagnosis):
        return Reading(diagnoser)
    return Reading(shown(diagnoser), task.models.close)


def prepare(task: Task) -> None:
    """Check settings and prompts; name the model, so that it is checked with others.

    Raises:
        SettingsProblem: a setting contradicts another one, or a prompt is missing.
    """
    name = choose_diagnoser(task.settings, task.proposer_name)
    if name in DIAGNOSERS:
        check_prompts(name, _prompts(task.settings, task.config.rootpath))
        _model(task)


def _model(task: Task) -> ChatModel:
    name = model_name(task.settings)
    assert name is not None
    return task.models.model(name, _options(task.settings))


def _options(settings: Settings) -> ModelSettings:
    """How the model is reached: prices of another model are not taken over."""
    if settings.diagnosis_options is not None:
        return settings.diagnosis_options
    options = settings.model_options
    if settings.diagnosis_model in (None, settings.model):
        return options
    unknown = {"input_usd": None, "cached_usd": None, "output_usd": None}
    return options.model_copy(update=unknown)


def _prompts(settings: Settings, rootdir: Path) -> Path | None:
    if settings.diagnosis_prompts is None:
        return None
    return rootdir / settings.diagnosis_prompts
