"""What closed iterations say of settings that were not tried: a Gaussian process.

It is small on purpose: one length for all knobs, chosen with the noise by likelihood
from a few values, fitted to the attempts nearest to where the search is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_evo.proposers.knobspace import KnobSpace
from pytest_evo.proposers.knobspace import Values

LEAST = 6
"""Fewer attempts than this say nothing."""
_MOST = 160
_LENGTHS = (0.3, 0.5, 0.8, 1.3)
_NOISES = (0.01, 0.1, 0.4)


@dataclass(frozen=True, slots=True)
class Observation:
    """A setting with its estimated gain over the start."""

    values: Values
    gain: float


def hopes(
    space: KnobSpace,
    observations: Sequence[Observation],
    around: Values,
    candidates: Sequence[Values],
    optimism: float,
) -> list[float]:
    """How promising each candidate is: estimate plus ``optimism`` deviations.

    The unit is the spread of the observed gains.
    """
    import numpy as np

    centre = np.array(features(space, around))
    inputs = np.array([features(space, seen.values) for seen in observations])
    gains = np.array([seen.gain for seen in observations])
    if len(inputs) > _MOST:
        distances = ((inputs - centre) ** 2).sum(axis=1)
        nearest = np.sort(np.argsort(distances, kind="stable")[:_MOST])
        inputs, gains = inputs[nearest], gains[nearest]
    spread = float(gains.std())
    if spread < 1e-12:
        return [0.0] * len(candidates)
    targets = (gains - gains.mean()) / spread
    length, factor, weights = _fit(_squares(inputs, inputs), targets)
    queries = np.array([features(space, values) for values in candidates])
    links = np.exp(-_squares(queries, inputs) / (2 * length**2))
    estimate = links @ weights
    explained = (np.linalg.solve(factor, links.T) ** 2).sum(axis=0)
    deviation = np.sqrt(np.maximum(1e-9, 1 - explained))
    # rounded, so that the last bits of a library do not decide
    return [round(float(x), 6) for x in estimate + optimism * deviation]


def _squares(one: Any, other: Any) -> Any:
    return ((one[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)


def _fit(squares: Any, targets: Any) -> tuple[float, Any, Any]:
    """The most likely length, with the factor and weights that belong to it."""
    import numpy as np

    best: tuple[float, float, Any, Any] | None = None
    for length in _LENGTHS:
        links = np.exp(-squares / (2 * length**2))
        for noise in _NOISES:
            factor = np.linalg.cholesky(links + noise * np.eye(len(targets)))
            half = np.linalg.solve(factor, targets)
            likelihood = -0.5 * half @ half - np.log(np.diag(factor)).sum()
            if best is None or likelihood > best[0] + 1e-9:
                weights = np.linalg.solve(factor.T, half)
                best = (float(likelihood), length, factor, weights)
    assert best is not None
    return best[1:]


def features(space: KnobSpace, values: Values) -> list[float]:
    """A setting as a point; two different choices are as far apart as 0.7."""
    point: list[float] = []
    for axis in space.axes:
        value = values[axis.name]
        if axis.numeric:
            point.append(axis.place(value))
        else:
            point += [0.5 if axis.is_option(value, o) else 0.0 for o in axis.options]
    return point
