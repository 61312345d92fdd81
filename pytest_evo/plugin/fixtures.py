"""The fixtures. They work in a plain run too: the artifact is then as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_evo.plugin.declared import ARTIFACT_VARIABLE
from pytest_evo.plugin.declared import project_artifact
from pytest_evo.plugin.recording import CURRENT
from pytest_evo.plugin.recording import Score
from pytest_evo.plugin.recording import Trace
from pytest_evo.plugin.recording import UsageRecorder

FIXTURES = frozenset({"evo_artifact", "evo_score", "evo_trace", "evo_usage"})
"""A test that uses one of them is a case."""


def artifact_path(config: pytest.Config) -> Path:
    """The candidate's directory under a rollout, else the project's own artifact.

    Raises:
        pytest.UsageError: none is declared, or it is no directory.
    """
    current = config.stash.get(CURRENT, None)
    if current is not None:
        return current.artifact
    inherited = os.environ.get(ARTIFACT_VARIABLE)
    return Path(inherited) if inherited else project_artifact(config)


@pytest.fixture(scope="session")
def evo_artifact(request: pytest.FixtureRequest) -> Path:
    """The directory of the artifact (or of the candidate under --evolve)."""
    try:
        return artifact_path(request.config)
    except pytest.UsageError as problem:
        message = f"evo_artifact: {problem}"
    pytest.fail(message, pytrace=False)


@pytest.fixture
def evo_score(request: pytest.FixtureRequest) -> Score:
    """Score this test, as in ``evo_score(0.7)`` and ``evo_score("mrr", 0.4)``."""
    return Score(request.node)


@pytest.fixture
def evo_trace(request: pytest.FixtureRequest) -> Trace:
    """Add a step to the trace, as in ``evo_trace("retrieved", ids=[1, 2])``."""
    return Trace(request.node)


@pytest.fixture
def evo_usage(request: pytest.FixtureRequest) -> UsageRecorder:
    """Count spend of the system under test: ``evo_usage(tokens=812, usd=0.004)``."""
    return UsageRecorder(request.node)
