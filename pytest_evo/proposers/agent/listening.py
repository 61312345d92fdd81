"""What an agent says of itself while it works: usage, trouble, and its last words.

Agents are told apart by the kinds of their events, which no two share. What they say
is hostile text: it decides only whether an answer is refused, and is cut.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections import deque
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from typing import TypeAlias

from pytest_evo.hostile import one_line
from pytest_evo.models import NO_USAGE
from pytest_evo.models import Usage

Event: TypeAlias = Mapping[str, Any]
_LAST_LINES = 12
_LONGEST = 400
_LARGEST_FILE = 32_000_000


class Hearing:
    """Collects what one agent says.

    ``trouble`` is the error that was not followed by success, ``finished`` whether it
    said that it is done, ``said`` its last message, and ``usage`` what it counted
    itself, None where it counts nothing.
    """

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.trouble: str | None = None
        self.finished = False
        self.said = ""
        self._last: deque[str] = deque(maxlen=_LAST_LINES)

    @property
    def last_lines(self) -> tuple[str, ...]:
        """The last lines that were meant for people."""
        shown = (one_line(line, _LONGEST) for line in self._last)
        return tuple(line for line in shown if line)

    def hear(self, line: str, aside: bool = False) -> None:
        """Take one line of output; ``aside``: it came on stderr."""
        event = None if aside else _event(line)
        if event is not None:
            handle = _EVENTS.get(str(event.get("type")))
            if handle is not None:
                handle(self, event)
                return
        # a flood of lines comes through here
        if "okens: " in line or "litellm." in line:
            self._aider(line)
        if line and not line.isspace():
            self._last.append(line[: 4 * _LONGEST])

    def succeed(self, said: object = "") -> None:
        """It said that it is done."""
        self.finished, self.trouble = True, None
        self.say(said)

    def fail(self, why: object) -> None:
        """It said that something went wrong."""
        self.finished = False
        self.trouble = one_line(str(why or "an error without a text"), _LONGEST)

    def say(self, text: object) -> None:
        """It said something."""
        if isinstance(text, str) and text.strip():
            self.said = one_line(text, 2_000)

    def count(self, usage: Usage) -> None:
        """It counted calls."""
        self.usage = (self.usage or NO_USAGE) + usage

    # -- a file at the end -------------------------------------------------------------

    def read_trajectory(self, path: Path) -> None:
        """Take the file that mini-swe-agent leaves."""
        data = read_plain(path, _LARGEST_FILE)
        try:
            whole = json.loads(data or b"")
        except (ValueError, RecursionError):
            return
        info = _inner(whole, "info")
        messages = whole.get("messages") if isinstance(whole, dict) else None
        for message in messages if isinstance(messages, list) else []:
            usage = _inner(message, "extra", "response", "usage")
            if usage:
                details = _inner(usage, "prompt_tokens_details")
                self.count(
                    _usage(
                        _int(usage, "prompt_tokens"),
                        _int(details, "cached_tokens"),
                        _int(usage, "completion_tokens"),
                    )
                )
        status = info.get("exit_status")
        if status == "Submitted":
            self.succeed(info.get("submission"))
        elif status:
            self.fail(f"it ended with {status}")

    # -- text --------------------------------------------------------------------------

    def _aider(self, line: str) -> None:
        if found := _AIDER_TOKENS.search(line):
            cost = _AIDER_COST.search(line)
            usd = float(cost[1]) if cost else None
            sent, received = _amount(found[1]), _amount(found[2])
            self.count(Usage(1, sent, 0, received, usd))
            self.trouble = None
        elif found := _AIDER_ERROR.search(line):
            self.fail(line)


_AIDER_TOKENS = re.compile(r"Tokens: ([\d.,]+[kM]?) sent,.*?([\d.,]+[kM]?) received")
_AIDER_COST = re.compile(r"Cost: \$([\d.]+) message")
_AIDER_ERROR = re.compile(r"\blitellm\.\w+(Error|Exception|Timeout)\b")


def read_plain(path: Path, most: int) -> bytes | None:
    """A file that an agent left; None if it is no plain file, or too big."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        handle = os.open(path, flags)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return None
        with open(handle, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(handle)
    return data if len(data) <= most else None


# -- events ------------------------------------------------------------------------


def _pi_message(hearing: Hearing, event: Event) -> None:
    message = _inner(event, "message")
    if message.get("role") != "assistant":
        return
    usage = _inner(message, "usage")
    cached, written = _int(usage, "cacheRead"), _int(usage, "cacheWrite")
    whole = _int(usage, "input") + cached + written
    output = _int(usage, "output")
    if whole or output:
        hearing.count(_usage(whole, cached, output, _inner(usage, "cost").get("total")))
    for text in _texts(message.get("content")):
        hearing.say(text)
    reason = message.get("stopReason")
    if reason in ("error", "aborted"):
        hearing.fail(message.get("errorMessage") or reason)
    elif reason == "stop":
        hearing.succeed()


def _codex_turn(hearing: Hearing, event: Event) -> None:
    usage = _inner(event, "usage")
    hearing.count(
        _usage(
            _int(usage, "input_tokens"),
            _int(usage, "cached_input_tokens"),
            _int(usage, "output_tokens"),
        )
    )
    hearing.succeed()


def _codex_item(hearing: Hearing, event: Event) -> None:
    item = _inner(event, "item")
    if item.get("type") == "agent_message":
        hearing.say(item.get("text"))


def _failure(hearing: Hearing, event: Event) -> None:
    """An error of codex (also of a try that it repeats) or of opencode."""
    error = _inner(event, "error")
    text = event.get("message") or error.get("message")
    text = text or _inner(error, "data").get("message") or error.get("name")
    hearing.fail(text)


def _opencode_step(hearing: Hearing, event: Event) -> None:
    part = _inner(event, "part")
    tokens = _inner(part, "tokens")
    cache = _inner(tokens, "cache")
    cached = _int(cache, "read")
    hearing.count(
        _usage(
            _int(tokens, "input") + cached + _int(cache, "write"),
            cached,
            _int(tokens, "output") + _int(tokens, "reasoning"),
            part.get("cost"),
        )
    )
    if part.get("reason") == "stop":
        hearing.succeed()


def _opencode_text(hearing: Hearing, event: Event) -> None:
    hearing.say(_inner(event, "part").get("text"))


def _claude_result(hearing: Hearing, event: Event) -> None:
    """The end of claude and of qwen."""
    usage = _inner(event, "usage")
    cached = _int(usage, "cache_read_input_tokens")
    whole = _int(usage, "input_tokens")
    if "cache_creation_input_tokens" in usage:  # claude counts these beside
        whole += cached + _int(usage, "cache_creation_input_tokens")
    calls = max(1, _int(event, "num_turns"))
    tokens = _usage(
        whole, cached, _int(usage, "output_tokens"), event.get("total_cost_usd")
    )
    hearing.count(
        Usage(
            calls,
            tokens.input_tokens,
            cached,
            tokens.output_tokens,
            tokens.usd,
        )
    )
    said = event.get("result")
    error = _inner(event, "error").get("message")
    if event.get("is_error") or str(event.get("subtype")).startswith("error"):
        hearing.fail(said or error or event.get("subtype"))
    else:
        hearing.succeed(said)


def _nothing(hearing: Hearing, event: Event) -> None:
    """An event that is no line for people and says nothing that counts."""


_EVENTS: Mapping[str, Callable[[Hearing, Event], None]] = {
    **dict.fromkeys(
        (
            *("agent_start", "agent_end", "turn_start", "turn_end", "session"),
            *("message_start", "message_update", "tool_execution_start"),
            *("tool_execution_update", "tool_execution_end", "thread.started"),
            *("turn.started", "item.started", "item.updated", "step_start"),
            *("tool_use", "system", "assistant", "user", "stream_event", "reasoning"),
        ),
        _nothing,
    ),
    "message_end": _pi_message,
    "turn.completed": _codex_turn,
    "turn.failed": _failure,
    "error": _failure,
    "item.completed": _codex_item,
    "step_finish": _opencode_step,
    "text": _opencode_text,
    "result": _claude_result,
}


def _event(line: str) -> Event | None:
    if not line.startswith("{"):
        return None
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return data if isinstance(data, dict) else None


def _inner(data: object, *names: str) -> Mapping[str, Any]:
    """An object inside another one, empty where something else is there."""
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data if isinstance(data, dict) else {}


def _int(data: Mapping[str, Any], name: str) -> int:
    value = data.get(name)
    whole = isinstance(value, int | float) and 0 < value < 10**12
    return int(value) if whole and value is not None else 0


def _usage(whole: int, cached: int, output: int, usd: object = None) -> Usage:
    """One call. A cost of 0 is one that nobody knows, where tokens were spent."""
    known = isinstance(usd, int | float) and 0 < usd < 10**6
    price = float(usd) if known and isinstance(usd, int | float) else None
    if price is None and not (whole or output):
        price = 0.0
    return Usage(1, whole, min(cached, whole), output, price)


def _amount(text: str) -> int:
    number = float(text.rstrip("kM").replace(",", "") or 0)
    return round(number * {"k": 1_000, "M": 1_000_000}.get(text[-1], 1))


def _texts(content: object) -> Iterator[object]:
    for block in content if isinstance(content, list) else []:
        if isinstance(block, dict) and block.get("type") == "text":
            yield block.get("text")
