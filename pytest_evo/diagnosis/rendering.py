"""Evidence as Markdown, for people, agents and prompts.

Every text in it is hostile. Names stay within their cell or line, what somebody said is
quoted like a JSON string, and traces stand between fences that they cannot close.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from collections.abc import Sequence

from pytest_evo.diagnosis.memo import by_identity
from pytest_evo.evidence import CaseHistory
from pytest_evo.evidence import Facts
from pytest_evo.evidence import Trace
from pytest_evo.hostile import fenced
from pytest_evo.hostile import one_line
from pytest_evo.hostile import share
from pytest_evo.models import Attempt
from pytest_evo.models import CaseId
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Diagnosis
from pytest_evo.models import Effect
from pytest_evo.models import Kind
from pytest_evo.models import Node
from pytest_evo.wording import count

_SAID = 1_500
"""Characters of one thing that somebody said."""


# -- texts -------------------------------------------------------------------------


def cell(text: str | None) -> str:
    """Text that stays within one cell or line of Markdown."""
    plain = one_line(text or "", _SAID)
    return plain.replace("\\", "\\\\").replace("|", "\\|").replace("`", "'")


def said(text: str) -> str:
    """What somebody said, as one quoted line."""
    return json.dumps(one_line(text, _SAID), ensure_ascii=False)


def row(cells: Iterable[str]) -> str:
    """One row of a table."""
    return f"| {' | '.join(cells)} |"


def point(score: float | None) -> str:
    """A score, or a dash."""
    return "-" if score is None else f"{score:.4g}"


def signed(change: float | None) -> str:
    """A difference of scores, or a dash."""
    return "-" if change is None else f"{change:+.4g}"


def names(cases: Sequence[CaseId], most: int = 12) -> str:
    """Cases in one line."""
    shown = ", ".join(f"`{cell(case)}`" for case in cases[:most])
    more = len(cases) - most
    return f"{shown} and {more} more" if more > 0 else shown or "none"


# -- scores ------------------------------------------------------------------------


def scores_text(nodes: Sequence[Node], histories: Sequence[CaseHistory]) -> str:
    """Every case over the nodes, with its change against two of them."""
    heads = [cell(node.candidate.id) for node in nodes]
    head = ["case", *heads, "against parent", "against the node before"]
    lines = ["# Scores", "", "Nodes from left to right, the parent first.", ""]
    lines += [row(head), row(["---"] * len(head))]
    lines += [
        row(
            [
                cell(one.case),
                *map(point, one.scores),
                signed(one.against_parent),
                signed(one.against_before),
            ]
        )
        for one in histories
    ]
    means = (point(node.mean) for node in nodes)
    lines.append(row(["**weighted mean**", *means, "", ""]))
    return "\n".join(lines) + "\n"


# -- changelog ---------------------------------------------------------------------


def changelog_text(nodes: Sequence[Node]) -> str:
    """What each node changed, why it said so, and what was measured of it."""
    lines = [
        "# Changelog",
        "",
        "Newest last. What changed and its effect are measured; the reason is told.",
    ]
    for place, node in enumerate(nodes):
        role = "the parent" if place == 0 else f"from {node.candidate.base}"
        title = f"{cell(node.candidate.id)} ({cell(role)}, mean {point(node.mean)})"
        lines += ["", f"## {title}", ""]
        if not node.candidate.changelog:
            lines.append("No entries.")
        for entry in node.candidate.changelog:
            lines += entry_lines(entry)
    return "\n".join(lines) + "\n"


def entry_lines(entry: ChangelogEntry) -> list[str]:
    """One entry of a changelog."""
    lines = [f"- `{cell(entry.file)}` {entry.change}, because: {said(entry.reason)}"]
    lines += [f"  - seen: {said(seen)}" for seen in entry.evidence]
    if entry.expected:
        lines.append(f"  - expected: {said(entry.expected)}")
    if entry.effect is not None:
        lines.append(f"  - measured: {effect_text(entry.effect)}")
    return lines


def effect_text(effect: Effect) -> str:
    """What was measured of one entry, in one line."""
    if not effect.cases:
        return "no case of the batch reaches this file: no effect"
    reaching = count(len(effect.cases), "case")
    if effect.before is None or effect.after is None:
        return f"the file is reached by {reaching}, none of them with two scores"
    change = signed(effect.after - effect.before)
    text = (
        f"{change} against {cell(effect.base)} ({point(effect.before)} to "
        f"{point(effect.after)}) on {reaching} reaching the file"
    )
    if effect.unsure:
        text += f" ({len(effect.unsure)} of them maybe)"
    if effect.better:
        text += f"; better: {names(effect.better)}"
    if effect.worse:
        text += f"; worse: {names(effect.worse)}"
    return text


# -- facts -------------------------------------------------------------------------


def facts_text(facts: Facts) -> str:
    """Everything that was measured, not read into it."""
    lines = ["# Measured facts", "", "## Edited files", ""]
    for reach in facts.reach:
        rollouts = count(reach.rollouts, "rollout")
        told = f"read in {reach.reached} of {rollouts}"
        if reach.unsure:
            told += f", {reach.unsure} more could have read it unseen"
        if reach.never:
            told = f"NEVER read in {rollouts}: the edit had no effect"
        lines.append(f"- {cell(reach.node)} `{cell(reach.file)}`: {told}")
    if not facts.reach:
        lines.append("None yet.")
    for title, cases in (
        ("Cases lost since the parent", facts.lost),
        ("Cases won since the parent", facts.won),
        ("Cases that go up and down", facts.oscillating),
        ("Cases that no node has moved", facts.unmoved),
    ):
        listed = [f"- `{cell(case)}`" for case in cases] or ["None."]
        lines += ["", f"## {title}", "", *listed]
    lines += _more_facts(facts)
    return "\n".join(lines) + "\n"


def _more_facts(facts: Facts) -> list[str]:
    lines: list[str] = []
    if facts.bypassed:
        lines += [
            "",
            "## Edits that were read and moved nothing",
            "",
            "Such an edit is wrong, too vague, or of a kind that can be bypassed. From "
            "least to most reliable: prose, config, script, extension.",
            "",
        ]
        lines += [
            f"- {cell(one.node)} `{cell(one.file)}` ({one.kind}), read by "
            f"{names(one.cases)}; {_sink(one.kind)}"
            for one in facts.bypassed
        ]
    if facts.repeated:
        lines += ["", "## Edits that were there before", ""]
        lines += [
            f"- {cell(one.node)} `{cell(one.file)}`: the same content as in "
            f"{cell(one.earlier)}"
            + ("" if one.gain is None else f", which gained {signed(one.gain)}")
            for one in facts.repeated
        ]
    if facts.twins:
        lines += ["", "## Candidates with the same files", ""]
        lines += [f"- {cell(one)} and {cell(two)}" for one, two in facts.twins]
    return lines


# -- diagnoses and attempts --------------------------------------------------------


def diagnoses_text(named: Sequence[tuple[str, Diagnosis]]) -> str:
    """All diagnoses of the chain, oldest first."""
    lines = [
        "# Diagnoses",
        "",
        "Readings of a model, checked against what is measured.",
    ]
    for name, diagnosis in named:
        lines += ["", *diagnosis_lines(name, diagnosis)]
    return "\n".join(lines) + "\n"


def diagnosis_lines(name: str, diagnosis: Diagnosis) -> list[str]:
    """One diagnosis."""
    kind = f", {cell(diagnosis.kind)}" if diagnosis.kind else ""
    weak = ", WEAK" if diagnosis.weak else ""
    lines = [
        f"## {cell(name)} (confidence {diagnosis.confidence:.2f}{kind}{weak})",
        "",
        f"- cases: {names(diagnosis.cases)}",
    ]
    for title, text in (
        ("observed", diagnosis.observation),
        ("cause", diagnosis.cause),
        ("file", diagnosis.file),
        ("change", diagnosis.change),
        ("objection", diagnosis.objection),
    ):
        if text:
            lines.append(f"- {title}: {said(text)}")
    lines += [f"- quote: {said(quote)}" for quote in diagnosis.quotes]
    lines += [
        f"- earlier {cell(earlier)}: class {cell(letter)}"
        for earlier, letter in diagnosis.classes.items()
    ]
    lines += [
        f"- {cell(method).replace('_', ' ')}: {said(text)}"
        for method, text in diagnosis.methods.items()
    ]
    lines += [f"- doubt: {said(doubt)}" for doubt in diagnosis.doubts]
    return lines


def attempts_text(attempts: Sequence[Attempt]) -> str:
    """What closed iterations tried on cases of this batch."""
    lines = [
        "# Earlier attempts on these cases",
        "",
        "Oldest first. A direction without gain in several of them is exhausted.",
    ]
    lines += map(_attempt_text, attempts)
    return "\n".join(lines) + "\n"


@by_identity
def _attempt_text(attempt: Attempt) -> str:
    end = "accepted" if attempt.accepted else "rejected"
    title = f"{cell(attempt.candidate)} (from {cell(attempt.parent)}, {end}"
    lines = ["", f"## {title}, gain {signed(attempt.gain)})", ""]
    for entry in attempt.changelog:
        lines += entry_lines(entry)
    return "\n".join(lines)


def _sink(kind: Kind) -> str:
    """What to do with an edit of this kind that was bypassed."""
    stronger = list(Kind)[list(Kind).index(kind) + 1 :]
    if not stronger:
        return "no kind is more reliable, so what it does is wrong"
    return f"if it is right, sink it to {' or '.join(stronger)}"


# -- traces ------------------------------------------------------------------------


def trace_text(trace: Trace, budget: int | None = None) -> str:
    """One rollout with its texts between fences.

    Args:
        trace: is cut already; ``budget`` cuts further.
        budget: characters of all its texts together.
    """
    score = "no score" if trace.score is None else f"score {point(trace.score)}"
    lines = [
        f"### `{cell(trace.case)}` on {cell(trace.node)}, repeat {trace.repeat}: "
        f"{trace.outcome}, {score}",
        "",
        f"Artifact files it read: {_files(trace)}.",
    ]
    if trace.calls:
        lines.append(f"Calls of models: {trace.calls} ({trace.tokens} tokens).")
    if trace.metrics:
        told = ", ".join(f"{cell(name)} {value:.4g}" for name, value in trace.metrics)
        lines.append(f"Metrics: {told}.")
    if trace.violation:
        lines.append(f"Violation: {said(trace.violation)}.")
    parts = [
        ("failure", trace.failure),
        ("steps", trace.steps),
        ("calls of models", trace.model_calls),
        *((f"output: {title}", text) for title, text in trace.output),
    ]
    told_parts = [(title, text) for title, text in parts if text]
    sizes = [len(text) for _, text in told_parts]
    rooms = sizes if budget is None else share(sizes, budget)
    for (title, text), room in zip(told_parts, rooms, strict=True):
        lines += ["", f"{cell(title)}:", "", fenced(text, room)]
    return "\n".join(lines) + "\n"


def _files(trace: Trace) -> str:
    listed = names(trace.files, 30) if trace.files else "none seen"
    return listed if trace.certain else f"{listed}; others could have been read unseen"
