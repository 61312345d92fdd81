from __future__ import annotations

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from pytest_evo.artifact.base import artifact_at
from pytest_evo.artifact.base import file_changes
from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.lfs import large_file
from pytest_evo.artifact.repository import Repository
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import BaselineProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Tree

SCHEMA = ArtifactSchema("art")


@pytest.fixture(autouse=True)
def no_settings_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", os.devnull)


def git(root: Path, *arguments: str) -> str:
    someone = ("-c", "user.name=Somebody", "-c", "user.email=somebody@example.invalid")
    done = subprocess.run(
        ["git", *someone, *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    (root / "art" / "deep").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    (root / "art" / "a.txt").write_bytes(b"one\r\ntwo\n")
    (root / "art" / "run.sh").write_text("#!/bin/sh\n")
    (root / "art" / "run.sh").chmod(0o755)
    (root / "art" / "deep" / "straße [x].md").write_text("ü")
    (root / "art" / "link").symlink_to("deep/straße [x].md")
    return root


def commit(root: Path) -> str:
    git(root, "add", "-A", "-f")
    git(root, "commit", "-q", "-m", "x")
    return git(root, "rev-parse", "HEAD")


def at(root: Path, schema: ArtifactSchema = SCHEMA) -> tuple[Tree, Tree, MemoryBlobs]:
    """The artifact at ``main`` and the one in the working tree."""
    blobs = MemoryBlobs()
    repository = Repository(root)
    base = artifact_at(
        repository, repository.commit("main"), schema, root / schema.directory, blobs
    )
    head = snapshot(root / schema.directory, blobs, include=schema.include)
    return base, head, blobs


def test_artifact_comes_out_of_git_as_it_went_in(root: Path) -> None:
    commit(root)
    base, head, blobs = at(root)
    assert base.hash == head.hash
    kinds = {entry.path: entry.kind for entry in base.entries}
    assert kinds["link"] == "link"
    assert kinds["deep"] == "dir"
    (run,) = [entry for entry in base.entries if entry.path == "run.sh"]
    assert run.mode & 0o100
    (text,) = [entry for entry in base.entries if entry.path == "a.txt"]
    assert blobs.get(text.blob) == b"one\r\ntwo\n"


def test_changes_are_of_files_and_links_not_of_empty_folders(root: Path) -> None:
    commit(root)
    (root / "art" / "empty").mkdir()
    (root / "art" / "run.sh").chmod(0o644)
    (root / "art" / "new.txt").write_text("x")
    (root / "art" / "a.txt").unlink()
    base, head, _ = at(root)
    assert file_changes(base, head) == (
        ("a.txt", "deleted"),
        ("new.txt", "added"),
        ("run.sh", "modified"),
    )


def test_a_project_in_a_folder_of_the_repository_has_its_own_artifact(
    tmp_path: Path,
) -> None:
    top = tmp_path / "mono"
    (top / "project [1]" / "art").mkdir(parents=True)
    (top / "project [1]" / "art" / "a").write_text("a")
    git(top, "init", "-q", "-b", "main")
    commit(top)
    base, head, _ = at(top / "project [1]")
    assert base.hash == head.hash


def test_include_byte_code_and_git_files_are_as_in_the_working_tree(root: Path) -> None:
    (root / "art" / "__pycache__").mkdir()
    (root / "art" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"x")
    (root / "art" / "b.pyc").write_bytes(b"x")
    commit(root)
    base, head, _ = at(root)
    assert base.hash == head.hash
    narrow = ArtifactSchema("art", include=("deep/**",))
    base, head, _ = at(root, narrow)
    assert base.hash == head.hash
    assert {entry.path for entry in base.entries} == {"deep", "deep/straße [x].md"}


def test_one_file_is_read_where_the_project_is(tmp_path: Path) -> None:
    top = tmp_path / "mono"
    (top / "project" / "art").mkdir(parents=True)
    (top / "project" / "settings.toml").write_bytes(b"x = 1\r\n")
    (top / "settings.toml").write_text("another")
    git(top, "init", "-q", "-b", "main")
    found = commit(top)
    repository = Repository(top / "project")
    assert repository.file(found, "settings.toml") == b"x = 1\r\n"
    assert repository.file(found, "nothing.toml") is None
    assert repository.file(found, "../settings.toml") is None
    (top / "project" / "settings.toml").unlink()
    (top / "project" / "settings.toml").mkdir()
    (top / "project" / "settings.toml" / "x").write_text("x")
    assert repository.file(commit(top), "settings.toml") is None


@pytest.mark.parametrize("target", ["/etc/passwd", "../../outside"])
def test_links_that_leave_are_refused(root: Path, target: str) -> None:
    (root / "art" / "away").symlink_to(target)
    commit(root)
    repository = Repository(root)
    with pytest.raises(BaselineProblem, match="away"):
        artifact_at(repository, repository.commit("main"), SCHEMA, root, MemoryBlobs())


def test_limits_and_submodules_are_said(root: Path) -> None:
    commit(root)
    for schema in (
        ArtifactSchema("art", max_bytes=3),
        ArtifactSchema("art", max_files=1),
    ):
        with pytest.raises(BaselineProblem, match="max_files is"):
            at(root, schema)
    inner = root / "art" / "module"
    inner.mkdir()
    git(inner, "init", "-q", "-b", "main")
    (inner / "x").write_text("x")
    commit(inner)
    commit(root)
    with pytest.raises(BaselineProblem, match="submodule"):
        at(root)


@pytest.mark.parametrize("ref", ["nothing", "-x", "", "main:art", "a b", "x\0y"])
def test_what_is_no_commit_is_refused(root: Path, ref: str) -> None:
    commit(root)
    with pytest.raises(BaselineProblem):
        Repository(root).commit(ref)


def test_variables_of_a_hook_do_not_lead_elsewhere(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = commit(root)
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "-q", "-b", "main")
    (other / "x").write_text("x")
    commit(other)
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git" / "index"))
    assert Repository(root).commit("main") == expected


def test_where_a_branch_left_is_known(root: Path) -> None:
    start = commit(root)
    repository = Repository(root)
    git(root, "checkout", "-q", "-b", "mine")
    (root / "art" / "a.txt").write_text("mine")
    commit(root)
    assert repository.left_at(start) is None
    git(root, "checkout", "-q", "main")
    (root / "art" / "a.txt").write_text("theirs")
    theirs = commit(root)
    git(root, "checkout", "-q", "mine")
    assert repository.left_at(theirs) == start


# -- Git LFS -----------------------------------------------------------------------


def pointer(content: bytes) -> bytes:
    oid = hashlib.sha256(content).hexdigest()
    head = "version https://git-lfs.github.com/spec/v1"
    return f"{head}\noid sha256:{oid}\nsize {len(content)}\n".encode()


def test_a_pointer_is_found_in_the_store_or_beside(tmp_path: Path) -> None:
    data = pointer(b"big")
    oid = hashlib.sha256(b"big").hexdigest()
    beside = tmp_path / "file"
    assert large_file(data, tmp_path / "store", beside) is None
    beside.write_bytes(b"another version")
    assert large_file(data, tmp_path / "store", beside) is None
    beside.write_bytes(b"big")
    assert large_file(data, tmp_path / "store", beside) == b"big"
    beside.unlink()
    place = tmp_path / "store" / oid[:2] / oid[2:4]
    place.mkdir(parents=True)
    (place / oid).write_bytes(b"big")
    assert large_file(data, tmp_path / "store", beside) == b"big"
    assert large_file(b"plain", tmp_path / "store", beside) == b"plain"


def test_a_pointer_whose_content_is_not_here_says_what_to_type(root: Path) -> None:
    (root / "art" / "big.bin").write_bytes(pointer(b"big"))
    commit(root)
    with pytest.raises(BaselineProblem, match="git lfs fetch origin"):
        at(root)
