from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import Tree
from pytest_evo.store.blobs import DirectoryBlobs
from pytest_evo.store.blobs import MissingBlob
from pytest_evo.store.candidates import CandidateFiles
from pytest_evo.store.trees import TreeFiles

CHANGE = ChangelogEntry("a.txt", "because", "modified", ("t::x",))


@pytest.fixture
def blobs(tmp_path: Path) -> DirectoryBlobs:
    return DirectoryBlobs(tmp_path / "blobs")


@pytest.fixture
def trees(tmp_path: Path) -> TreeFiles:
    return TreeFiles(tmp_path / "trees")


def stored(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def make(folder: Path, blobs: DirectoryBlobs, **files: str) -> Tree:
    folder.mkdir()
    for name, content in files.items():
        (folder / f"{name}.txt").write_text(content, encoding="utf-8")
    return snapshot(folder, blobs)


# -- blobs -----------------------------------------------------------------------


@pytest.mark.parametrize("data", [b"", b"text", b"\0\xff" * 1000])
def test_blob_comes_back_by_its_hash(blobs: DirectoryBlobs, data: bytes) -> None:
    sha = blobs.put(data)
    assert sha == hashlib.sha256(data).hexdigest()
    assert blobs.get(sha) == data
    assert blobs.has(sha)


def test_equal_blobs_are_kept_once(tmp_path: Path, blobs: DirectoryBlobs) -> None:
    for store in (blobs, blobs, DirectoryBlobs(tmp_path / "blobs")):
        store.put(b"same")
    assert len(stored(tmp_path / "blobs")) == 1


def test_missing_blob_is_a_key_error_that_reads_well(blobs: DirectoryBlobs) -> None:
    sha = hashlib.sha256(b"never").hexdigest()
    assert not blobs.has(sha)
    with pytest.raises(KeyError) as caught:
        blobs.get(sha)
    assert isinstance(caught.value, MissingBlob)
    assert str(caught.value).startswith(f"the file content {sha} is missing")


def test_altered_blob_is_not_given_out(tmp_path: Path, blobs: DirectoryBlobs) -> None:
    sha = blobs.put(b"true")
    (path,) = stored(tmp_path / "blobs")
    path.write_bytes(b"fake")
    with pytest.raises(RunDirectoryProblem, match="altered"):
        DirectoryBlobs(tmp_path / "blobs").get(sha)


@pytest.mark.parametrize("left", [b"", b"tr", b"\0\0\0\0"])
def test_blob_that_a_crash_cut_is_written_again(tmp_path: Path, left: bytes) -> None:
    sha = DirectoryBlobs(tmp_path).put(b"true")
    (path,) = stored(tmp_path)
    path.write_bytes(left)
    again = DirectoryBlobs(tmp_path)
    assert again.put(b"true") == sha
    assert again.get(sha) == b"true"


@pytest.mark.parametrize("name", ["", "../../etc/passwd", "A" * 64, "a" * 63])
def test_name_that_is_no_hash_is_refused(blobs: DirectoryBlobs, name: str) -> None:
    with pytest.raises(ValueError, match="not a SHA-256"):
        blobs.get(name)


# -- trees -----------------------------------------------------------------------


def test_tree_comes_back_equal(
    tmp_path: Path, blobs: DirectoryBlobs, trees: TreeFiles
) -> None:
    tree = make(tmp_path / "a", blobs, a="1", b="2")
    assert trees.put(tree) == tree.hash
    assert trees.has(tree.hash)
    assert TreeFiles(tmp_path / "trees").get(tree.hash) == tree


def test_missing_tree_says_what_to_do(trees: TreeFiles) -> None:
    assert not trees.has("ab" * 32)
    with pytest.raises(RunDirectoryProblem, match=r"missing.*pytest --evolve"):
        trees.get("ab" * 32)


def test_altered_or_cut_tree_is_not_believed(
    tmp_path: Path, blobs: DirectoryBlobs, trees: TreeFiles
) -> None:
    tree = make(tmp_path / "a", blobs, a="1")
    trees.put(tree)
    (path,) = stored(tmp_path / "trees")
    whole = path.read_bytes()
    content = json.loads(whole)
    content["entries"][0]["path"] = "../out.txt"
    for changed in (json.dumps(content).encode(), whole[:20], b""):
        path.write_bytes(changed)
        with pytest.raises(RunDirectoryProblem, match="altered"):
            TreeFiles(tmp_path / "trees").get(tree.hash)
        again = TreeFiles(tmp_path / "trees")
        again.put(tree)
        assert TreeFiles(tmp_path / "trees").get(tree.hash) == tree


@pytest.mark.parametrize("name", ["", "../x", "zz"])
def test_name_that_is_no_tree_hash_is_refused(trees: TreeFiles, name: str) -> None:
    with pytest.raises(ValueError, match="not the hash"):
        trees.get(name)


# -- candidates ------------------------------------------------------------------


def test_candidate_is_written_with_files_diff_and_changelog(
    tmp_path: Path, blobs: DirectoryBlobs, trees: TreeFiles
) -> None:
    old = make(tmp_path / "old", blobs, a="one\n")
    new = make(tmp_path / "new", blobs, a="two\n", b="more\n")
    trees.put(old)
    trees.put(new)
    files = CandidateFiles(tmp_path, blobs, trees)
    folder = files.write("c0001", new.hash, old.hash, [CHANGE])
    assert folder == tmp_path / "candidates" / "c0001"
    assert files.artifact("c0001") == folder / "artifact"
    assert (folder / "artifact" / "a.txt").read_text(encoding="utf-8") == "two\n"
    patch = (folder / "diff.patch").read_text(encoding="utf-8")
    assert "-one" in patch
    assert "+two" in patch
    lines = (folder / "changelog.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["reason"] for line in lines] == ["because"]


def test_candidate_written_twice_is_left_alone(
    tmp_path: Path, blobs: DirectoryBlobs, trees: TreeFiles
) -> None:
    tree = make(tmp_path / "a", blobs, a="1")
    trees.put(tree)
    files = CandidateFiles(tmp_path, blobs, trees)
    folder = files.write("c0000", tree.hash, None)
    assert not (folder / "diff.patch").exists()
    before = {path: path.stat().st_mtime_ns for path in stored(folder)}
    files.write("c0000", tree.hash, None)
    assert {path: path.stat().st_mtime_ns for path in stored(folder)} == before


def test_folder_of_another_tree_is_replaced(
    tmp_path: Path, blobs: DirectoryBlobs, trees: TreeFiles
) -> None:
    first = make(tmp_path / "a", blobs, a="1", b="2")
    second = make(tmp_path / "b", blobs, c="3")
    for tree in (first, second):
        trees.put(tree)
    files = CandidateFiles(tmp_path, blobs, trees)
    files.write("c0001", first.hash, None)
    folder = files.write("c0001", second.hash, first.hash)
    assert [path.name for path in (folder / "artifact").iterdir()] == ["c.txt"]
