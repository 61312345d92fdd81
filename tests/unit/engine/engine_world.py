"""A small world for engine tests: an artifact with a number in it, judged in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from random import Random

from pytest_evo.engine.acceptance import Paired
from pytest_evo.engine.budget import Limits
from pytest_evo.engine.draws import SeededDraws
from pytest_evo.engine.loop import Loop
from pytest_evo.engine.loop import Prospect
from pytest_evo.engine.loop import RunEnd
from pytest_evo.engine.parts import Parts
from pytest_evo.engine.parts import Plan
from pytest_evo.engine.parts import Strategy
from pytest_evo.engine.population import ParetoTopN
from pytest_evo.engine.refining import Chain
from pytest_evo.engine.sampling import Guards
from pytest_evo.engine.sampling import LeadCount
from pytest_evo.engine.validation import Staged
from pytest_evo.events import Event
from pytest_evo.events import IterationClosed
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import CaseMark
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import Usage
from pytest_evo.protocols import Diagnosed
from pytest_evo.protocols import Diagnoser
from pytest_evo.protocols import Journal
from pytest_evo.protocols import ProposalRequest
from pytest_evo.protocols import Request
from pytest_evo.store.journal import MemoryJournal
from pytest_evo.testing.doubles import Change
from pytest_evo.testing.doubles import FakeEvaluator
from pytest_evo.testing.doubles import ManualClock
from pytest_evo.testing.doubles import MemoryRollouts
from pytest_evo.testing.doubles import MemoryWorkshop
from pytest_evo.testing.doubles import ScriptedProposer


class NoReading:
    async def diagnose(self, nodes: Sequence[Node]) -> Diagnosed:
        return Diagnosed()


class Ear:
    def __init__(self) -> None:
        self.heard: list[Event] = []

    def notice(self, event: Event) -> None:
        self.heard.append(event)


def climb(request: ProposalRequest) -> Change:
    """One proposal in two raises the number by one; the others only touch a file."""
    rise = request.rng.random() < 0.4
    noise = str(request.rng.random()).encode()

    def change(files: dict[str, bytes]) -> dict[str, bytes]:
        number = int(files["level"]) + rise
        return {"level": str(number).encode(), "touched": noise}

    return change


@dataclass
class World:
    """Cases need a level of 2, 4, ... to pass; ``noise`` turns passing into chance."""

    journal: Journal = field(default_factory=MemoryJournal)
    cases: int = 40
    steps: int = 12
    noise: float = 0.0
    slots: int = 1
    seed: int = 0
    width: int = 2
    shuffle: int | None = None
    kill_after: int | None = None
    rollouts: int | None = 2_000
    iterations: int | None = 12
    seconds: float | None = None
    train_rollouts: int | None = None
    edits: Callable[[ProposalRequest], Change] | Sequence[Change] = climb
    fault: Callable[[Request, str, int], Outcome | Rollout | None] | None = None
    plan: dict[str, object] = field(default_factory=dict)
    marks: Sequence[CaseMark] | None = None
    workshop: MemoryWorkshop = field(default_factory=MemoryWorkshop)
    diagnoser: Diagnoser = field(default_factory=NoReading)
    usd: float | None = None
    tokens: int | None = None
    cost: Callable[[dict[str, bytes]], int] = lambda files: 0  # tokens of a rollout

    def __post_init__(self) -> None:
        self.start = self.workshop.add({"level": b"0"})
        self.clock = ManualClock()
        self.ear = Ear()
        self.prospects: list[Prospect] = []
        names = [f"test_w.py::test_level[{index}]" for index in range(self.cases)]
        self.all_marks = self.marks or [
            CaseMark(name, "test_w.py", 1, "print") for name in names
        ]
        self.needs = {
            mark.id: 2 * (index % self.steps) + 1
            for index, mark in enumerate(self.all_marks)
        }
        rng = Random(self.shuffle or 0)

        async def pause() -> None:
            for _ in range(rng.randrange(7) if self.shuffle is not None else 0):
                await asyncio.sleep(0)

        self.proposer = ScriptedProposer(self.workshop, self.edits, pause=pause)
        self.evaluator = FakeEvaluator(
            self._judge,
            files=self.workshop.files,
            width=self.width,
            seed=self.shuffle,
            fault=self.fault,
            kill_after=self.kill_after,
        )
        self.loop = Loop(
            self.parts(),
            Plan(
                ArtifactSchema("art"),
                "climb",
                self.start,
                slots=self.slots,
                seed=self.seed,
                **self.plan,  # type: ignore[arg-type]
            ),
            Limits(
                rollouts=self.rollouts,
                iterations=self.iterations,
                seconds=self.seconds,
                train_rollouts=self.train_rollouts,
                usd=self.usd,
                tokens=self.tokens,
            ),
        )

    def parts(self) -> Parts:
        return Parts(
            evaluator=self.evaluator,
            workshop=self.workshop,
            proposer=self.proposer,
            diagnoser=self.diagnoser,
            strategy=Strategy(
                LeadCount(), Guards(), Paired(), Chain(), Staged(), ParetoTopN(3)
            ),
            journal=self.journal,
            rollouts=MemoryRollouts(),
            clock=self.clock,
            draws=SeededDraws(self.seed),
            observer=self.ear,
            marks=self.all_marks,
        )

    def _judge(
        self, files: dict[str, bytes], case: str, repeat: int
    ) -> float | Rollout:
        level = int(files.get("level", b"-1"))
        score = 1.0 if level >= self.needs[case] else 0.0
        if self.noise:
            chance = Random(f"{sorted(files.items())} {case} {repeat}").random()
            right = self.noise if score else 1 - self.noise
            score = 1.0 if chance < right else 0.0
        outcome = Outcome.PASSED if score >= 1 else Outcome.FAILED
        return Rollout(
            "?",
            "?",
            case,
            repeat,
            outcome,
            score,
            0.001,
            reach=Reach(("level",), network=bool(self.noise)),
            usage=Usage(1, tokens) if (tokens := self.cost(files)) else NO_USAGE,
            worker="memory",
        )

    def run(self) -> RunEnd:
        return asyncio.run(self.loop.run(self.prospects.append))

    @property
    def events(self) -> list[Event]:
        return list(self.journal.replay())

    @property
    def iterations_closed(self) -> list[IterationClosed]:
        return [row for row in self.events if isinstance(row, IterationClosed)]

    @property
    def recorded(self) -> list[RolloutRecorded]:
        return [row for row in self.events if isinstance(row, RolloutRecorded)]
