"""Whether what an agent did is an answer.

Refused are: no change, an error that the agent itself told, a time limit, a used-up
budget, a change of the project outside the workspace, and an end in the middle: by a
signal, or with a status that is not 0 while it has neither said that it is done nor
written a changelog.
"""

from __future__ import annotations

from pathlib import Path

from pytest_evo.chat import AnswerRefused
from pytest_evo.errors import ProposalRefused
from pytest_evo.hostile import cut
from pytest_evo.hostile import one_line
from pytest_evo.models import Json
from pytest_evo.models import Proposal
from pytest_evo.proposers.agent.changelog import read_changelog
from pytest_evo.proposers.agent.session import Work

_MOST_FEEDBACK = 2_000
_MOST_NAMES = 10


def judge(name: str, work: Work, workspace: Path) -> Proposal:
    """The answer of an agent.

    Raises:
        AnswerRefused: there is none, with why and with what was spent.
    """
    problem = _problem(work)
    if problem:
        raise _refused(name, problem, work)
    try:
        entries = read_changelog(workspace)
    except ProposalRefused as refusal:
        raise AnswerRefused(str(refusal), work.usage) from None
    if entries is None and _broke_off(work):
        raise _refused(name, "it broke off, without a changelog", work)
    if work.changed is not None and not work.changed:
        raise _refused(name, "nothing changed in artifact/", work)
    return Proposal(entries or (), work.usage, {"agent": facts(name, work)})


def facts(name: str, work: Work) -> dict[str, Json]:
    """What is kept of an agent's work in the journal: nothing that depends on time."""
    ended = work.ended
    told: dict[str, Json] = {
        "name": name,
        "ended": ended.how,
        "status": ended.status,
        "left": ended.left,
        "calls": len(work.calls),
        "guessed": work.guessed,
        "said": work.hearing.said,
    }
    if work.changed is not None:
        told["changed"] = [f"{kind} {path}" for path, kind in work.changed]
    return told


def how_it_ended(work: Work) -> str:
    """The end of an agent in words."""
    ended = work.ended
    after = f"after {ended.seconds:.1f} s"
    if ended.how == "timeout":
        return f"ended {after} by its time limit"
    if ended.how == "stopped":
        return f"ended {after} because {work.spent or 'the run ends'}"
    if ended.how in ("unborn", "lost"):
        return f"failed {after}: {ended.error}"
    status = ended.status or 0
    if ended.by_signal:
        return f"killed {after} by signal {-status if status < 0 else status - 128}"
    return f"ended {after} with status {status}"


def _problem(work: Work) -> str:
    """Why the work is no answer, whatever the files say; empty if it may be one."""
    ended = work.ended
    if ended.how == "timeout":
        return "it did not end in time (setting: agent_options.timeout)"
    if work.strayed:
        return f"while it ran, files of the project changed: {stray_names(work)}"
    if work.spent is not None:
        return work.spent
    if ended.how != "itself":
        return ended.error or "it was ended"
    if work.hearing.trouble is not None:
        return f"it met an error: {work.hearing.trouble}"
    if ended.by_signal and not work.hearing.finished:
        return "it was killed"
    return ""


def stray_names(work: Work) -> str:
    """The files of the project that changed, as far as there is room."""
    shown = ", ".join(work.strayed[:_MOST_NAMES])
    more = len(work.strayed) - _MOST_NAMES
    return one_line(f"{shown} and {more} more" if more > 0 else shown)


def _broke_off(work: Work) -> bool:
    return bool(work.ended.status) and not work.hearing.finished


def _refused(name: str, problem: str, work: Work) -> AnswerRefused:
    lines = [f"The agent {name} gave no answer: {problem}. It {how_it_ended(work)}."]
    if work.hearing.said:
        lines.append(f"It said: {work.hearing.said}")
    if work.hearing.last_lines:
        lines += ["Its last lines:", *work.hearing.last_lines]
    return AnswerRefused(cut("\n".join(lines), _MOST_FEEDBACK), work.usage)
