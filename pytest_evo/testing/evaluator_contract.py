"""What every evaluator has to do; subclass it and say how one is made.

.. code-block:: python

    class TestMyEvaluator(EvaluatorContract):
        @pytest.fixture
        def bench(self):
            return Bench(MyEvaluator(...), tree, passes, fails, endless)
"""

# ruff: noqa: D102 - the name of a test says what it tests

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Coroutine
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_evo.models import CaseId
from pytest_evo.models import Outcome
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import TreeHash
from pytest_evo.protocols import Evaluator
from pytest_evo.protocols import Request

_PATIENCE = 60.0  # seconds until a scenario counts as hanging


@dataclass(frozen=True)
class Bench:
    """An evaluator with what it can be asked to run."""

    evaluator: Evaluator
    tree: TreeHash  # a candidate that it can get at
    passes: Sequence[CaseId]  # at least two cases that pass on it with score 1
    fails: CaseId  # one that fails with score 0
    endless: CaseId | None = None  # one that runs until it is killed, where there is
    prepare: Callable[[], None] = lambda: None  # called on the engine's side

    def run(self, scenario: Coroutine[Any, Any, Any]) -> Any:
        """Run a scenario to its end, as the engine does: in one loop."""
        self.prepare()
        return asyncio.run(asyncio.wait_for(scenario, _PATIENCE))

    def request(
        self, name: str, *runs: tuple[CaseId, int], attempt: int = 0
    ) -> Request:
        """A request for one candidate."""
        return Request(name, "c0007", self.tree, runs, Purpose.CHILD, attempt)

    async def collect(self, request: Request) -> list[Rollout]:
        """All rollouts of a request."""
        return [rollout async for rollout in self.evaluator.submit(request)]


class EvaluatorContract:
    """Fixture ``bench``."""

    def test_every_run_gives_exactly_one_rollout(self, bench: Bench) -> None:
        first, second, *_ = bench.passes
        runs = ((first, 0), (bench.fails, 0), (second, 0), (first, 1))
        rollouts = bench.run(bench.collect(bench.request("r1", *runs)))
        assert sorted((one.case, one.repeat) for one in rollouts) == sorted(runs)

    def test_rollouts_say_what_was_asked(self, bench: Bench) -> None:
        request = bench.request("r1", (bench.passes[0], 3), attempt=2)
        (rollout,) = bench.run(bench.collect(request))
        assert (rollout.candidate, rollout.tree) == ("c0007", bench.tree)
        assert (rollout.repeat, rollout.attempt) == (3, 2)
        assert rollout.started

    def test_scores_are_raw(self, bench: Bench) -> None:
        runs = ((bench.passes[0], 0), (bench.fails, 0))
        good, bad = bench.run(bench.collect(bench.request("r1", *runs)))
        assert (good.outcome, good.score) == (Outcome.PASSED, 1.0)
        assert (bad.outcome, bad.score) == (Outcome.FAILED, 0.0)

    def test_an_unknown_case_is_no_success(self, bench: Bench) -> None:
        rollouts = bench.run(bench.collect(bench.request("r1", ("no.py::case", 0))))
        assert [one.case for one in rollouts] == ["no.py::case"]
        assert rollouts[0].outcome is not Outcome.PASSED
        assert rollouts[0].score in (None, 0.0)

    def test_requests_at_the_same_time_do_not_mix(self, bench: Bench) -> None:
        async def scenario() -> list[list[Rollout]]:
            wanted = [
                bench.request(f"r{at}", *((case, at) for case in bench.passes))
                for at in range(3 * bench.evaluator.capacity())
            ]
            return await asyncio.gather(*map(bench.collect, wanted))

        for at, rollouts in enumerate(bench.run(scenario())):
            found = sorted((one.case, one.repeat) for one in rollouts)
            assert found == sorted((case, at) for case in bench.passes)

    def test_capacity_is_positive(self, bench: Bench) -> None:
        assert bench.evaluator.capacity() >= 1

    def test_cancelled_runs_come_as_lost(self, bench: Bench) -> None:
        if bench.endless is None:
            return
        request = bench.request("r1", (bench.endless, 0), (bench.passes[0], 0))

        async def scenario() -> list[Rollout]:
            running = asyncio.create_task(bench.collect(request))
            await asyncio.sleep(0.3)
            await bench.evaluator.cancel("r1")
            return await running

        rollouts = bench.run(scenario())
        assert {one.case for one in rollouts} == {bench.endless, bench.passes[0]}
        assert {one.outcome for one in rollouts} == {Outcome.LOST}
        assert {one.score for one in rollouts} == {None}

    def test_place_of_a_cancelled_request_is_free_again(self, bench: Bench) -> None:
        if bench.endless is None:
            return
        endless = [
            bench.request(f"r{at}", (bench.endless, at))
            for at in range(bench.evaluator.capacity())
        ]

        async def scenario() -> list[Rollout]:
            running = [asyncio.create_task(bench.collect(one)) for one in endless]
            await asyncio.sleep(0.3)
            for one in endless:
                await bench.evaluator.cancel(one.id)
            await asyncio.gather(*running)
            return await bench.collect(bench.request("after", (bench.passes[0], 0)))

        (rollout,) = bench.run(scenario())
        assert rollout.outcome is Outcome.PASSED

    def test_cancelling_what_is_over_changes_nothing(self, bench: Bench) -> None:
        async def scenario() -> list[Rollout]:
            rollouts = await bench.collect(bench.request("r1", (bench.passes[0], 0)))
            await bench.evaluator.cancel("r1")
            await bench.evaluator.cancel("never")
            return rollouts

        assert len(bench.run(scenario())) == 1
