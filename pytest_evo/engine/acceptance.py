"""Whether a child beats its parent on the batch."""

from __future__ import annotations

from math import fsum

from pytest_evo import means
from pytest_evo.engine import statistics
from pytest_evo.models import Decision
from pytest_evo.models import EPSILON
from pytest_evo.models import Verdict
from pytest_evo.protocols import Comparison

ALPHA = 0.05
ROUNDS = 3
"""How often an undecided comparison may ask for fresh repeats."""
LARGEST_BATCH = 10_000


class Paired:
    """Any gain where nothing is noisy, else a one-sided z-test of the paired mean.

    Only noisy cases contribute variance. The level is divided by the number of nodes
    that the iteration may test, since each of them gets a look; a confirmation on fresh
    rollouts is one look at the full level and is never undecided.
    """

    def __init__(self, alpha: float = ALPHA, rounds: int = ROUNDS) -> None:
        self._alpha = alpha
        self._rounds = rounds

    def decide(self, comparison: Comparison) -> Verdict:
        """Decide; every case has at least one score on both sides."""
        effect, total = _effect(comparison)
        error = statistics.paired_error(
            (
                (
                    comparison.weights.get(case, 1.0),
                    len(scores),
                    len(comparison.child[case]),
                )
                for case, scores in comparison.parent.items()
                if case in comparison.noisy
            ),
            comparison.variance,
            total,
        )
        if error <= 0:
            return _any_gain(effect)
        looks = 1 if comparison.fresh else max(1, comparison.attempts)
        level = self._alpha / looks
        threshold = max(EPSILON, statistics.upper_z(level) * error)
        p = statistics.p_value(effect, error)
        numbers = f"gain {effect:+.4f}, needed {threshold:.4f}, p {p:.4f}"
        if effect > threshold:
            decision, reason = Decision.ACCEPTED, f"beyond noise: {numbers}"
        elif effect <= EPSILON:
            decision, reason = Decision.REJECTED, f"no gain: {numbers}"
        elif comparison.fresh:
            decision, reason = Decision.REJECTED, f"not confirmed: {numbers}"
        else:
            decision, reason = Decision.UNDECIDED, f"within noise: {numbers}"
        return Verdict(decision, effect, threshold, p, reason)

    def smallest_batch(
        self, size: int, noisy_share: float, variance: float, attempts: int
    ) -> int | None:
        """The smallest batch of at least ``size`` on which a child can be accepted.

        The child is thought to repair the failing half of the batch for good, and every
        round of fresh repeats is used. None where no batch up to 10,000 is enough.
        """
        level = statistics.upper_z(self._alpha / max(1, attempts))
        arms = 2 / (1 + self._rounds)
        for batch in range(max(1, size), LARGEST_BATCH + 1):
            gain = max(1, batch // 2) / batch
            error = (noisy_share * variance * arms / batch) ** 0.5
            if gain > max(EPSILON, level * error):
                return batch
        return None


class SumDelta:
    """The published rule: the sum of scores rises by at least ``delta``.

    A rise of no more than 1e-8 is none. A child that is perfect on the batch is taken
    although it falls short of ``delta``.
    """

    def __init__(self, delta: float = 0.0) -> None:
        self._delta = delta

    def decide(self, comparison: Comparison) -> Verdict:
        """Compare sums over the batch; repeats are averaged first."""
        mean, total = _effect(comparison)
        rise = mean * total
        perfect = all(
            means.mean(scores) >= 1 - EPSILON for scores in comparison.child.values()
        )
        needed = max(EPSILON, self._delta)
        clears = rise > EPSILON and rise >= self._delta - EPSILON
        if clears or (perfect and rise > EPSILON):
            reason = f"sum {rise:+.4f}" + ("" if clears else ", perfect on the batch")
            return Verdict(Decision.ACCEPTED, mean, needed / total, None, reason)
        reason = f"sum {rise:+.4f}, needed {needed:g}"
        return Verdict(Decision.REJECTED, mean, needed / total, None, reason)

    def smallest_batch(
        self, size: int, noisy_share: float, variance: float, attempts: int
    ) -> int | None:
        """Any batch will do: a perfect child is always taken."""
        return max(1, size)


class EqualOrBetter:
    """A child that is not worse is taken: drift along plateaus is wanted."""

    def decide(self, comparison: Comparison) -> Verdict:
        """Compare weighted means over the batch."""
        effect, _ = _effect(comparison)
        decision = Decision.ACCEPTED if effect >= -EPSILON else Decision.REJECTED
        return Verdict(decision, effect, -EPSILON, None, f"gain {effect:+.4f}")

    def smallest_batch(
        self, size: int, noisy_share: float, variance: float, attempts: int
    ) -> int | None:
        """Any batch will do."""
        return max(1, size)


def _effect(comparison: Comparison) -> tuple[float, float]:
    """Weighted mean of the paired differences, and the total weight."""
    terms = []
    total = 0.0
    for case, before in comparison.parent.items():
        weight = comparison.weights.get(case, 1.0)
        after = comparison.child[case]
        terms.append(weight * (means.mean(after) - means.mean(before)))
        total += weight
    if total <= 0:  # nothing that weighs anything: no evidence either way
        return 0.0, 1.0
    return fsum(terms) / total, total


def _any_gain(effect: float) -> Verdict:
    gained = effect > EPSILON
    return Verdict(
        Decision.ACCEPTED if gained else Decision.REJECTED,
        effect,
        EPSILON,
        None,
        f"deterministic: gain {effect:+.4f}",
    )
