"""A scripted agent: it does with a skill what an agent with a model would do.

It stands for a model so that the example needs none. It is a fixed program that reads
the skill's files anew for every task and has the weaknesses that make skills
necessary: it takes a skill only if the description fits the task, it skips what it is
not told, and it adds up badly.
"""

from __future__ import annotations

import io
import re
import runpy
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path

Trace = Callable[..., None]

_WORD = re.compile(r"[a-z]{5,}")
_SCRIPT = re.compile(r"\bRun `(scripts/\w+\.py)`")
_REPLY = re.compile(r"Answer with `(.*TOTAL.*)`")
_AMOUNT = re.compile(r"(-?)(\d[\d.,]*)\s*$")
_FAILURES = (ArithmeticError, ImportError, LookupError, TypeError, ValueError)


def answer(skill: Path, task: str, attachment: str, trace: Trace) -> str:
    """What the agent replies to a task with an attachment.

    Args:
        skill: the directory of the one skill that it has.
        task: what it is asked for.
        attachment: the text that the task is about.
        trace: hears of every step.
    """
    head = (skill / "SKILL.md").read_text(encoding="utf-8")
    shared = sorted(_words(_description(head)) & _words(task))
    trace("choose a skill", description=_description(head), words_in_common=shared)
    if not shared:
        return "I looked at it. What would you like me to do with it?"
    steps = (skill / "workflow.md").read_text(encoding="utf-8")
    trace("read workflow.md", steps=re.findall(r"^\d+\. .*$", steps, re.MULTILINE))
    total = _total(skill, steps, attachment, trace)
    form = _REPLY.search(steps)
    reply = form[1].replace("TOTAL", total) if form else f"The total is {total}."
    trace("reply", reply=reply)
    return reply


def _total(skill: Path, steps: str, attachment: str, trace: Trace) -> str:
    named = _SCRIPT.search(steps)
    if named is None:
        total = _in_the_head(attachment)
        trace("add up in the head", total=total)
        return total
    printed = _run(skill / named[1], attachment)
    trace("run", script=named[1], printed=printed)
    return printed


def _in_the_head(attachment: str) -> str:
    """As models add up long columns: to whole units, and never exactly."""
    total = 0
    for line in attachment.splitlines():
        found = _AMOUNT.search(line)
        if found:
            digits = re.split(r"[.,](?=\d\d$)", found[2])[0]
            total += int(f"{found[1]}{re.sub('[.,]', '', digits)}")
    return f"about {total},00"


def _run(script: Path, attachment: str) -> str:
    """Run a script of the skill; what it prints, or how it failed."""
    printed = io.StringIO()
    stdin, sys.stdin = sys.stdin, io.StringIO(attachment)
    try:
        with redirect_stdout(printed):
            runpy.run_path(str(script), run_name="__main__")
    except (OSError, SyntaxError, *_FAILURES) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        sys.stdin = stdin
    return printed.getvalue().strip()


def _description(head: str) -> str:
    found = re.search(r"^description: (.*)$", head, re.MULTILINE)
    return found[1] if found else ""


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.lower())) - {"about", "please", "there", "which"}
