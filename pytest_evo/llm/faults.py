"""What a failed call means: wait, ask differently, cut, or give up.

It is read from status, headers and text, not from classes of a client library.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from collections.abc import Collection
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from pytest_evo.hostile import one_line
from pytest_evo.llm.waiting import retry_after


class Meaning(StrEnum):
    """What to do about a failed call."""

    AGAIN = "again"
    """It may work later."""
    KEY = "key"
    """The key is wrong or may not do this."""
    MODEL = "model"
    """There is no such model."""
    QUOTA = "quota"
    """Nothing is left to pay with."""
    TOO_LONG = "too long"
    """The request does not fit the model."""
    TOOLS = "tools"
    """The model takes no tools."""
    PARAMETER = "parameter"
    """One optional parameter is not taken."""
    REJECTED = "rejected"
    """The request is wrong in some other way."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One failed call: ``wait`` seconds are what the provider asks for."""

    meaning: Meaning
    text: str
    wait: float | None = None
    parameter: str = ""


_TOO_LONG = re.compile(
    r"context[ _-]?(?:length|window|size)|prompt is too long|input is too long|"
    r"too many (?:input )?tokens|reduce the length|exceeds? the (?:maximum|available)|"
    r"request too large|string too long",
    re.IGNORECASE,
)
_QUOTA = re.compile(
    r"insufficient[_ ](?:quota|balance|credits?|funds)|exceeded your current quota|"
    r"billing|credit balance|payment required",
    re.IGNORECASE,
)
_TOOLS = re.compile(
    r"(?:tools?|functions?|tool[_ ]choice|function call\w*)\b.{0,80}\b(?:not|un)"
    r"\s?(?:be )?(?:support|enabl|allow|avail)|"
    r"(?:not|n't) support (?:\w+ ){0,3}(?:tools?|functions?)\b|"
    r"(?:tools?|tool[_ ]choice)\b.{0,40}\brequires? --|"
    r"not support parameters: \[[^\]]*'tools?'",
    re.IGNORECASE | re.DOTALL,
)
_RATE = re.compile(r"\brate\b|RateLimit|per min", re.IGNORECASE)
_TOKEN = re.compile(r"\b(?:sk|pk|gsk|xai|key|AIza)[-_][A-Za-z0-9*._-]{6,}")
_LATER = frozenset({408, 409, 423, 425, 429})


def read_fault(
    error: BaseException,
    optional: Collection[str],
    *,
    tools: bool,
    hide: Callable[[str], str],
) -> Fault:
    """What an error of a client library means.

    Args:
        error: with ``status_code`` and headers, where it has any.
        optional: parameters of the request that it can do without.
        tools: whether tools were offered.
        hide: takes keys out of a text.
    """
    status = getattr(error, "status_code", None)
    code = status if isinstance(status, int) else None
    raw = f"{type(error).__name__}: {error}"
    text = clean(hide(str(error)))
    wait = retry_after(_header(error, "retry-after"))
    if code in (401, 403):
        # some providers repeat a part of the key, so the text is not shown
        return Fault(Meaning.KEY, f"status {code}")
    if code == 402 or (code in (400, 429) and _QUOTA.search(raw)):
        return Fault(Meaning.QUOTA, text)
    if code is None or code in _LATER or code >= 500:
        return _later(raw, text, wait, tools)
    if code == 413 or "ContextWindow" in raw or _TOO_LONG.search(raw):
        return Fault(Meaning.TOO_LONG, text)
    if tools and _TOOLS.search(raw):
        return Fault(Meaning.TOOLS, text)
    for name in optional:
        if re.search(rf"\b{re.escape(name)}\b", raw):
            return Fault(Meaning.PARAMETER, text, parameter=name)
    if code == 404:
        return Fault(Meaning.MODEL, text)
    if code == 422 and not str(error).split("Exception -")[-1].strip():
        return Fault(Meaning.AGAIN, "an error without a text", wait)
    return Fault(Meaning.REJECTED, text)


def _later(raw: str, text: str, wait: float | None, tools: bool) -> Fault:
    """A status that says: not now. A few servers say it of what they never do."""
    if _TOO_LONG.search(raw) and not _RATE.search(raw):
        return Fault(Meaning.TOO_LONG, text)
    if tools and _TOOLS.search(raw):
        return Fault(Meaning.TOOLS, text)
    return Fault(Meaning.AGAIN, text, wait)


def clean(text: str) -> str:
    """One short line without anything that looks like a key."""
    text = text.split("Traceback (most recent call last)")[0]
    return one_line(_TOKEN.sub("[key]", text), 300)


def _header(error: BaseException, name: str) -> str | None:
    for holder in (error, getattr(error, "response", None)):
        for attribute in ("litellm_response_headers", "headers"):
            headers = getattr(holder, attribute, None)
            if isinstance(headers, Mapping):
                for key, value in headers.items():
                    if str(key).lower() == name:
                        return str(value)
    return None
