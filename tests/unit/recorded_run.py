"""A small recorded run in a project, for tests of what is done with it afterwards."""

from __future__ import annotations

from datetime import datetime
from datetime import UTC
from pathlib import Path
from random import Random

from pytest_evo.artifact.trees import snapshot
from pytest_evo.events import CandidateRecorded
from pytest_evo.events import CasesFrozen
from pytest_evo.events import Event
from pytest_evo.events import FinalMeasured
from pytest_evo.events import IterationClosed
from pytest_evo.events import RolloutRecorded
from pytest_evo.events import RunStopped
from pytest_evo.models import Case
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Claim
from pytest_evo.models import Detail
from pytest_evo.models import Outcome
from pytest_evo.models import Phase
from pytest_evo.models import Purpose
from pytest_evo.models import Rollout
from pytest_evo.models import Split
from pytest_evo.models import Status
from pytest_evo.store.clock import RunClock
from pytest_evo.store.journal import FileJournal
from pytest_evo.store.rollouts import RolloutFiles
from pytest_evo.store.run_directory import create
from pytest_evo.store.run_directory import identify
from pytest_evo.store.run_directory import NewRun

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CASES = tuple(
    Case(f"tests/test_a.py::test_x[{n}]", split, file="tests/test_a.py")
    for n, split in enumerate([Split.TRAIN, Split.VAL, Split.TEST])
)
FILES = {
    "c0000": {"prompt.md": "Be short.\n", "tool.sh": "echo 1\n"},
    "c0001": {"prompt.md": "Be kind.\n", "tool.sh": "echo 1\n", "new/x.md": "New.\n"},
    "c0002": {"prompt.md": "Be rude.\n", "tool.sh": "echo 1\n"},
}


def write_files(directory: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return directory


def record_run(
    project: Path,
    *,
    said: str = "boom",
    settings: dict[str, object] | None = None,
    finished: bool = True,
    now: datetime = NOW,
) -> Path:
    """A run with a winner and a rejected child; the start stays in the project."""
    run = _new_run(project, settings, now)
    trees = {
        name: _tree(run, project / ".drafts" / run.id / name, files)
        for name, files in FILES.items()
    }
    journal = FileJournal(run.path, RunClock(0.0))
    details = RolloutFiles(run.path)
    events: list[Event] = [CasesFrozen(CASES)]
    for name, status, iteration in (
        ("c0000", Status.START, 0),
        ("c0001", Status.ACCEPTED, 1),
        ("c0002", Status.REJECTED, 2),
    ):
        for number, case in enumerate(CASES):
            bad = name == "c0002" or (name == "c0000" and number != 2)
            events.append(_rollout(details, name, trees[name], case, bad, said))
        changelog = (ChangelogEntry("prompt.md", said, "modified"),) * (iteration > 0)
        parent = f"c{iteration - 1:04}" if iteration else None
        events.append(
            CandidateRecorded(
                name,
                parent,
                trees[name],
                status,
                iteration=iteration,
                changelog=changelog,
            )
        )
        if iteration:
            events.append(
                IterationClosed(
                    iteration,
                    0,
                    parent,
                    name if iteration == 1 else None,
                    0,
                    iteration == 1,
                    said,
                    population=("c0001", "c0000"),
                )
            )
    if finished:
        claim = Claim(Split.TEST, False, 1, 0.0, 1.0, 1.0, 0.5, 1.0)
        stopped = RunStopped("iterations", "2 of 2", "c0001", 2, 9, {})
        events += [FinalMeasured("c0001", claim), stopped]
    journal.append(*events)
    journal.close()
    return run.path


def record_baseline(project: Path) -> Path:
    """A run that was stopped in its baseline: one rollout is noted, nothing closed."""
    run = _new_run(project, None, NOW)
    tree = _tree(run, project / ".drafts" / run.id, FILES["c0000"])
    journal = FileJournal(run.path, RunClock(0.0))
    details = RolloutFiles(run.path)
    scope = journal.open("baseline")
    scope.note(_rollout(details, "c0000", tree, CASES[0], True, "boom"))
    journal.close()
    return run.path


def _new_run(project: Path, settings: dict[str, object] | None, now: datetime):
    artifact = project / "prompts"
    if not artifact.exists():
        write_files(artifact, FILES["c0000"])
    root = project / ".evo"
    new = NewRun(
        project=identify(project, root),
        package_version="0.1.0",
        seed=3,
        settings={"objective": "Be nice.", **(settings or {})},
        artifact="prompts",
        python="3.11.0",
        pytest="9.0.0",
    )
    return create(root, new, now, Random(now.second))


def _tree(run, draft: Path, files: dict[str, str]) -> str:
    write_files(draft, files)
    return run.trees().put(snapshot(draft, run.blobs()))


def _rollout(details, name, tree, case, bad, said) -> RolloutRecorded:
    outcome = Outcome.FAILED if bad else Outcome.PASSED
    phase = Phase("call", outcome.value, 0.1, said if bad else "", said if bad else "")
    kept = details.keep(
        Rollout(
            name, tree, case.id, 0, outcome, float(not bad), detail=Detail((phase,))
        )
    )
    return RolloutRecorded(
        candidate=name,
        tree=tree,
        case=case.id,
        split=case.split,
        repeat=0,
        outcome=outcome,
        score=float(not bad),
        seconds=0.1,
        purpose=Purpose.CHILD,
        trace=kept.trace,
    )
