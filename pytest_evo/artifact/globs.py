"""Globs over POSIX paths: ``*`` stays in its folder, ``**`` does not."""

from __future__ import annotations

import re
from functools import lru_cache


def matches(pattern: str, path: str) -> bool:
    """Whether a whole path fits a pattern.

    ``*`` and ``?`` never match a slash; ``**/`` stands for any folders, or none; a
    trailing ``**`` for everything below.
    """
    return _compiled(pattern).fullmatch(path) is not None


def covers(pattern: str, path: str) -> bool:
    """Like :func:`matches`, and a pattern that fits a folder covers what is in it."""
    while path:
        if matches(pattern, path):
            return True
        path = path.rpartition("/")[0]
    return False


def is_plain(pattern: str) -> bool:
    """Whether a pattern is the name of one file."""
    return not any(sign in pattern for sign in "*?[")


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    out = ""
    for number, part in enumerate(parts):
        last = number == len(parts) - 1
        if part == "**":
            out += ".+" if last else "(?:[^/]+/)*"
        else:
            out += _segment(part) + ("" if last else "/")
    return re.compile(out, re.DOTALL)


def _segment(part: str) -> str:
    out, at = "", 0
    while at < len(part):
        sign = part[at]
        close = part.find("]", at + 2) if sign == "[" else -1
        if sign == "*":
            out += "[^/]*"
        elif sign == "?":
            out += "[^/]"
        elif close > 0:
            inside = part[at + 1 : close].replace("\\", r"\\").replace("[", r"\[")
            negated = inside.startswith("!")
            inside = inside.removeprefix("!")
            inside = f"\\{inside}" if inside.startswith("^") else inside
            out += f"(?!/)[{'^' if negated else ''}{inside}]"
            at = close
        else:
            out += re.escape(sign)
        at += 1
    return re.sub(r"(\[\^/\]\*)+", r"[^/]*", out)
