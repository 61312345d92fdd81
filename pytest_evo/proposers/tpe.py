"""Suggestions of optuna's tree-structured Parzen estimator, by ask and tell.

Studies are caches: each holds a prefix of the observations, and the sampler is made
anew for every question, so an answer follows from observations and seed alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any

from pytest_evo.errors import SettingsProblem
from pytest_evo.proposers.knobspace import Axis
from pytest_evo.proposers.knobspace import KnobSpace
from pytest_evo.proposers.knobspace import Value
from pytest_evo.proposers.knobspace import Values
from pytest_evo.proposers.surrogate import Observation

_KEPT = 8  # concurrent slots see different prefixes; each finds its own study
_ASKED = 1


def load_optuna() -> Any:
    """Import optuna.

    Raises:
        SettingsProblem: it is not installed.
    """
    try:
        import optuna
    except ImportError as error:
        raise SettingsProblem(
            "The search proposer needs optuna, which cannot be imported "
            f'({error}). Type: pip install "pytest-evo[search]"'
        ) from error
    return optuna


@dataclass(slots=True)
class _Kept:
    """A study that was told the first ``told`` observations."""

    space: KnobSpace
    study: Any
    told: list[Observation]

    def holds_prefix_of(
        self, space: KnobSpace, observations: Sequence[Observation]
    ) -> bool:
        count = len(self.told)
        return (
            self.space == space
            and count <= len(observations)
            and self.told == list(observations[:count])
        )


class Suggestions:
    """Asks optuna, with studies kept from question to question."""

    def __init__(self) -> None:
        self._kept: list[_Kept] = []  # least recently used first
        self._lock = Lock()  # slots ask from threads of their own

    def ask(
        self, space: KnobSpace, observations: Sequence[Observation], seed: int
    ) -> list[Values]:
        """A few whole settings that the estimator holds for promising.

        Raises:
            SettingsProblem: optuna is not installed.
        """
        optuna = load_optuna()
        with self._lock:
            return self._ask(optuna, space, observations, seed)

    def _ask(
        self,
        optuna: Any,
        space: KnobSpace,
        observations: Sequence[Observation],
        seed: int,
    ) -> list[Values]:
        distributions = {axis.name: _distribution(optuna, axis) for axis in space.axes}
        study = self._study(optuna, space, observations, distributions)
        study.sampler = optuna.samplers.TPESampler(
            constant_liar=False, n_startup_trials=0, seed=seed
        )
        found: list[Values] = []
        for _ in range(_ASKED):
            trial = study.ask(fixed_distributions=distributions)
            found.append(
                {axis.name: _rounded(axis, trial.params) for axis in space.axes}
            )
            # the verdict comes iterations later, as an observation of its own
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return found

    def _study(
        self,
        optuna: Any,
        space: KnobSpace,
        observations: Sequence[Observation],
        distributions: dict[str, Any],
    ) -> Any:
        fitting = [k for k in self._kept if k.holds_prefix_of(space, observations)]
        exact = [kept for kept in fitting if len(kept.told) == len(observations)]
        if exact:
            kept = exact[0]
        elif fitting and len(self._kept) >= _KEPT:
            kept = fitting[0]
        else:
            kept = _Kept(space, _new_study(optuna), [])
        for observation in observations[len(kept.told) :]:
            _tell(optuna, kept.study, space, observation, distributions)
            kept.told.append(observation)
        self._kept = [other for other in self._kept if other is not kept]
        self._kept = [*self._kept[-_KEPT + 1 :], kept]
        return kept.study


def _new_study(optuna: Any) -> Any:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(direction="maximize")
    finally:
        optuna.logging.set_verbosity(level)


def _tell(
    optuna: Any,
    study: Any,
    space: KnobSpace,
    observation: Observation,
    distributions: dict[str, Any],
) -> None:
    """Add an observation; values that are out of range now are left out of it."""
    usable = {
        axis.name: observation.values[axis.name]
        for axis in space.axes
        if axis.knows(observation.values[axis.name])
    }
    params = {
        axis.name: axis.rounded(float(usable[axis.name]))
        if axis.numeric
        else usable[axis.name]
        for axis in space.axes
        if axis.name in usable
    }
    study.add_trial(
        optuna.trial.create_trial(
            params=params,
            distributions={name: distributions[name] for name in params},
            value=observation.gain,
        )
    )


def _distribution(optuna: Any, axis: Axis) -> Any:
    kinds = optuna.distributions
    if not axis.numeric:
        return kinds.CategoricalDistribution(axis.options)
    knob = axis.knob
    if knob.type == "int":
        step = 1 if knob.log else int(knob.step or 1)
        return kinds.IntDistribution(
            int(axis.low), int(axis.high), log=knob.log, step=step
        )
    return kinds.FloatDistribution(axis.low, axis.high, log=knob.log)


def _rounded(axis: Axis, params: dict[str, Value]) -> Value:
    value = params[axis.name]
    return axis.rounded(float(value)) if axis.numeric else value
