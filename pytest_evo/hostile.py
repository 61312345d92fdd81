"""Text that somebody else wrote: made visible, cut to a budget, fenced.

Candidates, tests and models write what ends up in prompts, in files that agents read
and on terminals. Nothing here decides whether a text is true; it only sees to it that a
text stays what it is: data of limited length, with nothing in it that cannot be seen.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?)")
_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)
_TICKS = re.compile(r"`{3,}")


def visible(text: str) -> str:
    """The text with everything that cannot be seen written out.

    Colours are taken off. Control characters, those that turn the direction of writing
    or have no width, and lone surrogates become escapes; line ends and tabs stay.
    """
    if text.isascii() and text.isprintable():
        return text  # most names and messages
    plain = _ANSI.sub("", text.replace("\r\n", "\n"))
    return _UNSEEN.sub(_escape, plain)


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def one_line(text: str, budget: int = 2_000) -> str:
    """Visible text without line ends, at most ``budget`` characters."""
    return " ".join(cut(" ".join(visible(text).split()), budget).split())


def cut(text: str, budget: int) -> str:
    """At most ``budget`` characters of a text: its two ends, and a mark between them.

    Failures and logs say the most where they begin and where they end. The end gets
    two thirds, and both ends stop at whole lines where that costs little.
    """
    if len(text) <= budget:
        return text
    if budget <= 0:
        return ""
    mark = "\n[... the middle is left out ...]\n"
    if budget < 4 * len(mark):
        mark = "..."
    room = budget - len(mark)
    if room < 2:
        return text[:budget]
    head = text[: room // 3]
    tail = text[len(text) - (room - len(head)) :]
    if mark != "...":
        head, tail = _whole_lines(head, tail)
    return head + mark + tail


def _whole_lines(head: str, tail: str) -> tuple[str, str]:
    """Drop a broken line at the inner ends, unless much would go with it."""
    at = head.rfind("\n")
    if at > len(head) // 2:
        head = head[:at]
    at = tail.find("\n")
    if 0 <= at < len(tail) // 4:
        tail = tail[at + 1 :]
    return head, tail


def share(sizes: Sequence[int], total: int) -> list[int]:
    """Divide ``total`` so that small ones get all they need and the rest is even.

    No share is above its size, and together they are at most ``total``.
    """
    shares = [0] * len(sizes)
    left = max(0, total)
    waiting = sorted(range(len(sizes)), key=lambda index: sizes[index])
    for place, index in enumerate(waiting):
        even = left // (len(waiting) - place)
        shares[index] = min(max(0, sizes[index]), even)
        left -= shares[index]
    return shares


def fenced(text: str, budget: int | None = None) -> str:
    """The visible text between two fences that it cannot close.

    The fence is longer than every run of backticks in the text.
    """
    plain = visible(text)
    if budget is not None:
        plain = cut(plain, budget)
    longest = max((len(run) for run in _TICKS.findall(plain)), default=2)
    fence = "`" * (longest + 1)
    end = "" if plain.endswith("\n") or not plain else "\n"
    return f"{fence}text\n{plain}{end}{fence}"
