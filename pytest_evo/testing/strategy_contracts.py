"""Contract suites of the decision seams.

Subclass one in a test module and give it the fixture that it names::

    class TestMyAcceptance(AcceptanceContract):
        @pytest.fixture
        def acceptance(self):
            return MyAcceptance()
"""

# ruff: noqa: D102 -- the name of a test says what it checks

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from random import Random

import pytest

from pytest_evo.engine.draws import SeededDraws
from pytest_evo.models import Candidate
from pytest_evo.models import Case
from pytest_evo.models import Decision
from pytest_evo.models import Member
from pytest_evo.models import Node
from pytest_evo.models import Split
from pytest_evo.protocols import Acceptance
from pytest_evo.protocols import BatchRequest
from pytest_evo.protocols import BatchSampler
from pytest_evo.protocols import Comparison
from pytest_evo.protocols import ParentSampler
from pytest_evo.protocols import Refiner
from pytest_evo.protocols import SurvivorSelection
from pytest_evo.protocols import ValidationPolicy


def _member(name: str, *scores: float) -> Member:
    vector = {f"t.py::c{at}": score for at, score in enumerate(scores)}
    return Member(Candidate(name, f"tree-{name}"), vector, sum(scores) / len(scores))


def _cases(count: int, split: Split = Split.TRAIN) -> tuple[Case, ...]:
    return tuple(
        Case(f"t.py::c{at}", split, file=f"t{at % 3}.py") for at in range(count)
    )


def _population() -> list[Member]:
    return [
        _member("c0000", 0.2, 0.9, 0.0, 0.5),
        _member("c0003", 0.9, 0.1, 0.0, 0.5),
        _member("c0007", 0.9, 0.3, 1.0, 0.0),
    ]


class ParentSamplerContract:
    """Fixture ``sampler``."""

    def test_draws_a_member(self, sampler: ParentSampler) -> None:
        population = _population()
        for seed in range(50):
            assert sampler.sample(population, Random(seed)) in population

    def test_draws_the_only_member(self, sampler: ParentSampler) -> None:
        only = _population()[:1]
        assert sampler.sample(only, Random(0)) is only[0]

    def test_draws_the_same_with_the_same_randomness(
        self, sampler: ParentSampler
    ) -> None:
        population = _population()
        for seed in range(20):
            first = sampler.sample(population, Random(seed))
            assert sampler.sample(population, Random(seed)) is first


class BatchSamplerContract:
    """Fixture ``sampler``."""

    @pytest.mark.parametrize("count", [1, 2, 7, 30])
    @pytest.mark.parametrize("size", [1, 3, 8, 50])
    def test_draws_distinct_cases_in_case_order(
        self, sampler: BatchSampler, count: int, size: int
    ) -> None:
        train = _cases(count)
        believed = {case.id: float(at % 2) for at, case in enumerate(train)}
        for iteration in range(1, 12):
            request = BatchRequest(train, size, iteration, believed)
            batch = sampler.sample(request, SeededDraws(4))
            places = [train.index(case) for case in batch]
            assert places == sorted(set(places))
            assert len(batch) == min(size, count)

    def test_draws_the_same_for_the_same_request(self, sampler: BatchSampler) -> None:
        train = _cases(25)
        requests = [BatchRequest(train, 6, at, {}) for at in (3, 9, 1)]
        first = [sampler.sample(each, SeededDraws(8)) for each in requests]
        again = [sampler.sample(each, SeededDraws(8)) for each in reversed(requests)]
        assert first == again[::-1]

    def test_draws_nothing_from_nothing(self, sampler: BatchSampler) -> None:
        assert sampler.sample(BatchRequest((), 4, 1, {}), SeededDraws(0)) == ()


class AcceptanceContract:
    """Fixture ``acceptance``."""

    @staticmethod
    def _compare(
        parent: Sequence[float],
        child: Sequence[float],
        weights: Mapping[str, float] | None = None,
    ) -> Comparison:
        sides = [
            {f"c{at}": [score] for at, score in enumerate(side)}
            for side in (parent, child)
        ]
        return Comparison(sides[0], sides[1], frozenset(), 0.0, weights or {}, 6)

    def test_accepts_a_clear_gain(self, acceptance: Acceptance) -> None:
        verdict = acceptance.decide(self._compare([0.0] * 4, [1.0] * 4))
        assert verdict.decision is Decision.ACCEPTED
        assert verdict.effect == pytest.approx(1.0)

    def test_rejects_a_clear_loss(self, acceptance: Acceptance) -> None:
        verdict = acceptance.decide(self._compare([1.0] * 4, [0.0] * 4))
        assert verdict.decision is Decision.REJECTED
        assert verdict.effect == pytest.approx(-1.0)

    def test_gives_a_reason(self, acceptance: Acceptance) -> None:
        assert acceptance.decide(self._compare([0.5], [0.5])).reason

    def test_is_not_moved_by_a_case_without_weight(
        self, acceptance: Acceptance
    ) -> None:
        weightless = self._compare([0.0, 1.0], [1.0, 0.0], {"c1": 0.0})
        assert acceptance.decide(weightless).decision is Decision.ACCEPTED

    def test_smallest_batch_is_at_least_what_is_asked(
        self, acceptance: Acceptance
    ) -> None:
        for size in (1, 4, 16):
            found = acceptance.smallest_batch(size, 0.5, 0.25, 6)
            assert found is None or found >= size


class RefinerContract:
    """Fixture ``refiner``."""

    @staticmethod
    def _nodes(count: int) -> list[Node]:
        parent = Node(Candidate("c0000", "t"), mean=0.5)
        return [
            parent,
            *(
                Node(
                    Candidate(f"c0001-{step}", f"t{step}", iteration=1, step=step),
                    mean=(step * 7 % 5) / 10,
                )
                for step in range(count)
            ),
        ]

    def test_goes_on_from_a_node_of_the_chain(self, refiner: Refiner) -> None:
        for count in range(1, 6):
            nodes = self._nodes(count)
            base = refiner.next(nodes, 5)
            assert base is None or base in nodes

    def test_stops_at_depth(self, refiner: Refiner) -> None:
        for depth in range(5):
            assert refiner.next(self._nodes(depth + 1), depth) is None


class ValidationContract:
    """Fixture ``policy``."""

    @pytest.mark.parametrize("count", [1, 3, 4, 10, 41])
    def test_stages_are_all_of_val_once(
        self, policy: ValidationPolicy, count: int
    ) -> None:
        val = _cases(count, Split.VAL)
        stages = policy.stages(val, SeededDraws(2))
        assert all(stages)
        spent = [case.id for stage in stages for case in stage]
        assert sorted(spent) == sorted(case.id for case in val)

    def test_stages_are_the_same_every_time(self, policy: ValidationPolicy) -> None:
        val = _cases(20, Split.VAL)
        again = policy.stages(val, SeededDraws(2))
        assert policy.stages(val, SeededDraws(2)) == again


class SurvivorSelectionContract:
    """Fixture ``selection``."""

    def test_keeps_at_least_one_of_those_given(
        self, selection: SurvivorSelection
    ) -> None:
        members = _population()
        for count in range(1, 4):
            kept = selection.select(members[:count])
            assert kept
            assert all(member in members[:count] for member in kept)
            assert len({member.candidate.id for member in kept}) == len(kept)

    def test_keeps_the_best_first(self, selection: SurvivorSelection) -> None:
        kept = selection.select(_population())
        assert kept[0].candidate.id == "c0007"
        means = [member.mean for member in kept]
        assert means == sorted(means, reverse=True)

    def test_is_settled_after_one_selection(self, selection: SurvivorSelection) -> None:
        members = _population()
        kept = selection.select(members)
        oldest_first = [member for member in members if member in kept]
        assert selection.select(oldest_first) == kept
