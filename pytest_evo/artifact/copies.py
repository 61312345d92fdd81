"""Finds what an edit copies out of train cases: over-fitting that no score shows."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence

from pytest_evo.artifact.patches import changes
from pytest_evo.hostile import one_line
from pytest_evo.models import CaseMark
from pytest_evo.models import Tree
from pytest_evo.spots import is_long
from pytest_evo.spots import LONG
from pytest_evo.spots import split
from pytest_evo.spots import Spots
from pytest_evo.spots import words

COPIED = "copied from train cases: "
"""How such a warning begins."""
_LARGEST = 400_000  # bytes of a file that is looked at
_SHOWN = 60
_NAMED = 3


def long_texts(marks: Iterable[CaseMark]) -> Spots:
    """What must not be copied: texts of these cases with 20 characters or more."""
    return Spots(
        spot
        for mark in marks
        for _, joined in mark.texts
        for spot in split(joined)
        if is_long(spot)
    )


def copies(
    old: Tree, new: Tree, blob: Callable[[str], bytes], texts: Spots
) -> Iterator[str]:
    """A warning for each changed file that has more of these texts than before."""
    if not texts:
        return
    before, after = _blobs(old), _blobs(new)
    known = {
        text
        for path, _ in changes(old, new)
        for text in _found(blob, before.get(path), texts)
    }
    for path, change in changes(old, new):
        if change == "deleted":
            continue
        added = [
            text for text in _found(blob, after.get(path), texts) if text not in known
        ]
        if added:
            yield _warning(path, list(dict.fromkeys(added)))


def _warning(path: str, added: Sequence[str]) -> str:
    shown = ", ".join(repr(one_line(text, _SHOWN)) for text in added[:_NAMED])
    more = f" and {len(added) - _NAMED} more" if len(added) > _NAMED else ""
    return (
        f"{COPIED}{one_line(path, 200)} now holds {shown}{more} ({LONG} characters or "
        "more of a train case); such an edit may do nothing for other cases"
    )


def _found(blob: Callable[[str], bytes], name: str | None, texts: Spots) -> list[str]:
    """Texts of cases in a file, their words only."""
    data = blob(name) if name else b""
    if len(data) > _LARGEST or b"\0" in data[:8_000]:
        return []
    text = data.decode("utf-8", "replace")
    return [
        " ".join(word.text for word in words(text[span.start : span.end]))
        for span in texts.find(text)
    ]


def _blobs(tree: Tree) -> dict[str, str]:
    return {entry.path: entry.blob for entry in tree.entries if entry.kind == "file"}
