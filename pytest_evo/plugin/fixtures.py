"""The fixtures. They work in a plain run too: the artifact is then as it is.

What they need is imported when a test asks for them: this module is loaded by every
pytest run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pytest_evo.plugin.recording import Score
    from pytest_evo.plugin.recording import Trace
    from pytest_evo.plugin.recording import UsageRecorder

FIXTURES = frozenset({"evo_artifact", "evo_score", "evo_trace", "evo_usage"})
"""A test that uses one of them is a case."""


@pytest.fixture(scope="session")
def evo_artifact(request: pytest.FixtureRequest) -> Path:
    """The directory of the artifact (or of the candidate under --evolve)."""
    from pytest_evo.plugin.recording import artifact_path

    try:
        return artifact_path(request.config)
    except pytest.UsageError as problem:
        message = f"evo_artifact: {problem}"
    pytest.fail(message, pytrace=False)


@pytest.fixture
def evo_score(request: pytest.FixtureRequest) -> Score:
    """Score this test, as in ``evo_score(0.7)`` and ``evo_score("mrr", 0.4)``."""
    from pytest_evo.plugin.recording import Score

    return Score(request.node)


@pytest.fixture
def evo_trace(request: pytest.FixtureRequest) -> Trace:
    """Add a step to the trace, as in ``evo_trace("retrieved", ids=[1, 2])``."""
    from pytest_evo.plugin.recording import Trace

    return Trace(request.node)


@pytest.fixture
def evo_usage(request: pytest.FixtureRequest) -> UsageRecorder:
    """Count spend of the system under test: ``evo_usage(tokens=812, usd=0.004)``."""
    from pytest_evo.plugin.recording import UsageRecorder

    return UsageRecorder(request.node)
