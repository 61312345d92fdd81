"""``pytest-evo``: look at runs, apply what they found, set a project up.

Exit codes: 0 done, 1 it was looked at and something is wrong, 4 what was typed or
configured has to change; ``gate`` has those of the gate.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections import Counter
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Sequence
from datetime import datetime
from datetime import UTC
from pathlib import Path
from typing import Any
from typing import NoReturn
from typing import TypeAlias

import pytest_evo
from pytest_evo.artifact.trees import restore
from pytest_evo.checkup import checkup
from pytest_evo.cli_gate import add_gate_options
from pytest_evo.cli_gate import decide_again
from pytest_evo.cli_text import be_tolerant
from pytest_evo.cli_text import flat
from pytest_evo.cli_text import short_path
from pytest_evo.cli_text import write
from pytest_evo.cli_text import write_json
from pytest_evo.errors import EvoError
from pytest_evo.errors import UsageProblem
from pytest_evo.models import CandidateId
from pytest_evo.project import find_rootdir
from pytest_evo.project import guess_artifact
from pytest_evo.project import init_project
from pytest_evo.publish import apply_candidate
from pytest_evo.publish import below_repository
from pytest_evo.publish import candidate_diff
from pytest_evo.publish import look_command
from pytest_evo.publish import publish
from pytest_evo.publish import run_report
from pytest_evo.publish import tree_of
from pytest_evo.reports.console import Line
from pytest_evo.reports.data import run_data
from pytest_evo.reports.ending import claim_lines
from pytest_evo.reports.ending import cost_lines
from pytest_evo.reports.ending import diff_lines
from pytest_evo.reports.ending import lineage
from pytest_evo.reports.ending import next_lines
from pytest_evo.reports.ending import short_result
from pytest_evo.reports.ending import stop_lines
from pytest_evo.reports.ending import table_lines
from pytest_evo.reports.ending import warning_lines
from pytest_evo.reports.ending import worse_lines
from pytest_evo.reports.model import RunReport
from pytest_evo.reports.text import visible
from pytest_evo.reports.tiers import tier_lines
from pytest_evo.settings import load_settings
from pytest_evo.settings import Settings
from pytest_evo.store.repair import repair
from pytest_evo.store.run_directory import identify
from pytest_evo.store.run_directory import open_existing
from pytest_evo.store.run_directory import run_ids
from pytest_evo.store.view import load_run
from pytest_evo.store.view import RunView
from pytest_evo.wording import count

OK, WRONG, USAGE = 0, 1, 4
_OPTIONS = (
    "--all",
    "--artifact",
    "--force",
    "--json",
    "--reports",
    "--rootdir",
    "--run-dir",
    "--version",
)
SHOWN_ROWS = 20
"""Candidates and iterations that ``show`` lists without ``--all``."""
Command: TypeAlias = Callable[[argparse.Namespace], int]
_MISTYPED = re.compile(r"invalid choice: '([^']*)'|unrecognized arguments: (\S+)")
_CANDIDATE = re.compile(r"c[0-9]{4,}(-[0-9]+)?")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    be_tolerant(sys.stdout, sys.stderr)
    try:
        options = _parser().parse_args(arguments)
        code: int = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # the reader (head, less) has seen enough; the interpreter flushes once more
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except KeyboardInterrupt:
        return 130
    except UsageProblem as problem:
        sys.stderr.write(f"pytest-evo: {flat(str(problem))}\n")
        return USAGE
    except (EvoError, OSError) as error:
        sys.stderr.write(f"pytest-evo: {flat(str(error))}\n")
        return WRONG
    return code


class _Parser(argparse.ArgumentParser):
    words: Collection[str] = ()
    """Commands and options that a mistyped one may have been meant to be."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line; argparse would exit with 2."""
        typed = _MISTYPED.search(message)
        close = (
            difflib.get_close_matches(typed[typed.lastindex or 0], self.words, 1)
            if typed
            else []
        )
        hint = f"Did you mean {close[0]}? " if close else ""
        raise UsageProblem(
            f"{message}. {hint}To see what can be typed: {self.prog} --help"
        )


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="pytest-evo", description="Runs of pytest --evolve.")
    version = f"pytest-evo {pytest_evo.__version__}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Command, about: str) -> argparse.ArgumentParser:
        one: argparse.ArgumentParser = commands.add_parser(
            name, help=about, description=f"{about[0].upper()}{about[1:]}."
        )
        one.add_argument("--rootdir", type=Path, metavar="DIR", help="the project")
        one.add_argument("--run-dir", metavar="DIR", help="where runs are kept (.evo)")
        one.set_defaults(command=command)
        return one

    runs = add("runs", _runs, "list the runs")
    show = add("show", _show, "show a run: candidates, claim, cost, iterations")
    diff = add("diff", _diff, "print a candidate against the start as a patch")
    apply = add("apply", _apply, "write a candidate into the working tree")
    report = add("report", _report, "write the reports of a run again")
    mend = add("repair", _repair, "make a damaged run usable again")
    export = add("export", _export, "copy a candidate's files into a new directory")
    add("doctor", _doctor, "check what pytest --evolve needs")
    gate = add("gate", _gate, "decide a pull-request gate again, without running")
    add_gate_options(gate)
    init = add("init", _init, "add [tool.pytest_evo] to pyproject.toml")

    a_run: dict[str, Any] = {
        "metavar": "RUN",
        "help": "a run id, or last (the default)",
    }
    for one in (show, diff, apply, report, mend):
        one.add_argument("run", nargs="?", default="last", **a_run)
    text = "like c0012 (default: the winner)"
    a_candidate: dict[str, Any] = {"metavar": "CANDIDATE", "help": text}
    for one in (diff, apply):
        one.add_argument("candidate", nargs="?", **a_candidate)
    export.add_argument("run", **a_run)
    export.add_argument("candidate", **a_candidate)
    export.add_argument("dir", metavar="DIR", help="one that is missing or empty")
    for one in (runs, show):
        one.add_argument("--json", action="store_true", help="for programs")
    text = "all candidates and iterations, not only the best and the last"
    show.add_argument("--all", action="store_true", help=text)
    text = "overwrite what was changed since the run began"
    apply.add_argument("--force", action="store_true", help=text)
    report.add_argument("--reports", metavar="DIR", help="where to (evo-reports)")
    init.add_argument("--artifact", metavar="DIR", help="the directory that may change")
    parser.words = (*commands.choices, *_OPTIONS)
    return parser


# -- commands ----------------------------------------------------------------------


def _runs(options: argparse.Namespace) -> int:
    root = _root(options)
    rows = [_run_row(root, run) for run in run_ids(root)]
    if options.json:
        write_json(rows)
        return OK
    if not rows:
        write([Line(f"no runs in {root}. Start one with: pytest --evolve")])
    for row in rows:
        text = f"{row['id']}  {row['state']:<10}  {row['text']}"
        write([Line(visible(text), "" if row["state"] != "damaged" else "red")])
    return OK


def _run_row(root: Path, run: str) -> dict[str, object]:
    try:
        report = run_report(load_run(root / "runs" / run))
    except UsageProblem as problem:
        return {"id": run, "state": "damaged", "text": str(problem)}
    state = "complete" if report.complete else "stopped" if report.stop else "open"
    return {
        "id": run,
        "state": state,
        "created": report.created,
        "artifact": report.artifact,
        "iterations": len(report.iterations),
        "rollouts": sum(report.spent.values()),
        "candidates": len(report.candidates),
        "winner": report.winner if report.has_start else None,
        "text": f"{report.artifact}, {count(len(report.iterations), 'iteration')}, "
        f"{count(sum(report.spent.values()), 'rollout')}, {short_result(report)}",
    }


def _show(options: argparse.Namespace) -> int:
    run = run_report(_view(options))
    if options.json:
        write_json(run_data(run))
        return OK
    objective = f": {visible(run.objective)}" if run.objective.strip() else ""
    head = [
        Line(f"run {visible(run.id)}, seed {run.seed}, {_when(run.created)}", "bold"),
        Line(f"artifact {visible(run.artifact)}{objective}"),
    ]
    rows = len(run.candidates) + len(run.iterations) if options.all else SHOWN_ROWS
    lines = [
        head,
        table_lines(run, limit=rows),
        claim_lines(run),
        worse_lines(run),
        warning_lines(run),
        tier_lines(run),
        cost_lines(run),
        _iterations(run, rows),
        stop_lines(run),
        next_lines(run, options.run, shown=True),
    ]
    for number, block in enumerate(filter(None, lines)):
        write([Line("")] * bool(number) + block)
    return OK


def _iterations(run: RunReport, limit: int) -> list[Line]:
    if not run.iterations:
        return []
    left = len(run.iterations) - limit
    lines = [Line("iterations:", "bold")]
    if left > 0:
        lines.append(Line(f"{left:,} before these: pytest-evo show --all", "dim"))
    return [*lines, *map(Line, lineage(run, limit))]


def _when(created: str) -> str:
    """A moment as people read it; hostile text cannot be one."""
    try:
        moment = datetime.fromisoformat(created).astimezone(UTC)
    except ValueError:
        return visible(created)
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def _diff(options: argparse.Namespace) -> int:
    candidate, view = _candidate(options)
    above = below_repository(_rootdir(options))
    if sys.stdout.isatty():
        shown = candidate_diff(view, candidate, above=above)
        write(diff_lines(shown, limit=None))
        return OK
    patch = candidate_diff(view, candidate, binary=True, above=above)
    sys.stdout.flush()
    sys.stdout.buffer.write(patch.encode("utf-8", "surrogateescape"))
    return OK


def _apply(options: argparse.Namespace) -> int:
    candidate, view = _candidate(options)
    rootdir = _rootdir(options)
    done = apply_candidate(view, rootdir, candidate, force=options.force)
    where = visible(str(done.directory))
    if not done.paths:
        write([Line(f"nothing to do: {where} is {candidate} already")])
        return OK
    lines = [Line(f"wrote {candidate} into {where}:")]
    lines += [Line(f"  {visible(path)}") for path in done.paths]
    look = look_command(rootdir, visible(options.run), done.candidate)
    write([*lines, Line(f"next: {look}", "bold")])
    return OK


def _report(options: argparse.Namespace) -> int:
    view = _view(options)
    wanted = options.reports or view.info.settings.get("reports") or "evo-reports"
    done = publish(view.path, _rootdir(options) / str(wanted))
    folders = Counter(path.parent for path in done.files)
    top = min(folders, key=lambda folder: len(folder.parts))
    files = [short_path(path) for path in done.files if path.parent == top]
    files += [
        f"{short_path(folder)}: {count(number, 'file')}"
        for folder, number in folders.items()
        if folder != top
    ]
    write(Line(visible(text)) for text in files)
    return OK


def _repair(options: argparse.Namespace) -> int:
    done = repair(_root(options), options.run, datetime.now(UTC))
    if not done:
        write([Line(f"{visible(options.run)} is sound: nothing was changed")])
    for one in done:
        write(
            [
                Line(
                    f"{visible(short_path(one.file))}: "
                    f"{count(one.records, 'record')} kept, {one.removed} set aside in "
                    f"{visible(short_path(one.aside))}"
                )
            ]
        )
    return OK


def _export(options: argparse.Namespace) -> int:
    view = _view(options)
    target = Path(options.dir)
    restore(tree_of(view, options.candidate), view.blobs(), target)
    write([Line(f"wrote {options.candidate} into {visible(short_path(target))}")])
    return OK


def _doctor(options: argparse.Namespace) -> int:
    styles = {"ok": "green", "note": "yellow", "problem": "red"}
    problems = 0
    for finding in checkup(_rootdir(options)):
        problems += finding.state == "problem"
        text = f"{finding.state:<8} {finding.about}: {flat(finding.text)}"
        write([Line(visible(text), styles[finding.state])])
    write([Line("all is well" if not problems else f"{problems} to be solved")])
    return WRONG if problems else OK


def _gate(options: argparse.Namespace) -> int:
    lines, code = decide_again(options)
    write(lines)
    return code


def _init(options: argparse.Namespace) -> int:
    rootdir = options.rootdir or Path.cwd()
    guess = guess_artifact(rootdir)
    table = init_project(rootdir, options.artifact)
    path = short_path(rootdir / "pyproject.toml")
    lines = [Line(visible(text)) for text in table.rstrip().splitlines()]
    write([Line(f"added to {visible(path)}:"), Line(""), *lines, Line("")])
    if options.artifact is None and not (rootdir / guess).is_dir():
        text = f"there is no directory {guess}: create it, or write your own's name"
        write([Line(f"{text} into artifact", "yellow")])
    write([Line("next: pytest-evo doctor", "bold")])
    return OK


# -- finding runs ------------------------------------------------------------------


def _rootdir(options: argparse.Namespace) -> Path:
    if options.rootdir is None:
        return find_rootdir(Path.cwd())
    rootdir: Path = options.rootdir
    if not rootdir.is_dir():
        raise UsageProblem(f"--rootdir={rootdir} is no directory. Type one that is.")
    return rootdir


def _root(options: argparse.Namespace) -> Path:
    rootdir = _rootdir(options)
    if options.run_dir is not None:
        return Path(options.run_dir).absolute()
    default = str(Settings.model_fields["run_dir"].default)
    if (rootdir / default / "runs").is_dir():
        return rootdir / default  # runs can be looked at whatever the settings say
    return rootdir / load_settings(rootdir, {}).run_dir


def _view(options: argparse.Namespace) -> RunView:
    root = _root(options)
    # what is named is meant, even if the project has moved since
    foreign = options.run != "last" or options.run_dir is not None
    project = None if foreign else identify(_rootdir(options), root)
    return load_run(open_existing(root, options.run, project).path)


def _candidate(options: argparse.Namespace) -> tuple[CandidateId, RunView]:
    if options.candidate is None and _CANDIDATE.fullmatch(options.run):
        options.run, options.candidate = "last", options.run
    view = _view(options)
    return options.candidate or view.winner, view
