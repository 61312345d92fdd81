"""A run directory to everything that people and CI look at; a candidate to the tree.

Whatever is written here is computed from the journal and the blobs alone, so it can be
made again after any crash, and twice is the same as once.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from pathlib import PurePath
from typing import get_args

from pytest_evo.artifact.apply import apply_tree
from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.patches import changes
from pytest_evo.artifact.patches import diff
from pytest_evo.artifact.schema import kind_of
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.errors import UsageProblem
from pytest_evo.events import RolloutRecorded
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import CandidateId
from pytest_evo.models import Detail
from pytest_evo.models import Diagnosis
from pytest_evo.models import FileRule
from pytest_evo.models import Kind
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.models import Tree
from pytest_evo.reports.junit import candidate_report
from pytest_evo.reports.junit import leaderboard_report
from pytest_evo.reports.junit import Mode
from pytest_evo.reports.junit import winner_report
from pytest_evo.reports.junit_xml import Parts
from pytest_evo.reports.metrics import metrics_text
from pytest_evo.reports.model import RunReport
from pytest_evo.reports.model import standings
from pytest_evo.reports.summary import summary_markdown
from pytest_evo.reports.text import file_name
from pytest_evo.reports.text import some_of
from pytest_evo.store.view import load_run
from pytest_evo.store.view import RunView

MAX_CANDIDATES = 50
"""How many candidate reports go to the reports directory; all are in the run's own."""

_OURS = re.compile(
    r"(?:(?:junit|leaderboard)-part[0-9]+|TEST-c[0-9][0-9A-Za-z._-]*)\.xml"
)


@dataclass(frozen=True, slots=True)
class Published:
    """What was written, and the run that it tells of."""

    run: RunReport
    files: tuple[Path, ...]


# -- reports -----------------------------------------------------------------------


def run_report(view: RunView) -> RunReport:
    """The run as the reports want it. A diff that cannot be made says why."""
    info = view.info
    objective = info.settings.get("objective")
    usage = dict(view.usage())
    if "rollouts" in usage:  # what the system under test used
        usage["suite"] = usage.pop("rollouts")
    return RunReport(
        id=info.id,
        created=info.created.isoformat(),
        artifact=info.artifact,
        objective=objective if isinstance(objective, str) else "",
        seed=info.seed,
        cases=view.cases,
        candidates=tuple(view.candidates.values()),
        rollouts=view.rollouts,
        iterations=tuple(view.iterations),
        noise=view.noise,
        final=view.final,
        stop=view.stop,
        spent={purpose.value: count for purpose, count in view.spent().items()},
        usage=usage,
        diff=_winner_diff(view),
        detail=partial(_detail, view),
        left_out=view.excluded,
        diagnoses=_diagnoses(view),
        kind=partial(kind_of, _kinds(view)),
    )


def _diagnoses(view: RunView) -> Mapping[CandidateId, Sequence[Diagnosis]]:
    found: dict[CandidateId, list[Diagnosis]] = {}
    for made in view.diagnoses:
        found.setdefault(made.candidate, []).extend(made.diagnoses)
    return found


def _kinds(view: RunView) -> ArtifactSchema:
    """What the run's settings say of files; a run of an older version says nothing."""
    declared = view.info.settings.get("file")
    rows = declared if isinstance(declared, list) else []
    rules = tuple(
        FileRule(path=str(row["path"]), kind=Kind(str(row["kind"])))
        for row in rows
        if isinstance(row, dict) and "path" in row and row.get("kind") in list(Kind)
    )
    return ArtifactSchema(view.info.artifact, rules)


def candidate_diff(
    view: RunView,
    candidate: CandidateId,
    *,
    binary: bool = False,
    above: PurePath | None = None,
) -> str:
    """A candidate against the start, as a unified patch of the project's files.

    Args:
        view: the run that the candidate is of.
        candidate: which one.
        binary: put binary contents in, so that git can apply those too.
        above: from the top of the repository to the project, where git counts from.

    Raises:
        RunDirectoryProblem: a version is not in the run directory.
    """
    old, new = tree_of(view, START), tree_of(view, candidate)
    directory = ((above or PurePath()) / view.info.artifact).as_posix()
    return diff(old, new, view.blobs(), binary=binary, directory=directory)


def below_repository(rootdir: Path) -> PurePath:
    """The project as seen from the top of its git repository; "." without one."""
    top = _repository(rootdir)
    return PurePath() if top is None else rootdir.resolve().relative_to(top)


def look_command(rootdir: Path, run_argument: str, candidate: CandidateId) -> str:
    """What shows a candidate that was written into the working tree."""
    if _repository(rootdir) is not None:
        return "git diff"
    if candidate == START:
        return f"pytest-evo show {run_argument}"
    return f"pytest-evo diff {run_argument} {candidate}"


def _repository(rootdir: Path) -> Path | None:
    full = rootdir.resolve()
    tops = (path for path in (full, *full.parents) if (path / ".git").exists())
    return next(tops, None)


def tree_of(view: RunView, candidate: CandidateId) -> Tree:
    """The files of a candidate.

    Raises:
        RunDirectoryProblem: there is no such candidate, the baseline is not complete,
            or its files are lost.
    """
    if START not in view.candidates:
        raise RunDirectoryProblem(
            f"the baseline of run {view.info.id} is not complete, so it has no "
            "candidate yet. Go on with it: pytest --evolve --evo-resume="
            f"{view.info.id}"
        )
    if candidate not in view.candidates:
        raise RunDirectoryProblem(
            f"run {view.info.id} has no candidate {candidate!r}. To see those it has, "
            f"type: pytest-evo show {view.info.id}"
        )
    return view.tree_of(candidate)


def publish(
    run_path: Path,
    reports_dir: Path,
    *,
    junit_candidates: Mode | None = None,
    told: Callable[[RunReport], None] = lambda run: None,
) -> Published:
    """Write all reports of a run.

    Args:
        run_path: the run directory; every candidate gets a report in it.
        reports_dir: gets the reports for CI; reports of earlier runs are removed.
        junit_candidates: how a candidate's failures are written; the run's own setting
            if None.
        told: gets what the reports will say before the first one is written.

    Raises:
        RunDirectoryProblem: the run cannot be read.
        UsageProblem: a report cannot be written.
    """
    view = load_run(run_path)
    run = run_report(view)
    told(run)
    mode = junit_candidates or _mode(view)
    chosen = set(chosen_candidates(run))
    files: list[Path] = []
    with _explained(reports_dir, run_path):
        make_reports_dir(reports_dir)
        for record in run.candidates:
            if not run.rollouts.get(record.id):
                continue
            parts = candidate_report(run, record.id, mode)
            own = run_path / "candidates" / file_name(record.id)
            write_parts(own / "junit.xml", parts)
            if record.id in chosen:
                name = f"TEST-{file_name(record.id)}.xml"
                files += write_parts(reports_dir / "candidates" / name, parts)
        files += write_parts(reports_dir / "junit.xml", winner_report(run))
        files += write_parts(reports_dir / "leaderboard.xml", leaderboard_report(run))
        for name, text in (
            ("summary.md", summary_markdown(run)),
            ("metrics.txt", metrics_text(run)),
        ):
            files.append(reports_dir / name)
            write_report(files[-1], text.encode("utf-8", "replace"))
        remove_stale(reports_dir, files)
    return Published(run, tuple(files))


def chosen_candidates(run: RunReport) -> list[CandidateId]:
    """At most 50 to show in CI: the best, then the accepted, then the latest."""
    ranked = [one.record for one in standings(run) if run.rollouts.get(one.record.id)]
    newest = sorted(ranked, key=lambda c: (c.iteration, c.step), reverse=True)
    accepted = [c for c in newest if c.status in (Status.START, Status.ACCEPTED)]
    order = [run.winner, START]
    order += [record.id for record in (*ranked[:20], *accepted, *newest)]
    known = {record.id for record in ranked}
    return [c for c in dict.fromkeys(order) if c in known][:MAX_CANDIDATES]


def _winner_diff(view: RunView) -> str:
    if view.winner == START or view.winner not in view.candidates:
        return ""
    try:
        return candidate_diff(view, view.winner)
    except RunDirectoryProblem as problem:
        return f"(the files of {view.winner} are not known: {problem})\n"


def _detail(view: RunView, rollout: RolloutRecorded) -> Detail:
    try:
        return view.detail(rollout) or Detail()
    except ValueError as error:  # a name that leads out of the run directory
        return Detail(warnings=(str(error),))


def _mode(view: RunView) -> Mode:
    wanted = view.info.settings.get("junit_candidates")
    return next((mode for mode in get_args(Mode) if mode == wanted), "failures")


# -- files -------------------------------------------------------------------------


@contextlib.contextmanager
def _explained(reports_dir: Path, run_path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        # a full disk does not say which file it was
        where = error.filename or f"reports into {reports_dir} and {run_path}"
        raise UsageProblem(
            f"cannot write {where}: {error.strerror or error}. "
            "Make it writable, with room on the disk, or choose another place with "
            "--evo-reports=DIR; then type: pytest-evo report"
        ) from error


def make_reports_dir(reports_dir: Path) -> None:
    """Make the directory for CI; git is told to leave it alone."""
    if not reports_dir.exists():
        reports_dir.mkdir(parents=True)
        (reports_dir / ".gitignore").write_text("*\n", encoding="utf-8")
    (reports_dir / "candidates").mkdir(exist_ok=True)


def write_parts(path: Path, parts: Parts) -> list[Path]:
    """Write a report that may come in parts; returns the files."""
    written = []
    for number, part in enumerate(parts, start=1):
        tail = "" if number == 1 else f"-part{number}"
        written.append(path.with_name(f"{path.stem}{tail}{path.suffix}"))
        write_report(written[-1], part)
    return written


def write_report(path: Path, data: bytes) -> None:
    """Replace a file at once, because CI may collect it at any moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise


def remove_stale(reports_dir: Path, files: Iterable[Path]) -> None:
    """Remove reports of earlier runs; nothing that is not named like one."""
    keep = set(files)
    for folder in (reports_dir, reports_dir / "candidates"):
        for path in folder.iterdir():
            if _OURS.fullmatch(path.name) and path not in keep and path.is_file():
                path.unlink()


# -- the working tree --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Applied:
    """Which candidate is in the working tree now, and which paths that changed."""

    candidate: CandidateId
    directory: Path
    paths: tuple[str, ...]


def apply_candidate(
    view: RunView, rootdir: Path, candidate: CandidateId, *, force: bool = False
) -> Applied:
    """Write a candidate into the working tree, all of it or nothing.

    Args:
        view: the run that the candidate is of.
        rootdir: the project; the run knows the artifact's place in it.
        candidate: which one; the start undoes an earlier apply.
        force: overwrite changes that were made since the run began.

    Raises:
        ArtifactProblem: the artifact is not the one that the run began with (nor one
            of its candidates), or it cannot be read or written.
        RunDirectoryProblem: there is no such candidate, or its files are lost.
    """
    new = tree_of(view, candidate)
    directory = _artifact_directory(rootdir, view)
    include = view.info.settings.get("include")
    globs = [str(glob) for glob in include] if isinstance(include, list) else []
    now = snapshot(directory, MemoryBlobs(), include=globs)
    ours = {record.tree for record in view.candidates.values()}
    if now.hash not in ours and not force:
        raise _changed(view, now, candidate)
    return Applied(candidate, directory, apply_tree(directory, now, new, view.blobs()))


def _artifact_directory(rootdir: Path, view: RunView) -> Path:
    root = rootdir.resolve()
    directory = rootdir / view.info.artifact
    inside = directory.resolve().is_relative_to(root) and directory.resolve() != root
    if inside and directory.is_dir() and not directory.is_symlink():
        return directory
    raise ArtifactProblem(
        f"{directory} is not a directory inside {root}. Run {view.info.id} is about "
        f"the artifact {view.info.artifact!r}: type the command in its project, or "
        "give that with --rootdir=DIR."
    )


def _changed(view: RunView, now: Tree, candidate: CandidateId) -> ArtifactProblem:
    nearest, names = _nearest(view, now)
    shown = some_of(names)
    since = f"run {view.info.id} began"
    if nearest != START:
        since = f"{nearest} of run {view.info.id} was applied"
    return ArtifactProblem(
        f"{view.info.artifact} has changed since {since} ({shown}). "
        "Nothing was written. Undo those changes and type it again; or commit or copy "
        "them, so that they are kept, and overwrite them with: "
        f"pytest-evo apply {view.info.id} {candidate} --force"
    )


def _nearest(view: RunView, now: Tree) -> tuple[CandidateId, list[str]]:
    """The candidate that the fewest paths tell from a tree, the start first; these."""
    found: tuple[CandidateId, list[str]] | None = None
    for name in dict.fromkeys((START, view.winner, *view.candidates)):
        try:
            paths = [path for path, _ in changes(tree_of(view, name), now)]
        except RunDirectoryProblem:
            continue  # its files are lost, so nobody applied it just now
        if found is None or len(paths) < len(found[1]):
            found = name, paths
    return found or (START, [entry.path for entry in now.entries])
