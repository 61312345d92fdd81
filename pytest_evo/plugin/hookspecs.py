"""The hooks that a ``conftest.py`` or a plugin may implement.

An implementation may leave out arguments that it does not need. The ``make_*`` hooks,
``split`` and ``score`` end at the first answer that is not None.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_evo.engine.parts import Strategy
    from pytest_evo.models import Candidate
    from pytest_evo.models import Node
    from pytest_evo.models import Rollout
    from pytest_evo.protocols import Diagnoser
    from pytest_evo.protocols import Evaluator
    from pytest_evo.protocols import Proposer


@pytest.hookspec(firstresult=True)
def pytest_evo_make_proposer(config: pytest.Config, name: str) -> Proposer | None:
    """Make the proposer that ``--evo-proposer`` names. Called in the controller.

    Return None for names that you do not know, so that others are asked::

        def pytest_evo_make_proposer(name):
            return Shortener() if name == "shorten" else None
    """


@pytest.hookspec(firstresult=True)
def pytest_evo_make_evaluator(config: pytest.Config) -> Evaluator | None:
    """Make what runs rollouts, in place of the workers. Called in the controller.

    Example::

        def pytest_evo_make_evaluator(config):
            return ClusterEvaluator(config.rootpath)
    """


@pytest.hookspec(firstresult=True)
def pytest_evo_make_diagnoser(config: pytest.Config, name: str) -> Diagnoser | None:
    """Make the diagnoser that the settings name. Called in the controller.

    Example::

        def pytest_evo_make_diagnoser(name):
            return FirstFailure() if name == "first-failure" else None
    """


@pytest.hookspec(firstresult=True)
def pytest_evo_make_strategy(config: pytest.Config, name: str) -> Strategy | None:
    """Make the strategy that ``--evo-strategy`` names. Called in the controller.

    Example::

        def pytest_evo_make_strategy(name):
            return greedy() if name == "greedy" else None
    """


@pytest.hookspec(firstresult=True)
def pytest_evo_split(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> Mapping[str, str] | None:
    """Say which split cases belong to: node id to ``train``, ``val`` or ``test``.

    Called wherever tests are collected, so the answer must be the same in every
    process. A marker on the test wins; cases that are left out are split as usual::

        def pytest_evo_split(items):
            return {item.nodeid: "test" for item in items if "gold" in item.keywords}
    """


@pytest.hookspec(firstresult=True)
def pytest_evo_score(
    item: pytest.Item, reports: Sequence[pytest.TestReport]
) -> float | None:
    """Score one rollout from 0 to 1 out of its reports. Called where it ran.

    It wins over ``evo_score``; None leaves the score as it is. It is asked only of
    rollouts that passed or failed::

        def pytest_evo_score(item, reports):
            slow = any(report.duration > 2 for report in reports)
            return 0.5 if slow and all(report.passed for report in reports) else None
    """


@pytest.hookspec
def pytest_evo_check_artifact(
    config: pytest.Config, path: Path
) -> str | Sequence[str] | None:
    """Find faults with a candidate before it costs a rollout. Called in the controller.

    ``path`` is the candidate's directory; do not write to it. What is returned is
    told to the proposer as the reason of the refusal; nothing returned, no fault::

        def pytest_evo_check_artifact(path):
            if len((path / "system.md").read_text()) > 8000:
                return "system.md is longer than 8000 characters"
    """


@pytest.hookspec
def pytest_evo_candidate_created(config: pytest.Config, candidate: Candidate) -> None:
    """A candidate passed all checks and is about to be run. Called in the controller.

    Example::

        def pytest_evo_candidate_created(candidate):
            log.info("%s: %s", candidate.id, [e.reason for e in candidate.changelog])
    """


@pytest.hookspec
def pytest_evo_candidate_evaluated(
    config: pytest.Config, candidate: Candidate, rollouts: Sequence[Rollout]
) -> None:
    """A candidate was run on its batch. Called in the controller.

    Example::

        def pytest_evo_candidate_evaluated(candidate, rollouts):
            tracker.log({"candidate": candidate.id, "rollouts": len(rollouts)})
    """


@pytest.hookspec
def pytest_evo_chain_finished(
    config: pytest.Config, nodes: Sequence[Node], accepted: bool
) -> None:
    """A chain ended: parent first, the last node accepted or all of them dropped.

    Example::

        def pytest_evo_chain_finished(nodes, accepted):
            log.info("%d nodes, accepted: %s", len(nodes), accepted)
    """


@pytest.hookspec
def pytest_evo_run_finished(
    config: pytest.Config, run: Path, winner: Candidate | None, reason: str
) -> None:
    """A run ended and everything about it is on disk.

    ``run`` is the run directory, ``winner`` None where nothing better was found, and
    ``reason`` why the run ended::

        def pytest_evo_run_finished(run, winner, reason):
            notify(f"{run.name}: {winner.id if winner else 'no gain'} ({reason})")
    """
