"""Hostile text made fit for XML, Markdown and terminals.

Whatever a candidate, a model or a test printed may hold control characters, markup of
the reader's format, lone surrogates, or far too much of everything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from pytest_evo.wording import count

_ANSI = re.compile(
    "\x1b\\[[0-?]*[ -/]*[@-~]"  # CSI: colours, cursor
    "|\x1b\\][^\x07\x1b\n]*(?:\x07|\x1b\\\\)"  # OSC: titles, links
    "|\x9b[0-?]*[ -/]*[@-~]"  # CSI as one character
)
_NOT_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
# what a terminal acts on or hides: C0, C1, surrogates, bidi and zero-width marks
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\ufff9-\uffff\ud800-\udfff\U000e0000-\U000e0fff]"
)
_BLANKS = re.compile(r"\s+")
_BACKTICKS = re.compile("`+")


def scrub(text: str) -> str:
    """Text that every XML parser reads back unchanged.

    Terminal sequences are dropped; characters that XML 1.0 does not allow, C1 controls
    and lone surrogates become U+FFFD; line ends become line feeds.
    """
    text = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return _NOT_XML.sub("\ufffd", text)


def cap(text: str, limit: int) -> str:
    """At most about ``limit`` characters: head and tail, and how much is missing."""
    if len(text) <= limit:
        return text
    tail = limit // 4
    head = limit - tail
    missing = len(text) - limit
    left_out = count(missing, "character")
    return f"{text[:head]}\n... {left_out} left out ...\n{text[-tail:]}"


def clean(text: str, limit: int) -> str:
    """Scrubbed and capped; a huge text is cut before it is looked at."""
    if len(text) > 4 * limit:
        text = cap(text, 4 * limit)
    return cap(scrub(text), limit)


def one_line(text: str, limit: int) -> str:
    """Scrubbed, blanks folded, at most ``limit`` characters."""
    flat = _BLANKS.sub(" ", scrub(text[: 8 * limit])).strip()
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."


def short_id(text: str, limit: int = 250) -> str:
    """A name that stays unique when it had to be changed: it gets a hash tail."""
    flat = _BLANKS.sub(" ", scrub(text))
    if flat == text and len(text) <= limit:
        return text
    return f"{flat[: limit - 13]}~{digest(text)}"


def digest(text: str) -> str:
    """Twelve hex digits that name a text, surrogates included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def visible(text: str, *, ascii_only: bool = False) -> str:
    """One line for a terminal: what could act on it is shown as an escape."""
    text = _UNSAFE.sub(lambda m: _escape(m.group()), text)
    if ascii_only:
        text = text.encode("ascii", "backslashreplace").decode("ascii")
    return text


def some_of(names: Sequence[str], most: int = 5) -> str:
    """The first of some names for a terminal, and how many there are beside them."""
    shown = ", ".join(map(visible, names[:most]))
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def _show_lines(text: str) -> str:
    keep = {"\t", "\n"}
    return _UNSAFE.sub(
        lambda m: m.group() if m.group() in keep else _escape(m.group()), text
    )


def _escape(char: str) -> str:
    if char == "\t":
        return "    "
    code = ord(char)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def code(text: str, limit: int = 120, *, cell: bool = False) -> str:
    """A Markdown code span, in which neither markup nor a mention takes effect."""
    flat = visible(one_line(text, limit)) or " "
    if cell:
        # a table takes "\\|" for a pipe, but "\\\\|" for the end of the cell
        flat = flat.replace("\\|", "\\ |").replace("|", "\\|")
    ticks = "`" * (1 + max(map(len, _BACKTICKS.findall(flat)), default=0))
    edge = " " if flat[0] == "`" or flat[-1] == "`" else ""
    return f"{ticks}{edge}{flat}{edge}{ticks}"


def fence(text: str, language: str, limit: int) -> str:
    """A Markdown code block that its content cannot leave."""
    body = _show_lines(clean(text, limit)).rstrip("\n")
    ticks = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(body)), default=0))
    return f"{ticks}{language}\n{body}\n{ticks}"


def plain(text: str, limit: int = 300) -> str:
    """One line of Markdown prose in which the text means only itself."""
    flat = visible(one_line(text, limit))
    flat = flat.replace("&", "&amp;").replace("<", "&lt;").replace("@", "@\u200b")
    return re.sub(r"([\\`*_{}\[\]()#|~!>])", r"\\\1", flat)


def file_name(name: str) -> str:
    """A name without anything that a path, a URL or an attachment marker could mean."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", name) or "_"
