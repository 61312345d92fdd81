from __future__ import annotations

import pytest

from pytest_evo.engine.refining import Chain
from pytest_evo.engine.refining import NoRefinement
from pytest_evo.engine.refining import Tree
from pytest_evo.models import Candidate
from pytest_evo.models import Node
from pytest_evo.testing.strategy_contracts import RefinerContract


def nodes(*means, first_step=0):
    parent = Node(Candidate("p", "p", step=3), mean=0.9)
    return [
        parent,
        *(
            Node(Candidate(f"n{at}", f"n{at}", step=at + first_step), mean=mean)
            for at, mean in enumerate(means)
        ),
    ]


class TestChain(RefinerContract):
    @pytest.fixture
    def refiner(self):
        return Chain()


class TestTree(RefinerContract):
    @pytest.fixture
    def refiner(self):
        return Tree()


class TestNoRefinement(RefinerContract):
    @pytest.fixture
    def refiner(self):
        return NoRefinement()


def test_chain_goes_on_from_the_last_node_until_depth():
    assert Chain().next(nodes(0.5), 2).candidate.id == "n0"
    assert Chain().next(nodes(0.5, 0.1), 2).candidate.id == "n1"
    assert Chain().next(nodes(0.5, 0.1, 0.2), 2) is None
    assert Chain().next(nodes(0.5), 0) is None


def test_chain_counts_refused_steps_by_their_number():
    skipped = [*nodes(0.5), Node(Candidate("late", "late", step=2), mean=0.1)]
    assert Chain().next(skipped, 2) is None


def test_tree_goes_on_from_the_best_and_of_equals_the_earliest():
    assert Tree().next(nodes(0.2, 0.5, 0.5), 5).candidate.id == "n1"
    assert Tree().next(nodes(None, 0.0), 5).candidate.id == "n1"
    assert Tree().next(nodes(0.1), 0) is None


def test_no_refinement_stops_at_once():
    assert NoRefinement().next(nodes(0.5), 5) is None
