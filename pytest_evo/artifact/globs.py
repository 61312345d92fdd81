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
    """The pattern as a regular expression that never looks back behind a star.

    What follows a star may take the first place that fits: a later star can take up
    whatever is left. So all but the last are atomic, and no pattern is slow.
    """
    parts = [part for part in pattern.split("/") if part not in ("", ".")]
    below = bool(parts) and parts[-1] == "**"
    runs: list[list[str]] = [[]]
    for part in parts[:-1] if below else parts:
        if part == "**":
            runs.append([])
        else:
            runs[-1].append(_segment(part))
    if below:
        runs.append([])
    texts = ["".join(f"{segment}/" for segment in run) for run in runs]
    if not below:
        texts[-1] = texts[-1].removesuffix("/")
    last = ".+" if below else texts[-1]
    middle = [rf"(?>(?:[^/]+/)*?{text})" for text in texts[1:-1] if text]
    if len(texts) == 1:
        return re.compile(last, re.DOTALL)
    ending = last if below else f"(?:[^/]+/)*{last}"
    return re.compile(texts[0] + "".join(middle) + ending, re.DOTALL)


def _segment(part: str) -> str:
    """One name of a pattern."""
    first, *others = re.split(r"\*+", part)
    if not others:
        return _signs(first)
    middle = [rf"(?>[^/]*?{_signs(chunk)})" for chunk in others[:-1]]
    return f"{_signs(first)}{''.join(middle)}[^/]*{_signs(others[-1])}"


def _signs(chunk: str) -> str:
    """Part of a name, without stars."""
    out, at = "", 0
    while at < len(chunk):
        found = re.compile(r"\[(!?)(\]?[^\]]*)\]").match(chunk, at)
        if found and found[2]:
            out += _set(found[2], negated=bool(found[1]))
            at = found.end()
            continue
        out += "[^/]" if chunk[at] == "?" else re.escape(chunk[at])
        at += 1
    return out


def _set(inside: str, *, negated: bool) -> str:
    signs = re.sub(r"([\[\]\\^&|~])", r"\\\1", inside)
    try:
        re.compile(f"[{signs}]")
    except re.error:  # a range from high to low holds nothing
        return "(?!)"
    return f"(?!/)[{'^' if negated else ''}{signs}]"
