"""Which parent, and which train cases, an iteration works with."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import EPSILON
from pytest_evo.models import Member
from pytest_evo.protocols import BatchRequest
from pytest_evo.protocols import Draws

# -- parents -----------------------------------------------------------------------


class LeadCount:
    """Draws in proportion to the val cases on which a member leads.

    To lead is to be within 1e-8 of the population's best; ties lead together.
    """

    def sample(self, population: Sequence[Member], rng: Random) -> Member:
        """Draw one member; the population is never empty."""
        weights = [len(leads) for leads in _leads(population)]
        return _draw(population, weights, rng)


class ParetoFrequency:
    """As lead count, among members that no other one makes superfluous.

    A member is superfluous where each case it leads on has another leader that stays;
    the weakest by mean go first, of equals the later in the population.
    """

    def sample(self, population: Sequence[Member], rng: Random) -> Member:
        """Draw one member; the population is never empty."""
        leads = _leads(population)
        kept = set(range(len(population)))
        for at in sorted(kept, key=lambda at: (population[at].mean, -at)):
            others = [leads[other] for other in kept if other != at]
            if others and leads[at] <= frozenset().union(*others):
                kept.remove(at)
        order = sorted(kept)
        members = [population[at] for at in order]
        return _draw(members, [len(leads[at]) for at in order], rng)


class Incumbent:
    """The member with the best mean, always; of equals the first."""

    def sample(self, population: Sequence[Member], rng: Random) -> Member:
        """Take the best; no randomness is used."""
        return max(population, key=lambda member: member.mean)


def _leads(population: Sequence[Member]) -> list[frozenset[CaseId]]:
    best: dict[CaseId, float] = {}
    for member in population:
        for case, score in member.scores.items():
            best[case] = max(best.get(case, score), score)
    return [
        frozenset(
            case
            for case, score in member.scores.items()
            if score >= best[case] - EPSILON
        )
        for member in population
    ]


def _draw(members: Sequence[Member], weights: Sequence[int], rng: Random) -> Member:
    if not any(weights):
        return members[rng.randrange(len(members))]
    return rng.choices(members, weights)[0]


# -- batches -----------------------------------------------------------------------


class Epoch:
    """The published form: every case once before any comes again.

    Batches are consecutive pieces of an endless row of shuffled epochs; the place of a
    batch follows from the number of its iteration alone, so there is nothing to
    remember. Where a batch reaches over the end of an epoch, the next epoch first
    brings cases that the batch does not have yet.
    """

    def sample(self, request: BatchRequest, draws: Draws) -> tuple[Case, ...]:
        """Draw ``min(size, len(train))`` cases."""
        count = len(request.train)
        size = min(request.size, count)
        if size <= 0:
            return ()
        first = max(0, request.iteration - 1) * size
        epoch, at = divmod(first, count)
        order = _epoch_order(epoch, count, size, draws)
        chosen = order[at : at + size]
        if len(chosen) < size:
            following = _epoch_order(epoch + 1, count, size, draws)
            chosen = [*chosen, *following[: size - len(chosen)]]
        return tuple(request.train[place] for place in sorted(chosen))


def _epoch_order(epoch: int, count: int, size: int, draws: Draws) -> list[int]:
    """One epoch, arranged so that the batch begun in the one before has no doubles."""
    first = epoch
    while first * count % size:  # back to an epoch that begins with a batch
        first -= 1
        if count >= 2 * size:  # an arranged head never reaches the tail that counts
            break
    order: list[int] = []
    for number in range(first, epoch + 1):
        taken = number * count % size  # of the running batch, in the epoch before
        before = frozenset(order[count - taken :]) if order else frozenset()
        order = list(range(count))
        draws.rng("epoch", number).shuffle(order)
        for at in range(size - taken if before else 0):
            if order[at] in before:
                other = next(
                    later
                    for later in range(at + 1, count)
                    if order[later] not in before
                )
                order[at], order[other] = order[other], order[at]
    return order


class Guards:
    """Half of the batch fails or scores below 1, half passes and guards against loss.

    Either side fills up for the other. A batch follows from the seed, the iteration and
    what is believed of the parent; a case of which nothing is known counts as failing.
    """

    def sample(self, request: BatchRequest, draws: Draws) -> tuple[Case, ...]:
        """Draw ``min(size, len(train))`` cases."""
        size = min(request.size, len(request.train))
        rng = draws.rng("batch", request.iteration)
        failing: list[int] = []
        passing: list[int] = []
        for at, case in enumerate(request.train):
            perfect = request.believed.get(case.id, 0.0) >= 1 - EPSILON
            (passing if perfect else failing).append(at)
        rng.shuffle(failing)
        rng.shuffle(passing)
        wanted = max(size - size // 2, size - len(passing))
        chosen = failing[:wanted]
        chosen += passing[: size - len(chosen)]
        return tuple(request.train[at] for at in sorted(chosen))


class HighVariance:
    """Cases whose scores vary most come first, by chance and not without exception.

    A case is drawn, without putting it back, in proportion to the variance that is
    known of it; one hundredth is added so that no case is left out for ever.
    """

    _FLOOR = 0.01

    def sample(self, request: BatchRequest, draws: Draws) -> tuple[Case, ...]:
        """Draw ``min(size, len(train))`` cases."""
        size = min(request.size, len(request.train))
        rng = draws.rng("batch", request.iteration)
        # exponential arrival times at these rates: the first ones are such a draw
        times = [
            rng.expovariate(request.variance.get(case.id, 0.0) + self._FLOOR)
            for case in request.train
        ]
        chosen = sorted(range(len(times)), key=times.__getitem__)[:size]
        return tuple(request.train[at] for at in sorted(chosen))
