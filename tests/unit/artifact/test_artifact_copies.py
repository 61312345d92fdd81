"""Edits that copy texts of train cases."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.copies import COPIED
from pytest_evo.artifact.copies import copies
from pytest_evo.artifact.copies import long_texts
from pytest_evo.artifact.trees import make_tree
from pytest_evo.models import CaseMark
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry
from pytest_evo.spots import spots_of

QUESTION = "Which river runs through the old town?"
SHORT = "the old town"


@pytest.fixture
def blobs() -> MemoryBlobs:
    return MemoryBlobs()


def version(blobs: MemoryBlobs, files: Mapping[str, str]) -> Tree:
    return make_tree(
        TreeEntry(path, "file", size=len(text), blob=blobs.put(text.encode()))
        for path, text in files.items()
    )


def warned(blobs: MemoryBlobs, old: dict[str, str], new: dict[str, str]) -> list[str]:
    texts = (("question", QUESTION), ("answer", SHORT))
    rows = tuple((path, "".join(spots_of(text))) for path, text in texts)
    marks = [CaseMark("t.py::test_a", "t.py", 1, "", texts=rows)]
    before, after = version(blobs, old), version(blobs, new)
    return list(copies(before, after, blobs.get, long_texts(marks)))


def test_copied_text_is_told_with_its_file(blobs: MemoryBlobs) -> None:
    new = {"a.md": "be brief\nQ: which RIVER runs\n  through the old town -> Zorn"}
    (warning,) = warned(blobs, {"a.md": "be brief"}, new)
    assert warning.startswith(f"{COPIED}a.md now holds ")
    assert "'which river runs through the old town'" in warning


def test_text_in_an_added_file_is_told(blobs: MemoryBlobs) -> None:
    assert warned(blobs, {"a.md": "x"}, {"a.md": "x", "b.json": f'["{QUESTION}"]'})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"a.md": "x"}, {"a.md": f"x, and {SHORT}"}),
        ({"a.md": "x"}, {"a.md": "which river runs through the new town?"}),
        ({"a.md": QUESTION}, {"a.md": f"{QUESTION} and more"}),
        ({"a.md": QUESTION}, {"b.md": QUESTION}),
        ({"a.md": QUESTION, "b.md": "x"}, {"a.md": QUESTION, "b.md": "y"}),
        ({"a.md": QUESTION, "b.md": "x"}, {"b.md": "x"}),
        ({"a.md": "x"}, {"a.md": f"\0{QUESTION}"}),
    ],
    ids=["short", "other", "kept", "moved", "elsewhere", "deleted", "binary"],
)
def test_nothing_is_told_where_nothing_was_copied(blobs, old, new) -> None:
    assert warned(blobs, old, new) == []


def test_many_copies_are_one_warning(blobs: MemoryBlobs) -> None:
    texts = [f"question number {n} is about the {n} town" for n in range(9)]
    spots = "".join(spot for text in texts for spot in spots_of(text))
    marks = [CaseMark("t.py::test_a", "t.py", 1, "", texts=(("q", spots),))]
    new = version(blobs, {"a.md": "\nanswer\n".join(texts)})
    (warning,) = copies(version(blobs, {}), new, blobs.get, long_texts(marks))
    assert "and 6 more" in warning
    assert len(warning) < 600
