"""Edits that were read and moved nothing, and to which kind of file the next one went.

From least to most reliable the kinds are prose, config, script, extension. An edit that
is bypassed should sink: be said again in a kind that is harder to overlook.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_evo.events import CandidateRecorded
from pytest_evo.models import CandidateId
from pytest_evo.models import CaseId
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import EPSILON
from pytest_evo.models import Kind
from pytest_evo.models import Outcome
from pytest_evo.reports.console import Line
from pytest_evo.reports.model import last_attempts
from pytest_evo.reports.model import RunReport
from pytest_evo.reports.model import scores
from pytest_evo.reports.text import cap
from pytest_evo.reports.text import code
from pytest_evo.reports.text import visible
from pytest_evo.wording import count

SHOWN = 10
BYPASSED = "I"
"""The class of a diagnosis whose edit was followed by a mechanism too weak."""
_ORDER = tuple(Kind)


@dataclass(frozen=True, slots=True)
class Sinking:
    """One bypassed edit.

    ``cases`` read the file and failed as before, where the edit moved no case at all;
    ``readings`` are diagnoses that a later one put into class I. ``next`` is the
    candidate that was made from this one within its chain, ``moved`` the kinds of the
    files that it edited, least reliable first.
    """

    candidate: CandidateId
    file: str
    kind: Kind
    cases: tuple[CaseId, ...] = ()
    readings: tuple[str, ...] = ()
    next: CandidateId | None = None
    moved: tuple[Kind, ...] = ()

    @property
    def sunk(self) -> bool:
        """Whether the next edit went to a more reliable kind."""
        return any(_ORDER.index(kind) > _ORDER.index(self.kind) for kind in self.moved)

    @property
    def where(self) -> str:
        """What came after it, in words without any name."""
        if self.next is None:
            return "no edit of its chain came after it"
        kinds = ", ".join(self.moved)
        if self.sunk:
            return f"the next edit sank to {kinds}"
        if self.kind in self.moved:
            return f"the next edit stayed with {kinds}"
        return (
            f"the next edit rose to {kinds}" if kinds else "the next edit has no file"
        )


def sinkings(run: RunReport) -> list[Sinking]:
    """All bypassed edits, in the order of candidates."""
    readings = _readings(run)
    found = []
    for record in run.candidates:
        after = _after(run, record)
        for entry in record.changelog:
            cases = _unmoved(run, record, entry)
            read = readings.get((record.id, entry.file), [])
            if cases or read:
                moved = {run.kind(one.file) for one in after.changelog} if after else ()
                found.append(
                    Sinking(
                        record.id,
                        entry.file,
                        run.kind(entry.file),
                        cases,
                        tuple(dict.fromkeys(read)),
                        after.id if after else None,
                        tuple(sorted(moved, key=_ORDER.index)),
                    )
                )
    return found


def _after(run: RunReport, record: CandidateRecorded) -> CandidateRecorded | None:
    """The candidate of the same chain that was made from this one's files."""
    return next(
        (
            one
            for one in run.candidates
            if one.base == record.id
            and one.iteration == record.iteration
            and one.step > record.step
        ),
        None,
    )


def _unmoved(
    run: RunReport, record: CandidateRecorded, entry: ChangelogEntry
) -> tuple[CaseId, ...]:
    """Cases that certainly read the file and failed as before; none if any moved."""
    effect = entry.effect
    if effect is None or effect.moved or entry.change == "deleted":
        return ()
    before, after = _failing(run, effect.base), _failing(run, record.id)
    return tuple(
        case
        for case in effect.cases
        if case not in effect.unsure
        and case in before
        and case in after
        and abs(after[case] - before[case]) <= EPSILON
    )


def _failing(run: RunReport, candidate: CandidateId) -> dict[CaseId, float]:
    """Scores of the cases that never passed; partial credit alone is no failure."""
    ran, score = last_attempts(run, candidate), scores(run, candidate)
    return {
        case: score[case]
        for case, rollouts in ran.items()
        if score.get(case, 1.0) < 1 - EPSILON
        and not any(rollout.outcome is Outcome.PASSED for rollout in rollouts)
    }


def _readings(run: RunReport) -> dict[tuple[CandidateId, str], list[str]]:
    """Diagnoses of class I by the edit that had followed them."""
    found: dict[tuple[CandidateId, str], list[str]] = {}
    for node, diagnoses in run.diagnoses.items():
        for diagnosis in diagnoses:
            for name, letter in diagnosis.classes.items():
                edit = _edit(run, node, name) if letter == BYPASSED else None
                if edit is not None:
                    found.setdefault(edit, []).append(name)
    return found


def _edit(
    run: RunReport, node: CandidateId, name: str
) -> tuple[CandidateId, str] | None:
    """The last edit, up to a node, of the file that an earlier diagnosis had named."""
    made_at, _, number = name.rpartition("/")
    before: Sequence[object] = run.diagnoses.get(made_at, ())
    if not number.isdecimal() or not 0 < int(number) <= len(before):
        return None
    file = run.diagnoses[made_at][int(number) - 1].file
    for record in _line(run, node, made_at):
        if any(entry.file == file for entry in record.changelog):
            return record.id, file
    return None


def _line(
    run: RunReport, node: CandidateId, above: CandidateId
) -> Iterator[CandidateRecorded]:
    """Candidates from a node up to the one that was diagnosed, without that one."""
    seen = {above}
    record = run.candidate(node)
    while record is not None and record.id not in seen:
        seen.add(record.id)
        yield record
        record = run.candidate(record.base) if record.base else None


# -- words -------------------------------------------------------------------------


def tier_lines(run: RunReport, *, ascii_only: bool = False) -> list[Line]:
    """Bypassed edits for a terminal; nothing where there are none."""
    found = sinkings(run)
    if not found:
        return []
    lines = [Line(f"{count(len(found), 'edit')} bypassed (class I):", "bold")]
    for one in found[:SHOWN]:
        file = visible(cap(one.file, 200), ascii_only=ascii_only)
        then = f"{visible(one.next)}: {one.where}" if one.next else one.where
        row = f"  {visible(one.candidate)} {file} ({one.kind}), {_why(one)}; {then}"
        lines.append(Line(row))
    if len(found) > SHOWN:
        lines.append(Line(f"  and {len(found) - SHOWN} more", "dim"))
    return lines


def tier_section(run: RunReport) -> str:
    """Bypassed edits in Markdown; empty where there are none."""
    found = sinkings(run)
    if not found:
        return ""
    lines = [
        "### Bypassed edits",
        "",
        "As measured, or as a diagnosis that is named says (class I), these edits were "
        "read and the cases failed as before. Kinds of files, from least to most "
        "reliable: prose, config, script, extension.",
        "",
    ]
    for one in found[:SHOWN]:
        then = f"{code(one.next, 40)}: {one.where}" if one.next else one.where
        lines.append(
            f"- {code(one.candidate, 40)} {code(one.file, 200)} ({one.kind}), "
            f"{_why(one)}; {then}"
        )
    if len(found) > SHOWN:
        lines.append(f"- and {len(found) - SHOWN} more")
    return "\n".join(lines)


def _why(one: Sinking) -> str:
    parts = []
    if one.cases:
        parts.append(f"read by {count(len(one.cases), 'failing case')}, moved none")
    if one.readings:
        parts.append(f"class I of {', '.join(map(visible, one.readings[:3]))}")
    return ", ".join(parts)
