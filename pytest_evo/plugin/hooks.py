"""Calls of the hooks: the answers checked, the problems named."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast
from typing import TYPE_CHECKING

import pytest

from pytest_evo.errors import SuiteProblem
from pytest_evo.errors import UsageProblem
from pytest_evo.models import CaseId
from pytest_evo.models import Split
from pytest_evo.plugin.plain import plain
from pytest_evo.plugin.recording import checked_score

if TYPE_CHECKING:
    from pytest_evo.models import Candidate
    from pytest_evo.models import Node
    from pytest_evo.models import Rollout
    from pytest_evo.protocols import Diagnoser
    from pytest_evo.protocols import Evaluator
    from pytest_evo.protocols import Proposer


def make_proposer(config: pytest.Config, name: str) -> Proposer | None:
    """What a hook makes of a proposer's name; None where no hook knows it."""
    answer = config.hook.pytest_evo_make_proposer(config=config, name=name)
    return cast("Proposer | None", _with(answer, "propose", "make_proposer"))


def make_evaluator(config: pytest.Config) -> Evaluator | None:
    """The evaluator of a hook, or None."""
    answer = config.hook.pytest_evo_make_evaluator(config=config)
    return cast("Evaluator | None", _with(answer, "submit", "make_evaluator"))


def make_diagnoser(config: pytest.Config, name: str) -> Diagnoser | None:
    """What a hook makes of a diagnoser's name; None where no hook knows it."""
    answer = config.hook.pytest_evo_make_diagnoser(config=config, name=name)
    return cast("Diagnoser | None", _with(answer, "diagnose", "make_diagnoser"))


def make_strategy(config: pytest.Config, name: str) -> object | None:
    """What a hook makes of a strategy's name; None where no hook knows it."""
    answer: object | None = config.hook.pytest_evo_make_strategy(
        config=config, name=name
    )
    return answer


def _with(answer: object, method: str, hook: str) -> object:
    if answer is None or callable(getattr(answer, method, None)):
        return answer
    raise UsageProblem(
        f"pytest_evo_{hook} returned {plain(answer)!r}, which has no method "
        f"{method}(); return an object that has one, or None"
    )


def split_from_hook(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> dict[CaseId, Split]:
    """The splits that a hook gives, by node id; empty where no hook answers.

    Raises:
        SuiteProblem: the answer is no mapping of node ids to splits.
    """
    answer = config.hook.pytest_evo_split(config=config, items=list(items))
    if answer is None:
        return {}
    if not hasattr(answer, "items"):
        raise SuiteProblem(
            f"pytest_evo_split returned {plain(answer)!r}; return a mapping of node "
            'ids to "train", "val" or "test"'
        )
    known = {item.nodeid for item in items}
    splits: dict[CaseId, Split] = {}
    for case, split in answer.items():
        if case not in known:
            raise SuiteProblem(
                f"pytest_evo_split names {plain(case)!r}, which was not collected; "
                "use item.nodeid as the key"
            )
        splits[case] = as_split(split, f"pytest_evo_split, {case}")
    return splits


def as_split(value: object, where: str) -> Split:
    """A split by its name.

    Raises:
        SuiteProblem: there is no such split.
    """
    if isinstance(value, str) and value in {split.value for split in Split}:
        return Split(value)
    raise SuiteProblem(
        f"{where}: {plain(value)!r} is no split; write one of "
        f"{', '.join(repr(split.value) for split in Split)}"
    )


def score_from_hook(
    config: pytest.Config, item: pytest.Item, reports: Sequence[pytest.TestReport]
) -> float | None:
    """The score that a hook gives to a rollout, or None.

    Raises:
        TypeError: the answer is no number.
        ValueError: the answer is outside [0, 1].
    """
    answer = item.ihook.pytest_evo_score(item=item, reports=list(reports))
    return None if answer is None else checked_score("pytest_evo_score", answer)


def check_artifact(config: pytest.Config, path: Path) -> list[str]:
    """What hooks find wrong with a candidate; empty where nothing is.

    Raises:
        UsageProblem: an answer is neither text nor texts.
    """
    faults: list[str] = []
    for answer in config.hook.pytest_evo_check_artifact(config=config, path=path):
        texts = [answer] if isinstance(answer, str) else answer
        if not isinstance(texts, (list, tuple)) or not all(
            isinstance(text, str) for text in texts
        ):
            raise UsageProblem(
                f"pytest_evo_check_artifact returned {plain(answer)!r}; return a text, "
                "a list of texts, or None"
            )
        faults += [text for text in texts if text]
    return faults


def candidate_created(config: pytest.Config, candidate: Candidate) -> None:
    """Tell observers of a new candidate."""
    config.hook.pytest_evo_candidate_created(config=config, candidate=candidate)


def candidate_evaluated(
    config: pytest.Config, candidate: Candidate, rollouts: Sequence[Rollout]
) -> None:
    """Tell observers how a candidate did on its batch."""
    config.hook.pytest_evo_candidate_evaluated(
        config=config, candidate=candidate, rollouts=tuple(rollouts)
    )


def chain_finished(
    config: pytest.Config, nodes: Sequence[Node], accepted: bool
) -> None:
    """Tell observers of the end of a chain."""
    config.hook.pytest_evo_chain_finished(
        config=config, nodes=tuple(nodes), accepted=accepted
    )


def run_finished(
    config: pytest.Config, run: Path, winner: Candidate | None, reason: str
) -> None:
    """Tell observers of the end of a run."""
    config.hook.pytest_evo_run_finished(
        config=config, run=run, winner=winner, reason=reason
    )
