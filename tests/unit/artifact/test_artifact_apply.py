from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.artifact.apply import apply_tree
from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Tree


def build(directory: Path, files: dict[str, str | None], blobs: MemoryBlobs) -> Tree:
    """Write files (None: a folder; ``-> x``: a link) and take their snapshot."""
    directory.mkdir(parents=True)
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.mkdir()
        elif content.startswith("-> "):
            path.symlink_to(content[3:])
        else:
            path.write_text(content)
    return snapshot(directory, blobs)


def test_apply_changes_adds_and_deletes(tmp_path):
    blobs = MemoryBlobs()
    old = build(tmp_path / "art", {"a": "1", "b": "2", "d/e": "3"}, blobs)
    new = build(tmp_path / "new", {"a": "9", "b": "2", "f/g": "4", "h": None}, blobs)
    changed = apply_tree(tmp_path / "art", old, new, blobs)
    assert changed == ("a", "d", "d/e", "f", "f/g", "h")
    assert snapshot(tmp_path / "art", blobs).hash == new.hash
    assert sorted(p.name for p in tmp_path.iterdir()) == ["art", "new"]


def test_apply_leaves_equal_files_alone_and_keeps_permissions(tmp_path):
    blobs = MemoryBlobs()
    build(tmp_path / "art", {"same": "1", "secret": "2", "tool": "3"}, blobs)
    (tmp_path / "art/secret").chmod(0o600)
    (tmp_path / "art/tool").chmod(0o640)
    old = snapshot(tmp_path / "art", blobs)
    build(tmp_path / "new", {"same": "1", "secret": "x", "tool": "3"}, blobs)
    (tmp_path / "new/tool").chmod(0o755)
    new = snapshot(tmp_path / "new", blobs)
    before = (tmp_path / "art/same").stat()
    assert apply_tree(tmp_path / "art", old, new, blobs) == ("secret", "tool")
    assert (tmp_path / "art/same").stat() == before
    assert (tmp_path / "art/secret").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "art/tool").stat().st_mode & 0o777 == 0o750


def test_apply_keeps_what_belongs_to_no_version(tmp_path):
    blobs = MemoryBlobs()
    old = build(tmp_path / "art", {"pkg/a.py": "1", "b": "2"}, blobs)
    cache = tmp_path / "art/pkg/__pycache__"
    cache.mkdir()
    (cache / "a.pyc").write_bytes(b"x")
    new = build(tmp_path / "new", {"b": "2"}, blobs)
    apply_tree(tmp_path / "art", old, new, blobs)
    assert (cache / "a.pyc").exists()
    assert not (tmp_path / "art/pkg/a.py").exists()


def test_apply_of_the_same_version_does_nothing(tmp_path):
    blobs = MemoryBlobs()
    tree = build(tmp_path / "art", {"a": "1"}, blobs)
    before = (tmp_path / "art").stat()
    assert apply_tree(tmp_path / "art", tree, tree, blobs) == ()
    assert (tmp_path / "art").stat() == before


def test_apply_that_fails_in_the_middle_changes_nothing(tmp_path, monkeypatch):
    blobs = MemoryBlobs()
    files = {"a": "1", "b": "2", "d/e": "3", "link": "-> a", "turns": None}
    old = build(tmp_path / "art", files, blobs)
    new_files = {"a": "9", "c": "8", "link": "-> c", "turns": "file", "z": "last"}
    new = build(tmp_path / "new", new_files, blobs)
    real = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.name == "z":
            raise OSError(28, "No space left on device", str(target))
        return real(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ArtifactProblem, match=r"No space left .* as it was before"):
        apply_tree(tmp_path / "art", old, new, blobs)
    assert snapshot(tmp_path / "art", blobs) == old
    assert sorted(p.name for p in tmp_path.iterdir()) == ["art", "new"]


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root writes anywhere")
def test_apply_into_a_read_only_place_says_so(tmp_path):
    blobs = MemoryBlobs()
    old = build(tmp_path / "x/art", {"a": "1"}, blobs)
    new = build(tmp_path / "new", {"a": "2"}, blobs)
    (tmp_path / "x").chmod(0o555)
    try:
        with pytest.raises(ArtifactProblem, match="Make it writable"):
            apply_tree(tmp_path / "x/art", old, new, blobs)
    finally:
        (tmp_path / "x").chmod(0o755)


def test_apply_does_not_write_through_a_link_that_is_no_part_of_the_version(tmp_path):
    blobs = MemoryBlobs()
    build(tmp_path / "art", {"a": "1"}, blobs)
    (tmp_path / "outside").mkdir()
    old = snapshot(tmp_path / "art", blobs)
    (tmp_path / "art/sub").symlink_to(tmp_path / "outside")
    new = build(tmp_path / "new", {"a": "1", "sub/evil": "2"}, blobs)
    with pytest.raises(ArtifactProblem, match="as it was before"):
        apply_tree(tmp_path / "art", old, new, blobs)
    assert list((tmp_path / "outside").iterdir()) == []


NAMES = st.sampled_from(["a", "b", "d/a", "d/b", "d/e/f", "g"])
CONTENTS = st.sampled_from([None, "1", "2", "-> a"])


def fits(files: dict[str, str | None]) -> bool:
    return not any(
        other.startswith(f"{name}/") and content is not None
        for name, content in files.items()
        for other in files
    )


FILES = st.dictionaries(NAMES, CONTENTS).filter(fits)


@settings(
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(FILES, FILES)
def test_apply_leads_from_any_version_to_any_other(tmp_path, old_files, new_files):
    blobs = MemoryBlobs()
    base = tmp_path / os.urandom(6).hex()
    old = build(base / "art", old_files, blobs)
    new = build(base / "new", new_files, blobs)
    apply_tree(base / "art", old, new, blobs)
    assert snapshot(base / "art", blobs).hash == new.hash
