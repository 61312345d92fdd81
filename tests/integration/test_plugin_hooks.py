"""Every hook, implemented by a conftest and called as the controller calls it.

``pytest_evo_score`` is in test_plugin_itemrun.py, ``pytest_evo_split`` in
test_plugin_cases.py.
"""

from __future__ import annotations

import inspect

import pytest

from pytest_evo.errors import UsageProblem
from pytest_evo.models import Candidate
from pytest_evo.models import Node
from pytest_evo.models import Outcome
from pytest_evo.models import Rollout
from pytest_evo.plugin import hooks
from pytest_evo.plugin import hookspecs

CANDIDATE = Candidate("c0001", "t1")
ROLLOUT = Rollout("c0001", "t1", "test_a.py::test_a", 0, Outcome.PASSED, 1.0)


@pytest.fixture
def configured(pytester: pytest.Pytester):
    def with_conftest(source: str) -> pytest.Config:
        pytester.makeconftest(source)
        return pytester.parseconfigure()

    return with_conftest


def test_makers_answer_for_the_names_they_know(configured):
    config = configured(
        """
        class Thing:
            def propose(self, request): return "why"
            def submit(self, request): ...
            async def diagnose(self, nodes): ...
        def pytest_evo_make_proposer(config, name):
            return Thing() if name == "mine" else None
        def pytest_evo_make_diagnoser(name):
            return Thing() if name == "mine" else None
        def pytest_evo_make_strategy(name):
            return Thing() if name == "mine" else None
        def pytest_evo_make_evaluator():
            return Thing()
        """
    )
    assert hooks.make_proposer(config, "mine").propose(None) == "why"
    for make in (hooks.make_proposer, hooks.make_diagnoser, hooks.make_strategy):
        assert make(config, "mine") is not None
        assert make(config, "other") is None
    assert hooks.make_evaluator(config) is not None


def test_makers_without_an_implementation_answer_none(configured):
    config = configured("")
    assert hooks.make_proposer(config, "mine") is None
    assert hooks.make_evaluator(config) is None
    assert hooks.check_artifact(config, config.rootpath) == []
    assert hooks.split_from_hook(config, []) == {}


@pytest.mark.parametrize(
    ("hook", "method", "make"),
    [
        ("make_proposer", "propose", hooks.make_proposer),
        ("make_diagnoser", "diagnose", hooks.make_diagnoser),
    ],
)
def test_makers_that_make_the_wrong_thing_are_told(configured, hook, method, make):
    config = configured(f"def pytest_evo_{hook}(name): return 'nothing'")
    with pytest.raises(UsageProblem, match=rf"pytest_evo_{hook} .*method {method}\(\)"):
        make(config, "mine")


def test_check_artifact_collects_the_faults_of_all(configured, pytester):
    config = configured(
        """
        class Second:
            def pytest_evo_check_artifact(self, config, path):
                return ["two", "", "three"]
        def pytest_configure(config):
            config.pluginmanager.register(Second())
        def pytest_evo_check_artifact(path):
            return f"{path.name} is wrong"
        """
    )
    faults = hooks.check_artifact(config, pytester.path / "c1")
    assert sorted(faults) == ["c1 is wrong", "three", "two"]


@pytest.mark.parametrize("answer", ["False", "3", "[1]"])
def test_check_artifact_refuses_other_answers(configured, pytester, answer):
    config = configured(f"def pytest_evo_check_artifact(path): return {answer}")
    with pytest.raises(UsageProblem, match="return a text, a list of texts, or None"):
        hooks.check_artifact(config, pytester.path)


def test_observers_are_told(configured, pytester):
    config = configured(
        """
        seen = []
        def pytest_configure(config):
            config.seen = seen
        def pytest_evo_candidate_created(candidate):
            seen.append(("created", candidate.id))
        def pytest_evo_candidate_evaluated(config, candidate, rollouts):
            seen.append(("evaluated", candidate.id, [r.case for r in rollouts]))
        def pytest_evo_chain_finished(nodes, accepted):
            seen.append(("chain", len(nodes), accepted))
        def pytest_evo_run_finished(run, winner, reason):
            seen.append(("run", run.name, winner, reason))
        """
    )
    hooks.candidate_created(config, CANDIDATE)
    hooks.candidate_evaluated(config, CANDIDATE, [ROLLOUT])
    hooks.chain_finished(config, [Node(CANDIDATE)], False)
    hooks.run_finished(config, pytester.path / "r1", None, "budget")
    assert config.seen == [  # type: ignore[attr-defined]
        ("created", "c0001"),
        ("evaluated", "c0001", ["test_a.py::test_a"]),
        ("chain", 1, False),
        ("run", "r1", None, "budget"),
    ]


def test_unknown_arguments_of_an_implementation_are_refused(pytester):
    pytester.makeconftest("def pytest_evo_run_finished(rnu): pass")
    result = pytester.runpytest()
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*pytest_evo_run_finished*"])


def test_every_hook_is_annotated_and_has_an_example():
    specs = inspect.getmembers(hookspecs, inspect.isfunction)
    assert len(specs) == 11
    for name, spec in specs:
        assert name.startswith("pytest_evo_")
        signature = inspect.signature(spec)
        assert signature.return_annotation is not inspect.Signature.empty
        for parameter in signature.parameters.values():
            assert parameter.annotation is not inspect.Parameter.empty
        assert f"def {name}(" in (spec.__doc__ or ""), name
