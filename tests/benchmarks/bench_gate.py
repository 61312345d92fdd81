"""How often the gate is wrong, and what it costs: the real planner on simulated suites.

    python tests/benchmarks/bench_gate.py [--trials 400] [--seeds 1,2,3]

Trial t of seed s draws from ``Random(f"{s}:{t}")``, and the gate's own seed is
100000 s + t. Forty rollouts are in flight, as with a few workers, and come back out of
order. Rows with a bound are held against it for each seed; the exit status is 1 where
one is missed.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from statistics import median

from pytest_evo.gate.planner import Planner
from pytest_evo.gate.statistics import clopper_pearson
from pytest_evo.gate.values import Arm
from pytest_evo.gate.values import Ask
from pytest_evo.gate.values import GateCase
from pytest_evo.gate.values import GatePolicy
from pytest_evo.gate.values import GateVerdict
from pytest_evo.gate.values import Observation
from pytest_evo.gate.values import Stored
from pytest_evo.models import Outcome

Chances = Mapping[str, tuple[float, float]]  # of passing: base, head
FLYING = 40  # rollouts in flight
EARLY = 8  # of which one of the oldest so many comes back next


@dataclass(frozen=True)
class Trial:
    verdict: GateVerdict
    rollouts: int
    first_pass: int  # what a first pass over all cases would have taken
    cases: int
    kinds: tuple[str, ...]
    most: int  # rollouts of the case that had most


def noisy_suite(cases: int, rng: random.Random) -> list[float]:
    """60 % pass 98 % of the time, 20 % uniformly 30 to 90 %, 20 % pass 10 %."""
    sure, wild = round(0.6 * cases), round(0.2 * cases)
    rest = cases - sure - wild
    return [0.98] * sure + [rng.uniform(0.3, 0.9) for _ in range(wild)] + [0.1] * rest


def losing(
    chances: Sequence[float], share: float, loss: float, rng: random.Random
) -> Chances:
    """A share of the cases loses so many points (of 1), not below 0."""
    worse = set(rng.sample(range(len(chances)), round(share * len(chances))))
    return {
        f"t{i:04d}": (p, max(0.0, p - loss) if i in worse else p)
        for i, p in enumerate(chances)
    }


def stored_counts(chance: float, runs: int, rng: random.Random) -> Stored:
    """What a baseline of so many runs knows of a case."""
    passes = sum(rng.random() < chance for _ in range(runs))
    mean = passes / runs
    variance = mean * (1 - mean) * runs / (runs - 1) if runs > 1 else 0.0
    return Stored(n=runs, passes=passes, mean=mean, variance=variance)


def drive(
    chances: Chances,
    policy: GatePolicy,
    rng: random.Random,
    *,
    deterministic: bool | None = None,
    network: bool = True,
    stored: int = 0,
) -> Trial:
    """One gate run; rollouts come back in random order.

    With ``stored`` runs of each case a baseline file stands for the base.
    """
    cases = [
        GateCase(
            name,
            deterministic=deterministic,
            stored=stored_counts(base, stored, rng) if stored else None,
        )
        for name, (base, _) in chances.items()
    ]
    planner = Planner(cases, policy, base_arm=not stored)
    flying: list[Ask] = []
    per_case: Counter[str] = Counter()
    while not planner.finished:
        if len(flying) < FLYING:
            flying += planner.next(FLYING - len(flying))
        if not flying:
            continue
        ask = flying.pop(rng.randrange(min(EARLY, len(flying))))
        passed = rng.random() < chances[ask.case][ask.arm is Arm.HEAD]
        per_case[ask.case] += 1
        planner.record(
            Observation(
                ask.case,
                ask.arm,
                ask.repeat,
                ask.stage,
                Outcome.PASSED if passed else Outcome.FAILED,
                float(passed),
                attempt=ask.attempt,
                network=network,
            )
        )
    decision = planner.decision()
    return Trial(
        decision.verdict,
        decision.spent.rollouts,
        2 * len(cases),
        len(cases),
        tuple(reason.kind for reason in decision.reasons),
        max(per_case.values(), default=0),
    )


@dataclass(frozen=True)
class Row:
    """One simulated situation. ``share`` of the cases lose ``loss`` at the head."""

    name: str
    cases: int
    share: float = 0.0
    loss: float = 0.0
    suite: str = "noisy"  # noisy | coins | steady | two coins
    deterministic: bool | None = None
    network: bool = True
    stored: int = 0  # runs of each case in a baseline file; 0: the base is run
    trials: float = 1.0  # of those asked for
    regressed_at_most: float = 1.0
    regressed_at_least: float = 0.0
    passed_at_most: float = 1.0
    rollouts_at_most: float = 99.0  # median, over a first pass
    per_case_at_most: int = 999


ROWS = (
    Row("A/A", 100, regressed_at_most=0.02),
    Row(
        "A/A, no network: noise is found out",
        100,
        network=False,
        regressed_at_most=0.02,
    ),
    Row("10 % lose 50 points", 100, 0.1, 0.5, regressed_at_least=0.75),
    Row("half is broken", 300, 0.5, 1.0, trials=0.25, rollouts_at_most=0.25),
    Row(
        "one flip, declared deterministic",
        200,
        1 / 200,
        1.0,
        suite="steady",
        deterministic=True,
        network=False,
        regressed_at_least=1.0,
        per_case_at_most=2,
        trials=0.25,
    ),
    Row(
        "one flip, deterministic by observation",
        200,
        1 / 200,
        1.0,
        suite="steady",
        network=False,
        regressed_at_least=1.0,
        trials=0.25,
    ),
    Row("A/A", 30, regressed_at_most=0.02),
    Row("A/A, all pass half of the time", 20, suite="coins", regressed_at_most=0.02),
    Row(
        "one of two coins, 1/2 to 1/10, no network",
        8,
        suite="two coins",
        network=False,
        passed_at_most=0.03,
    ),
    Row("A/A, 3 stored runs", 100, stored=3, regressed_at_most=0.02),
    Row("A/A, 3 stored runs", 30, stored=3, regressed_at_most=0.02),
    Row("10 % lose 50 points, 3 stored runs", 100, 0.1, 0.5, stored=3, trials=0.5),
    Row("10 % are broken, 3 stored runs", 40, 0.1, 1.0, stored=3, trials=0.5),
    Row("A/A", 300, trials=0.25, regressed_at_most=0.03),
    Row("10 % lose 50 points", 30, 0.1, 0.5, trials=0.5),
    Row("10 % lose 50 points", 300, 0.1, 0.5, trials=0.25),
    Row("3 % are broken", 100, 0.03, 1.0, trials=0.5),
    Row("all lose 5 points", 100, 1.0, 0.05, trials=0.5),
)


def start_of(row: Row, rng: random.Random) -> list[float]:
    """How often each case passes at the base."""
    if row.suite == "noisy":
        return noisy_suite(row.cases, rng)
    if row.suite == "two coins":
        return [0.5, 0.5] + [1.0] * (row.cases - 2)
    return [1.0 if row.suite == "steady" else 0.5] * row.cases


def chances_of(row: Row, rng: random.Random) -> Chances:
    """How often each case passes at the base and at the head."""
    start = start_of(row, rng)
    found = dict(losing(start, row.share, row.loss, rng))
    if row.suite == "two coins":
        found["t0000"] = 0.5, 0.1
    return found


def simulate(row: Row, seed: int, trials: int) -> list[Trial]:
    found = []
    for trial in range(max(1, round(row.trials * trials))):
        rng = random.Random(f"{seed}:{trial}")
        found.append(
            drive(
                chances_of(row, rng),
                GatePolicy(seed=100_000 * seed + trial),
                rng,
                deterministic=row.deterministic,
                network=row.network,
                stored=row.stored,
            )
        )
    return found


def missed(row: Row, trials: Sequence[Trial]) -> list[str]:
    """Which bounds these trials break."""
    rate = fmean(trial.verdict is GateVerdict.REGRESSED for trial in trials)
    spent = median(trial.rollouts / trial.first_pass for trial in trials)
    most = max(trial.most for trial in trials)
    found = []
    if not row.regressed_at_least <= rate <= row.regressed_at_most:
        found.append(f"regressed {rate:.1%}")
    passed = fmean(trial.verdict is GateVerdict.PASSED for trial in trials)
    if passed > row.passed_at_most:
        found.append(f"passed {passed:.1%}")
    if spent > row.rollouts_at_most:
        found.append(f"{spent:.2f} of a first pass")
    if most > row.per_case_at_most:
        found.append(f"{most} rollouts of one case")
    return found


def describe(row: Row, seed: int, trials: Sequence[Trial]) -> str:
    verdicts = Counter(trial.verdict for trial in trials)
    kinds = Counter(kind for trial in trials for kind in set(trial.kinds))
    red = verdicts[GateVerdict.REGRESSED]
    low, high = clopper_pearson(red, len(trials))
    costs = [trial.rollouts / trial.first_pass for trial in trials]
    why = ", ".join(
        f"{kind} {count / len(trials):.0%}"
        for kind, count in kinds.most_common()
        if kind not in ("margin", "exact", "budget")
    )
    return (
        f"{row.name:40} n={row.cases:<4} seed {seed}: "
        f"regressed {red:3}/{len(trials)} = {red / len(trials):6.2%} "
        f"[{low:.2%}, {high:.2%}], passed {verdicts[GateVerdict.PASSED]}, "
        f"open {verdicts[GateVerdict.INCONCLUSIVE]}; rollouts / first pass "
        f"mean {fmean(costs):.2f} median {median(costs):.2f} "
        f"max {max(costs):.2f}; {why}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=400)
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--only", default="", help="rows whose name holds this")
    options = parser.parse_args()
    wrong = 0
    for row in ROWS:
        if options.only not in row.name:
            continue
        for seed in map(int, options.seeds.split(",")):
            trials = simulate(row, seed, options.trials)
            print(describe(row, seed, trials), flush=True)
            for bound in missed(row, trials):
                wrong += 1
                print(f"  MISSED: {bound}", flush=True)
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
