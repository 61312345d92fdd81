"""Lines at the end of a run: pure functions, nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence

from pytest_evo.models import CaseId
from pytest_evo.models import Claim
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.reports.console import Line
from pytest_evo.reports.costs import COST_HEAD
from pytest_evo.reports.costs import cost_rows
from pytest_evo.reports.model import audit_warnings
from pytest_evo.reports.model import RunReport
from pytest_evo.reports.model import scores
from pytest_evo.reports.model import Standing
from pytest_evo.reports.model import standings
from pytest_evo.reports.text import cap
from pytest_evo.reports.text import visible
from pytest_evo.wording import count

SHOWN_CANDIDATES = 8
SHOWN_CASES = 10
SHOWN_DIFF_LINES = 60
NO_BASELINE = "the baseline is not complete"


def result_lines(
    run: RunReport,
    run_argument: str = "last",
    *,
    look: str = "",
    ascii_only: bool = False,
) -> list[Line]:
    """Everything a person sees at the end of a run."""
    blocks = [
        table_lines(run),
        claim_lines(run),
        worse_lines(run, ascii_only=ascii_only),
        warning_lines(run, ascii_only=ascii_only),
        diff_lines(run.diff, ascii_only=ascii_only),
        cost_lines(run),
        stop_lines(run, ascii_only=ascii_only),
        next_lines(run, run_argument, look=look),
    ]
    lines: list[Line] = []
    for block in blocks:
        if block:
            lines += [Line(""), *block] if lines else block
    return lines


def table_lines(run: RunReport, limit: int = SHOWN_CANDIDATES) -> list[Line]:
    """The best candidates, aligned; the start is always among them."""
    found = standings(run)
    if not found:
        return []
    shown = found[:limit]
    if not any(one.record.id == START for one in shown):
        shown = shown[: limit - 1] + [one for one in found if one.record.id == START]
    head = ["candidate", "parent", "status", "train", "val", "gain", "test"]
    head += ["rollouts", "usd"]
    rows = [_row(run, one) for one in shown]
    if all(one.usd == 0 for one in shown):
        head.pop()
        rows = [row[:-1] for row in rows]
    widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
    lines = [Line(_aligned(head, widths), "bold")]
    for one, row in zip(shown, rows, strict=True):
        style = "green" if one.record.id == run.winner != START else ""
        lines.append(Line(_aligned(row, widths), style))
    if len(found) > len(shown):
        lines.append(Line(f"and {len(found) - len(shown)} more", "dim"))
    return lines


def _row(run: RunReport, one: Standing) -> list[str]:
    record = one.record
    star = " *" if record.id == run.winner else ""
    return [
        visible(record.id) + star,
        visible(record.parent or "-"),
        record.status.value,
        _score(one.train),
        _score(one.val),
        "-" if record.id == START else _signed(one.val_gain),
        _score(one.test),
        f"{one.rollouts:,}",
        "?" if one.usd is None else f"{one.usd:.4f}" if one.usd else "-",
    ]


def _aligned(row: Sequence[str], widths: Sequence[int], left: int = 3) -> str:
    """Words to the left, numbers to the right."""
    cells = [
        text.ljust(width) if n < left else text.rjust(width)
        for n, (text, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(cells).rstrip()


def claim_text(claim: Claim) -> str:
    """The claim in one line of plain words."""
    where = f"{claim.split.value}, {count(claim.cases, 'case')}"
    label = ", IN-SAMPLE, biased upward by selection" if claim.in_sample else ""
    if claim.unmeasured:
        left_out = count(claim.unmeasured, "case")
        label += f", PARTIAL: --budget-{claim.budget} did not pay for {left_out}"
    return (
        f"start {claim.start:.3f} -> winner {claim.winner:.3f} on {where}: "
        f"{claim.difference:+.3f}, 95 % interval "
        f"[{claim.low:+.3f}, {claim.high:+.3f}], paired{label}"
    )


def is_gain(claim: Claim) -> bool:
    """Whether the winner is better by more than noise, as far as can be told.

    In-sample the interval says nothing, so the difference alone counts.
    """
    return claim.difference > 0 if claim.in_sample else claim.low > 0


def short_result(run: RunReport) -> str:
    """What became of a run, for a list of runs."""
    if not run.has_start:
        return f"{NO_BASELINE}; go on: pytest --evolve --evo-resume={run.id}"
    if run.winner == START:
        return f"{run.winner}: no gain" + ("" if run.complete else " so far")
    if run.final is None:
        return f"{run.winner}: not measured"
    return f"{run.winner}: {short_claim(run.final.claim)}"


def short_claim(claim: Claim) -> str:
    """The claim for a list of runs."""
    label = ", in-sample" if claim.in_sample else ""
    return (
        f"{claim.start:.3f} -> {claim.winner:.3f} on {claim.split.value} "
        f"({claim.difference:+.3f}{label})"
    )


def claim_lines(run: RunReport) -> list[Line]:
    """Start against winner, or why there is no such figure."""
    if not run.has_start:
        return [Line(f"{NO_BASELINE}: nothing was compared yet", "yellow")]
    if run.winner == START:
        return [Line("no better candidate was found: the start stays", "yellow")]
    if run.final is None:
        return [Line("the winner was not measured: the run did not finish", "yellow")]
    claim = run.final.claim
    proven = claim.low > 0 and not claim.in_sample
    return [Line(claim_text(claim), "green" if proven else "yellow")]


def worse_lines(run: RunReport, *, ascii_only: bool = False) -> list[Line]:
    """The cases on which the winner is worse than the start."""
    worse = run.final.claim.worse if run.final is not None else ()
    if not worse:
        return []
    lines = [Line(f"worse on {count(len(worse), 'case')}:", "bold")]
    for case in worse[:SHOWN_CASES]:
        name = visible(cap(case, 200), ascii_only=ascii_only)
        lines.append(Line(f"  {name}{_change(run, case)}", "red"))
    if len(worse) > SHOWN_CASES:
        lines.append(Line(f"  and {len(worse) - SHOWN_CASES} more", "dim"))
    return lines


def _change(run: RunReport, case: CaseId) -> str:
    text = change_text(run, case)
    return f": {text}" if text else ""


def change_text(run: RunReport, case: CaseId) -> str:
    """A case's score with the start and with the winner; "" where one is unknown."""
    start = scores(run, START).get(case)
    winner = scores(run, run.winner).get(case)
    if start is None or winner is None:
        return ""
    return f"{start:.3f} -> {winner:.3f}"


def warning_lines(run: RunReport, *, ascii_only: bool = False) -> list[Line]:
    """Audit metrics that fell while the score rose."""
    return [
        Line(
            f"warning: audit metric {visible(name, ascii_only=ascii_only)} fell from "
            f"{start:.3f} to {winner:.3f} while the score rose",
            "yellow",
        )
        for name, start, winner in audit_warnings(run)
    ]


def diff_lines(
    diff: str, *, limit: int | None = SHOWN_DIFF_LINES, ascii_only: bool = False
) -> list[Line]:
    """A unified diff, line by line; the caller decides whether styles are shown."""
    texts = diff.split("\n")
    if texts and not texts[-1]:
        texts.pop()
    shown = texts if limit is None else texts[:limit]
    lines = [
        Line(visible(cap(text, 500), ascii_only=ascii_only), _diff_style(text))
        for text in shown
    ]
    if len(texts) > len(shown):
        left = len(texts) - len(shown)
        lines.append(Line(f"... {count(left, 'more line')}: pytest-evo diff", "dim"))
    return lines


def _diff_style(text: str) -> str:
    if text.startswith(("+++", "---", "diff ")):
        return "bold"
    return {"+": "green", "-": "red", "@": "cyan"}.get(text[:1], "")


def cost_lines(run: RunReport) -> list[Line]:
    """Rollouts by purpose and model spend by role."""
    lines = []
    if run.spent:
        total = sum(run.spent.values())
        by = ", ".join(f"{name} {number:,}" for name, number in run.spent.items())
        lines.append(Line(f"rollouts: {total:,} ({visible(by)})"))
    rows = cost_rows(run)
    if rows:
        table = [["model calls by", *COST_HEAD[1:]], *rows]
        widths = [max(len(row[n]) for row in table) for n in range(len(COST_HEAD))]
        head, *others = [visible(_aligned(row, widths, left=1)) for row in table]
        lines += [Line(head, "bold"), *map(Line, others)]
    return lines


def stop_lines(run: RunReport, *, ascii_only: bool = False) -> list[Line]:
    """Why the run ended."""
    if run.stop is None:
        return [Line("the run has not ended, or it was killed", "yellow")]
    text = f"ended after {count(run.stop.iterations, 'iteration')}: {run.stop.reason}"
    if run.stop.detail:
        text += f" ({run.stop.detail})"
    return [Line(visible(text, ascii_only=ascii_only))]


def next_lines(
    run: RunReport,
    run_argument: str = "last",
    *,
    look: str = "",
    shown: bool = False,
) -> list[Line]:
    """What to type now."""
    commands = next_commands(run, run_argument, look=look, shown=shown)
    return [Line(f"next: {command}", "bold") for command in commands]


def next_commands(
    run: RunReport,
    run_argument: str = "last",
    *,
    look: str = "",
    shown: bool = False,
) -> list[str]:
    """The commands that fit the state of the run, most useful first.

    Args:
        run: the run.
        run_argument: how the run is named in the commands.
        look: what to type in place of applying the winner, where it is in the working
            tree already or cannot be written there.
        shown: all there is to show is being shown right now.
    """
    commands = []
    if run.winner != START:
        commands.append(look or f"pytest-evo apply {run_argument}")
    if not run.complete:
        more = _more_budget(run)
        commands.append(f"pytest --evolve --evo-resume={run_argument}{more}")
    elif run.final is not None and run.final.claim.unmeasured:
        commands.append(f"pytest --evolve --budget-{run.final.claim.budget}=MORE")
    if not shown:
        commands.append(f"pytest-evo show {run_argument}")
    return commands


def _more_budget(run: RunReport) -> str:
    """What a resume needs where a budget is in the way."""
    before, found, axis = (run.stop.reason if run.stop else "").partition("budget: ")
    return f" --budget-{axis.replace(' ', '-')}=MORE" if found and not before else ""


def lineage(run: RunReport, limit: int | None = None) -> Iterator[str]:
    """One line per iteration: parent, child or nothing, depth, rollouts, reason.

    With a limit, the last ones.
    """
    steps = {c.id: c for c in run.candidates if c.status is not Status.START}
    for closed in run.iterations[-limit:] if limit else run.iterations:
        chain = [c.id for c in steps.values() if c.iteration == closed.iteration]
        result = f"accepted {closed.child}" if closed.accepted else "nothing accepted"
        tried = " > ".join([closed.parent, *chain])
        yield visible(
            f"{closed.iteration:>4}  {tried}: {result}; "
            f"{count(closed.rollouts, 'rollout')}; {closed.reason}"
        )


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.3f}"
