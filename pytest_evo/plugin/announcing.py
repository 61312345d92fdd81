"""The header of a run: shown after the baseline, before the first proposal."""

from __future__ import annotations

import os
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_evo.engine.loop import Prospect
from pytest_evo.hostile import one_line
from pytest_evo.models import Case
from pytest_evo.models import CaseId
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Split
from pytest_evo.plugin.isolating import Calibration
from pytest_evo.plugin.modelling import kept_back
from pytest_evo.plugin.outages import outage_notes
from pytest_evo.plugin.redaction import dotenv_files
from pytest_evo.plugin.runfiles import RunFiles
from pytest_evo.plugin.task import Task
from pytest_evo.protocols import RolloutStore
from pytest_evo.reports.console import header_lines
from pytest_evo.reports.console import HeaderFacts
from pytest_evo.reports.console import Line
from pytest_evo.settings import Settings
from pytest_evo.strategies.diagnosers import choose_diagnoser
from pytest_evo.strategies.diagnosers import DIAGNOSERS
from pytest_evo.strategies.diagnosers import model_name
from pytest_evo.strategies.diagnosers import NONE
from pytest_evo.wording import count

NAMED = 5
"""Cases that a warning names."""
_LONGEST_FAILURE = 300


@dataclass(frozen=True, slots=True)
class Header:
    """Everything that the header tells; ``show`` writes its lines."""

    task: Task
    settings: Settings
    files: RunFiles
    budget: Mapping[str, str]
    cases_why: str
    split_why: str
    calibration: Calibration
    show: Callable[[Sequence[Line]], None]

    def announce(self, prospect: Prospect) -> None:
        """Show what is optimised, how, and what the budget buys."""
        tree = self.files.trees.get(self.files.start)
        sizes = [entry.size for entry in tree.entries if entry.kind == "file"]
        setup, choice = prospect.setup, self.calibration.choice
        facts = HeaderFacts(
            run=self.files.directory.id,
            artifact=self.task.schema.directory,
            files=len(sizes),
            bytes=sum(sizes),
            cases={split.value: len(setup.cases(split)) for split in Split},
            cases_why=self.cases_why,
            split_why=self.split_why,
            proposer=_proposer(self.task.proposer_name, self.settings),
            isolation=choice.mode + (" with mount" if choice.mount else ""),
            isolation_why=choice.why,
            budget=self.budget,
            baseline=prospect.baseline,
            noise=prospect.noise,
            reserve=prospect.reserve,
            proposals_left=prospect.proposals,
            validations_left=prospect.validations,
            excluded=len(prospect.left_out),
            notes=(
                *_notes(prospect, self.settings),
                *failing_notes(
                    [case for split in Split for case in setup.cases(split)],
                    prospect.start_traces,
                    self.files.rollouts,
                ),
                *_fixture_notes(self.calibration.slow_fixtures),
                *_secret_notes(self.task.artifact),
                *_key_notes(self.settings),
                *_tape_notes(self.settings),
                *outage_notes(self.settings.infrastructure),
            ),
            warnings=tuple(_left_out(prospect.left_out)),
        )
        self.show(header_lines(facts))


def _left_out(cases: Sequence[CaseId]) -> Iterator[str]:
    if cases:
        named = ", ".join(cases[:NAMED]) + (", ..." if len(cases) > NAMED else "")
        yield (
            f"{len(cases)} of the tests neither passed nor failed on the start, so no "
            "candidate is judged by them, however good it is: skipped, an error in a "
            f"fixture, a crash or a time limit. {named}. What they said is in the "
            "report of c0000; mend them and start anew to have them count"
        )


def failing_notes(
    cases: Sequence[Case], traces: Mapping[CaseId, str], store: RolloutStore
) -> Iterator[str]:
    """What the first failure says, where the start fails in every case.

    Args:
        cases: all that are measured.
        traces: of their first rollouts on the start.
        store: has the details of these.
    """
    if any(case.outcome is not Outcome.FAILED for case in cases):
        return
    first = min(case.id for case in cases)
    trace = traces.get(first)
    said = _failure(store.detail(trace)) if trace is not None else ""
    yield (
        f"every case fails on the start, {count(len(cases), 'case')} in all"
        + (f"; {first} says: {said}" if said else "")
        + ". If no edit of the artifact can mend that, stop and mend the tests first"
    )


def _failure(detail: Detail) -> str:
    """The first failure in one line, with its place in the project."""
    told = [phase for phase in detail.phases if phase.message]
    failed = [phase for phase in told if phase.outcome == "failed"]
    for phase in failed or told:
        said = one_line(phase.message, _LONGEST_FAILURE)
        if phase.line is None or phase.file.startswith("/"):
            return said
        return f"{said} ({one_line(phase.file, _LONGEST_FAILURE)}:{phase.line})"
    return ""


def _fixture_notes(shares: Mapping[str, float]) -> Iterator[str]:
    for name, share in sorted(shares.items(), key=lambda row: -row[1]):
        yield (
            f"fixture {name} takes {share:.0%} of rollout time; if it does not "
            f"read the artifact, set warm_fixtures = [{name!r}]"
        )


def _secret_notes(artifact: Path) -> Iterator[str]:
    names = [path.relative_to(artifact).as_posix() for path in dotenv_files(artifact)]
    if names:
        yield (
            f"{', '.join(names)} in the artifact may hold secrets: proposers, diffs "
            "and the run directory show the files as they are"
        )


def _proposer(name: str, settings: Settings) -> str:
    """The proposer, and who reads failures for it."""
    shown = f"{name} ({settings.model})" if name == "llm" else name
    diagnoser = choose_diagnoser(settings, name)
    if diagnoser == NONE:
        return shown
    asked = f" ({model_name(settings)})" if diagnoser in DIAGNOSERS else ""
    return f"{shown}; failures are read by {diagnoser}{asked}"


def _key_notes(settings: Settings) -> Iterator[str]:
    names = kept_back(settings, os.environ)
    if names:
        yield (
            f"rollouts do not see {', '.join(names)}; if the suite needs the key too, "
            "set share_key = true in [tool.pytest_evo.model_options]"
        )


def _tape_notes(settings: Settings) -> Iterator[str]:
    if settings.replay is not None:
        yield (
            f"no model is asked: {settings.replay} answers, and tokens and money are "
            "those of its recording"
        )


def _depth(prospect: Prospect) -> str:
    """The depth of chains now, and what is in the way of deeper ones."""
    setup, left = prospect.setup, prospect.left
    now = setup.depth_for(left)
    if now == setup.depth or left is None:
        return f"chain depth {now}"
    wanted = prospect.spent + prospect.reserve + setup.left_for(setup.depth)
    return (
        f"chain depth {now} ({setup.depth} from --budget-rollouts={wanted} on, or with "
        f"--evo-chain-depth={setup.depth})"
    )


def _notes(prospect: Prospect, settings: Settings) -> tuple[str, ...]:
    setup = prospect.setup
    notes = [
        f"batch {setup.batch}, {_depth(prospect)}, slots {settings.slots}, "
        f"seed {settings.seed}"
    ]
    if setup.is_noisy:
        notes.append(
            f"{count(len(setup.noisy), 'noisy case')} (within-case variance "
            f"{setup.variance:.3f}): gains are tested and confirmed on fresh rollouts"
        )
    if prospect.maybe_cached:
        notes.append(
            f"{count(prospect.maybe_cached, 'case')} with network access never varied: "
            "cached?"
        )
    if not setup.test:
        notes.append("no test split: the final figure will be in-sample")
    return tuple(notes)
