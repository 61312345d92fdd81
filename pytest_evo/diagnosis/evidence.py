"""Evidence: gathered from nodes as values. Only train rollouts get here."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from pytest_evo.diagnosis.history import measure
from pytest_evo.diagnosis.history import NO_SCHEMA
from pytest_evo.diagnosis.history import score_history
from pytest_evo.diagnosis.memo import by_identity
from pytest_evo.diagnosis.redacting import redacted
from pytest_evo.diagnosis.traces import arranged
from pytest_evo.diagnosis.traces import make_traces
from pytest_evo.diagnosis.traces import TOTAL
from pytest_evo.evidence import Evidence
from pytest_evo.evidence import Trace
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Attempt
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Node
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import Tree
from pytest_evo.models import TreeHash

MOST_ATTEMPTS = 20
"""Attempts of earlier iterations that are shown, the newest ones."""


@dataclass(frozen=True, slots=True)
class Sources:
    """Where evidence is read from.

    Args:
        detail: a rollout's detail by its ``trace``; without it, and where a rollout
            brings its own, none is read.
        trace: makes the trace of a rollout, instead of from its detail.
        tree: a version by its hash; without it contents are not compared.
        schema: what kind of file each one is.
        redact: takes secrets out of a text.
        traces: characters of all traces together.
    """

    detail: Callable[[str], Detail] | None = None
    tree: Callable[[TreeHash], Tree] | None = None
    schema: ArtifactSchema = NO_SCHEMA
    redact: Callable[[str], str] = str
    traces: int = TOTAL
    trace: Callable[[Rollout], Trace] | None = None
    attempt: Callable[[Attempt], Attempt] = field(init=False)

    def __post_init__(self) -> None:
        """Take secrets out of an attempt once, not for every proposal."""

        def told(attempt: Attempt) -> Attempt:
            changelog = redacted(attempt.changelog, self.redact)
            if changelog is attempt.changelog:
                return attempt
            return replace(attempt, changelog=changelog)

        object.__setattr__(self, "attempt", by_identity(told))


def gather(
    nodes: Sequence[Node],
    cases: Sequence[Case],
    attempts: Sequence[Attempt] = (),
    sources: Sources | None = None,
) -> Evidence:
    """Everything that is known of a chain on its batch.

    Args:
        nodes: the chain so far, parent first.
        cases: the cases of the batch.
        attempts: what closed iterations tried, oldest first.
        sources: where details and versions are read.

    Raises:
        ValueError: a case is not a train case, or a rollout is of another case. It
            would show a proposer what it is measured by.
    """
    _check_train_only(nodes, cases)
    batch = {case.id for case in cases}
    return collect(nodes, attempts_on(attempts, batch), sources or Sources())


def collect(
    nodes: Sequence[Node], attempts: Sequence[Attempt], sources: Sources
) -> Evidence:
    """As :func:`gather`, for nodes that hold nothing but train rollouts."""
    histories = score_history(nodes)
    return Evidence(
        nodes=tuple(_told(node, sources.redact) for node in nodes),
        histories=histories,
        facts=measure(
            nodes,
            schema=sources.schema,
            attempts=attempts,
            tree=sources.tree,
            rows=histories,
        ),
        traces=_traces(nodes, sources),
        attempts=tuple(map(sources.attempt, attempts)),
    )


def _traces(nodes: Sequence[Node], sources: Sources) -> tuple[Trace, ...]:
    if sources.trace is None:
        return make_traces(nodes, sources.detail, sources.redact, sources.traces)
    return arranged(nodes, sources.trace, sources.traces)


def _told(node: Node, redact: Callable[[str], str]) -> Node:
    """The node without secrets in what was said; details are in the traces."""
    candidate = node.candidate
    changelog = redacted(candidate.changelog, redact)
    if changelog is not candidate.changelog:
        candidate = replace(candidate, changelog=changelog)
    return Node(
        candidate,
        tuple(
            one if one.detail is None else replace(one, detail=None)
            for one in node.rollouts
        ),
        redacted(node.diagnoses, redact),
        node.mean,
    )


def _check_train_only(nodes: Sequence[Node], cases: Sequence[Case]) -> None:
    held_out = [case.id for case in cases if case.split is not Split.TRAIN]
    if held_out:
        raise ValueError(
            f"evidence may show train cases only, and {held_out[0]!r} is none"
        )
    known = {case.id for case in cases}
    for node in nodes:
        for rollout in node.rollouts:
            if rollout.case not in known:
                raise ValueError(
                    f"evidence may show the batch only, and {rollout.case!r} of "
                    f"{node.candidate.id} is not in it"
                )


def attempts_on(
    attempts: Sequence[Attempt], batch: Collection[CaseId]
) -> tuple[Attempt, ...]:
    """The newest attempts that ran on a case of the batch, oldest first."""
    found: list[Attempt] = []
    for attempt in reversed(attempts):
        if len(found) == MOST_ATTEMPTS:
            break
        if not attempt.scores.keys().isdisjoint(batch):
            found.append(attempt)
    return tuple(reversed(found))
