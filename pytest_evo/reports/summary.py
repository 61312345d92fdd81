"""The run as a ready pull-request text in Markdown.

Names, reasons and files come from candidates and models, so all of them are shown as
code that cannot end itself, mention anybody or start a heading. The whole text fits the
65,536 characters that GitHub allows a pull request.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_evo.models import ChangelogEntry
from pytest_evo.models import START
from pytest_evo.reports.costs import COST_HEAD
from pytest_evo.reports.costs import cost_rows
from pytest_evo.reports.ending import change_text
from pytest_evo.reports.ending import claim_text
from pytest_evo.reports.ending import next_commands
from pytest_evo.reports.model import audit_warnings
from pytest_evo.reports.model import RunReport
from pytest_evo.reports.model import Standing
from pytest_evo.reports.model import standings
from pytest_evo.reports.text import code
from pytest_evo.reports.text import fence
from pytest_evo.reports.text import plain
from pytest_evo.reports.tiers import tier_section
from pytest_evo.wording import count

MAX_DIFF = 24_000
SHOWN_CANDIDATES = 10
SHOWN_CASES = 20
SHOWN_CHANGES = 20
NAMED = 5
"""Cases that a warning names."""


def summary_markdown(run: RunReport, run_argument: str = "last") -> str:
    """The claim, the candidates, what got worse, the diff, the cost, what to do."""
    sections = [
        _title(run),
        _claim(run),
        _warnings(run),
        _changes(run),
        tier_section(run),
        _table(run),
        _worse(run),
        _diff(run),
        _cost(run),
        _end(run, run_argument),
    ]
    return "\n\n".join(section for section in sections if section) + "\n"


def _title(run: RunReport) -> str:
    if not run.has_start:
        title = f"## pytest-evo: the baseline of {code(run.artifact)} is not complete"
    elif run.winner == START:
        title = f"## pytest-evo: nothing better than {code(run.artifact)} was found"
    else:
        title = f"## pytest-evo: a better {code(run.artifact)}"
    objective = f"\n\n{plain(run.objective)}" if run.objective.strip() else ""
    return title + objective


def _claim(run: RunReport) -> str:
    if not run.has_start:
        return "Nothing was compared yet: the start is not fully measured."
    if run.winner == START:
        return "No candidate beat the start; the artifact stays as it is."
    if run.final is None:
        return (
            f"The best candidate so far is {code(run.winner)}. It was not measured "
            "against the start, because the run did not finish."
        )
    claim = run.final.claim
    lines = [f"**{claim_text(claim)}.**"]
    if claim.in_sample:
        lines.append(
            "_In-sample:_ the winner was selected on these cases, so expect less "
            'on new ones. Mark cases with `split="test"` for a fair figure.'
        )
    elif claim.low <= 0 <= claim.high:
        lines.append(
            "The interval includes zero: on these cases the difference could be chance."
        )
    lines.append(
        f"Better on {len(claim.better)}, worse on {len(claim.worse)}, the same on "
        f"{max(0, claim.cases - len(claim.better) - len(claim.worse))} of "
        f"{count(claim.cases, 'case')}."
    )
    return "\n\n".join(lines)


def _warnings(run: RunReport) -> str:
    lines = [
        f"> **Warning:** the audit metric {code(name)} fell from {start:.3f} to "
        f"{winner:.3f} while the score rose. Read the diff before you merge."
        for name, start, winner in audit_warnings(run)
    ]
    if run.noise is not None and run.noise.maybe_cached:
        lines.append(
            f"> **Warning:** {count(len(run.noise.maybe_cached), 'case')} with network "
            "access never varied. If answers are cached, the score is of the cache."
        )
    if run.left_out:
        some = ", ".join(code(case, 80) for case, _ in run.left_out[:NAMED])
        more = ", ..." if len(run.left_out) > NAMED else ""
        lines.append(
            f"> **Warning:** {count(len(run.left_out), 'case')} neither passed nor "
            f"failed on the start; no figure here counts them: {some}{more}."
        )
    return "\n>\n".join(lines)


def _changes(run: RunReport) -> str:
    """Why each file changed, along the winner's line of descent, newest last."""
    entries: list[ChangelogEntry] = []
    seen = {START}
    record = run.candidate(run.winner)
    while record is not None and record.id not in seen:
        seen.add(record.id)
        entries = [*record.changelog, *entries]
        record = run.candidate(record.base or record.parent or START)
    if not entries:
        return ""
    lines = ["### What changed", ""]
    for entry in entries[-SHOWN_CHANGES:]:
        what = f" ({plain(entry.change, 40)})" if entry.change else ""
        lines.append(f"- {code(entry.file)}{what}: {plain(entry.reason)}")
    if len(entries) > SHOWN_CHANGES:
        lines.append(f"- and {count(len(entries) - SHOWN_CHANGES, 'earlier change')}")
    return "\n".join(lines)


def _table(run: RunReport) -> str:
    found = standings(run)
    if not found:
        return ""
    head = "| candidate | parent | status | train | val | gain | test | rollouts |"
    rule = "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"
    rows = [_row(run, one) for one in found[:SHOWN_CANDIDATES]]
    lines = ["### Candidates", "", head, rule, *rows]
    if len(found) > SHOWN_CANDIDATES:
        lines += ["", f"In the run directory: {len(found) - SHOWN_CANDIDATES} more."]
    return "\n".join(lines)


def _row(run: RunReport, one: Standing) -> str:
    record = one.record
    name = code(record.id, 40, cell=True)
    gain = None if record.id == START else one.val_gain
    cells = [
        f"**{name}**" if record.id == run.winner else name,
        code(record.parent, 40, cell=True) if record.parent else "",
        record.status.value,
        _score(one.train),
        _score(one.val),
        "" if gain is None else f"{gain:+.3f}",
        _score(one.test),
        f"{one.rollouts:,}",
    ]
    return "| " + " | ".join(cells) + " |"


def _worse(run: RunReport) -> str:
    worse = run.final.claim.worse if run.final is not None else ()
    if not worse or run.winner == START:
        return ""
    lines = ["### What got worse", ""]
    for case in worse[:SHOWN_CASES]:
        text = change_text(run, case)
        lines.append(f"- {code(case, 200)}{f': {text}' if text else ''}")
    if len(worse) > SHOWN_CASES:
        lines.append(f"- and {len(worse) - SHOWN_CASES} more")
    return "\n".join(lines)


def _diff(run: RunReport) -> str:
    if not run.diff.strip():
        return ""
    return "### Diff against the start\n\n" + fence(run.diff, "diff", MAX_DIFF)


def _cost(run: RunReport) -> str:
    lines = ["### Cost", ""]
    total = sum(run.spent.values())
    by = ", ".join(f"{plain(name, 40)} {n:,}" for name, n in run.spent.items())
    lines.append(count(total, "rollout") + (f": {by}." if by else "."))
    rows = cost_rows(run)
    if rows:
        rule = ["---", *["---:"] * (len(COST_HEAD) - 1)]
        table = [COST_HEAD, rule, *([plain(row[0], 40), *row[1:]] for row in rows)]
        lines += ["", *(f"| {' | '.join(cells)} |" for cells in table)]
    return "\n".join(lines)


def _end(run: RunReport, run_argument: str) -> str:
    if run.stop is None:
        why = "The run has not ended, or it was killed."
    else:
        detail = f" ({plain(run.stop.detail)})" if run.stop.detail else ""
        why = (
            f"Ended after {count(run.stop.iterations, 'iteration')}: "
            f"{plain(run.stop.reason)}{detail}."
        )
    facts = f"Run {code(run.id)}, seed {run.seed}."
    return "\n\n".join(
        [
            "### Why it stopped, and what to do next",
            f"{why} {facts}",
            _steps(run, run_argument),
        ]
    )


def _steps(run: RunReport, run_argument: str) -> str:
    steps: Sequence[str] = next_commands(run, run_argument)
    return fence("\n".join(steps), "sh", 2_000)


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
