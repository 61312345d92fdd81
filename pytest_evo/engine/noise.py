"""How the suite's noise is measured at the baseline."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from pytest_evo.engine.statistics import measure_noise
from pytest_evo.events import NoiseMeasured
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Rollout
from pytest_evo.protocols import Draws

Mode = Literal["auto", "none", "repeats"]
SAMPLED = 20
TIMES = 3
UNSEEN_VARIANCE = 0.05
"""Within-case variance assumed of noisy cases whose few repeats never differed."""


def sample_for_noise(cases: Sequence[Case], mode: Mode, draws: Draws) -> list[Case]:
    """The cases that run three times, in case order."""
    if mode == "none":
        return []
    open_cases = [case for case in cases if case.deterministic is None]
    if len(open_cases) <= SAMPLED:
        return open_cases
    chosen = draws.rng("noise").sample(range(len(open_cases)), SAMPLED)
    return [open_cases[index] for index in sorted(chosen)]


def judge_noise(
    cases: Sequence[Case], rollouts: Mapping[CaseId, Sequence[Rollout]], mode: Mode
) -> NoiseMeasured:
    """Sort the cases into deterministic and noisy; noisy ones never have variance 0."""
    noise = measure_noise(cases, rollouts, mode)
    if noise.noisy and noise.variance <= 0:
        return replace(noise, variance=UNSEEN_VARIANCE)
    return noise
