"""A run whose proposer, evaluator, diagnoser and strategy come from a conftest."""

from __future__ import annotations

import pytest
from evolve_project import evolve
from evolve_project import executed
from evolve_project import make_project
from evolve_project import records

pytestmark = pytest.mark.slow
SETTINGS = """
[tool.pytest_evo]
artifact = "art"
batch = 4
diagnoser = "by-hand"
[[tool.pytest_evo.target]]
name = "second"
artifact = "other"
"""
CONFTEST = """
from pytest_evo.engine.parts import Strategy
from pytest_evo.engine.population import KeepAll
from pytest_evo.engine.refining import NoRefinement
from pytest_evo.engine.sampling import Epoch
from pytest_evo.engine.sampling import Incumbent
from pytest_evo.engine.validation import Full
from pytest_evo.models import Decision
from pytest_evo.models import Outcome
from pytest_evo.models import Reach
from pytest_evo.models import Rollout
from pytest_evo.models import Verdict
from pytest_evo.protocols import Diagnosed

class Proposer:
    def propose(self, request):
        path = request.workspace / "artifact" / "word.txt"
        path.write_text(f"{path.read_text()} {request.iteration}")
        return "one more by hand"

class Evaluator:
    '''Thinks that only the start is bad, whatever the tests say.'''

    async def submit(self, request):
        good = request.candidate != "c0000"
        for case, repeat in request.runs:
            yield Rollout(
                request.candidate, request.tree, case, repeat,
                Outcome.PASSED if good else Outcome.FAILED, float(good),
                reach=Reach(("word.txt",)), worker="elsewhere",
            )

    async def cancel(self, request_id):
        pass

    def capacity(self):
        return 1

class Diagnoser:
    async def diagnose(self, nodes):
        return Diagnosed(problems=(f"{len(nodes)} read by hand",))

class Acceptance:
    '''Refuses what the first iteration makes, takes all the rest.'''

    def __init__(self):
        self.asked = 0

    def decide(self, comparison):
        self.asked += 1
        decision = Decision.REJECTED if self.asked == 1 else Decision.ACCEPTED
        return Verdict(decision, 1.0, 0.0, None, f"decision {self.asked} by hand")

    def smallest_batch(self, size, noisy_share, variance, attempts):
        return size

def pytest_evo_make_proposer(name):
    return Proposer() if name == "by-hand" else None

def pytest_evo_make_evaluator(config):
    return Evaluator()

def pytest_evo_make_diagnoser(name):
    return Diagnoser() if name == "by-hand" else None

def pytest_evo_make_strategy(name):
    if name != "by-hand":
        return None
    return Strategy(
        Incumbent(), Epoch(), Acceptance(), NoRefinement(), Full(), KeepAll()
    )
"""


def test_parts_that_hooks_make_do_the_work_of_a_run(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    (root / "other").mkdir()
    (root / "other" / "word.txt").write_text("start")
    (root / "pyproject.toml").write_text(SETTINGS)
    (root / "conftest.py").write_text(CONFTEST)
    done = evolve(
        root,
        *("-n", "0", "--budget-iterations=2", "--evo-target=second"),
        *("--evo-proposer=by-hand", "--evo-strategy=by-hand", "--evo-reports=told"),
    )
    assert done.returncode == 0, done.stdout + done.stderr

    assert {row["worker"] for row in records(root, "rollout")} == {"elsewhere"}
    assert executed(root) == 0
    changes = [row["changelog"][0] for row in records(root, "proposal")]
    assert {(row["file"], row["reason"]) for row in changes} == {
        ("word.txt", "one more by hand")
    }
    read = [row["problems"] for row in records(root, "diagnosis")]
    assert read
    assert all("read by hand" in problems[0] for problems in read)
    decisions = records(root, "acceptance")
    assert [(row["decision"], row["reason"]) for row in decisions] == [
        ("rejected", "decision 1 by hand"),
        ("accepted", "decision 2 by hand"),
    ]
    stop = records(root, "stop")[-1]
    assert stop["winner"] == "c0002"

    assert (root / "told" / "summary.md").read_text()
    assert not (root / "evo-reports").exists()


def test_strategy_of_a_hook_has_to_be_one(pytester: pytest.Pytester) -> None:
    root = make_project(pytester)
    (root / "conftest.py").write_text(
        "def pytest_evo_make_strategy(name):\n    return object()\n"
    )
    done = evolve(root, "-n", "0", "--budget-iterations=1", "--evo-strategy=mine")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "pytest_evo_make_strategy returned object for 'mine'" in (
        done.stdout + done.stderr
    )
