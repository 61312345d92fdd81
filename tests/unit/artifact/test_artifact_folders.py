"""Folders of proposals that are over, used again."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.folders import Folders
from pytest_evo.artifact.folders import look
from pytest_evo.artifact.trees import see
from pytest_evo.artifact.trees import snapshot

NAMES = [f"{folder}{name}" for folder in ("", "in/") for name in "abcd"]


class Shelf:
    """Folders, and versions to fill them with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.blobs = MemoryBlobs()
        self.folders = Folders(root / "left", self.blobs)
        self.count = 0

    def version(self, **changed: str):
        self.count += 1
        source = self.root / f"source{self.count}"
        (source / "in").mkdir(parents=True)
        for name in NAMES:
            text = changed.get(name.replace("/", "_"), f"text of {name}")
            (source / name).write_text(text)
        return snapshot(source, self.blobs)

    def fill(self, tree) -> Path:
        self.count += 1
        place = self.root / f"place{self.count}"
        self.folders.fill(place, tree)
        return place

    def take(self, folder: Path, tree) -> None:
        self.folders.take(folder, tree, look(folder))


def written(folder: Path) -> dict[str, int]:
    """When each file got its content: a file that is written anew tells."""
    return {name: (folder / name).stat().st_mtime_ns for name in NAMES}


def test_a_folder_is_used_again_for_a_version_that_differs_a_little(tmp_path):
    shelf = Shelf(tmp_path)
    old, new = shelf.version(), shelf.version(in_a="other")
    first = shelf.fill(old)
    before = written(first)
    shelf.take(first, old)
    second = shelf.fill(new)
    after = written(second)
    assert snapshot(second, shelf.blobs).hash == new.hash
    assert not first.exists()
    assert [name for name in NAMES if after[name] != before[name]] == ["in/a"]


def test_folders_that_cannot_be_used_again_are_left_where_they_are(tmp_path):
    shelf = Shelf(tmp_path)
    tree = shelf.version()

    def refused(spoil) -> bool:
        folder = shelf.fill(tree)
        spoil(folder)
        shelf.take(folder, tree)
        return folder.exists()

    assert refused(lambda folder: (folder / "more").write_text(""))
    assert refused(lambda folder: (folder / "__pycache__").mkdir())
    assert refused(lambda folder: (folder / "a").unlink())
    assert refused(lambda folder: os.link(folder / "a", tmp_path / "second name"))
    assert refused(lambda folder: (folder / "in").chmod(0o500))


@pytest.mark.parametrize("late", ["write", "mode", "replace", "add", "link"])
def test_a_folder_that_somebody_touched_later_is_not_used(tmp_path, late):
    shelf = Shelf(tmp_path)
    tree = shelf.version()
    first = shelf.fill(tree)
    before = written(first)
    shelf.take(first, tree)
    (kept,) = (tmp_path / "left").iterdir()
    if late == "write":
        with (kept / "a").open("r+") as file:
            file.write("T")  # size stays
    elif late == "mode":
        (kept / "a").chmod(0o777)
    elif late == "replace":
        (kept / "new").write_text("text of a")
        os.utime(kept / "new", ns=(before["a"], before["a"]))
        (kept / "new").replace(kept / "a")
    elif late == "add":
        (kept / "in" / "x").write_text("")
    else:
        os.link(kept / "a", tmp_path / "second name")
    second = shelf.fill(tree)
    assert snapshot(second, shelf.blobs).hash == tree.hash
    assert not set(written(second).items()) & set(before.items())
    assert not kept.exists()


def test_only_a_few_folders_are_kept(tmp_path):
    shelf = Shelf(tmp_path)
    tree = shelf.version()
    places = [shelf.fill(tree) for _ in range(9)]
    for place in places:
        shelf.take(place, tree)
    assert len(list((tmp_path / "left").iterdir())) == 4


@settings(deadline=None)
@given(st.lists(st.dictionaries(st.sampled_from("abcd"), st.text("xyz"), max_size=4)))
def test_a_filled_folder_is_always_the_version_that_was_asked_for(
    tmp_path_factory, edits
):
    shelf = Shelf(tmp_path_factory.mktemp("shelf"))
    for edit in edits:
        tree = shelf.version(**edit)
        folder = shelf.fill(tree)
        assert snapshot(folder, shelf.blobs) == tree
        shelf.take(folder, tree)


def test_a_file_is_read_again_unless_its_times_can_tell(tmp_path):
    shelf = Shelf(tmp_path)
    tree = shelf.version()
    first = shelf.fill(tree)
    shelf.take(first, tree)
    place = tmp_path / "again"
    assert shelf.folders.fill(place, tree) == {}  # just written: times tell nothing
    time.sleep(0.06)
    shelf.take(place, tree)
    known = shelf.folders.fill(place, tree)
    assert set(known) == set(NAMES)
    status = (place / "a").stat()
    (place / "a").write_text("TEXT of a")
    os.utime(place / "a", ns=(status.st_atime_ns, status.st_mtime_ns))
    read = snapshot(place, shelf.blobs, known=known)
    assert read.hash == shelf.version(a="TEXT of a").hash


LIMITS = {"max_bytes": 10_000, "max_files": 100}


def test_version_and_facts_are_read_in_one_pass(tmp_path):
    shelf = Shelf(tmp_path)
    tree = shelf.version()
    folder = shelf.fill(tree)
    (folder / "link").symlink_to("in/a")
    seen = see(folder, shelf.blobs, **LIMITS)
    assert seen.tree == snapshot(folder, shelf.blobs)
    assert seen.look == look(folder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder, other: (folder / "in" / "__pycache__").mkdir(),
        lambda folder, other: (folder / "in" / "a.pyc").write_text(""),
        lambda folder, other: (folder / ".git").write_text(""),
        lambda folder, other: os.link(folder / "in" / "a", other),
        lambda folder, other: (folder / "in").chmod(0o500),
        lambda folder, other: folder.chmod(0o500),
    ],
)
def test_folder_with_more_than_a_version_has_no_facts_to_go_by(tmp_path, spoil):
    shelf = Shelf(tmp_path)
    tree = shelf.version()
    folder = shelf.fill(tree)
    spoil(folder, tmp_path / "other")
    seen = see(folder, shelf.blobs, **LIMITS)
    assert seen.tree.hash == tree.hash
    assert seen.look is None
    folder.chmod(0o700)


class Meddling(dict):
    """Known files that are none; each question for one changes it."""

    def __init__(self, folder: Path) -> None:
        super().__init__({"no such": None})
        self.folder = folder

    def get(self, path, default=None):
        if (self.folder / path).is_file():
            (self.folder / path).write_text(f"another size of {path}")
        return default


def test_file_that_changes_between_look_and_read_keeps_its_folder_from_use(tmp_path):
    shelf = Shelf(tmp_path)
    folder = shelf.fill(shelf.version())
    seen = see(folder, shelf.blobs, known=Meddling(folder), **LIMITS)
    assert seen.tree == snapshot(folder, shelf.blobs)
    held = os.open(folder, os.O_RDONLY)  # so that its number is not given away
    shelf.folders.take(folder, seen.tree, seen.look)
    place = shelf.fill(seen.tree)
    assert place.stat().st_ino != os.fstat(held).st_ino
    os.close(held)
    assert snapshot(place, shelf.blobs) == seen.tree
