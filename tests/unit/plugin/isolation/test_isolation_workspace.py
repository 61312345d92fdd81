from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from pytest_evo.errors import EvoError
from pytest_evo.models import COPY_CHANGED
from pytest_evo.models import TreeEntry
from pytest_evo.plugin.isolation.candidates import CandidateCache
from pytest_evo.plugin.isolation.workspace import Workspaces


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    for name, text in {
        "artifact/prompt.txt": "seed",
        "artifact/old.txt": "old",
        "artifact/notes/own.log": "log",
        "tests/test_a.py": "",
        "lib/__pycache__/mod.cpython-311.pyc": "",
        "lib/mod.py": "X = 1\n",
        ".git/HEAD": "ref",
        "env/pyvenv.cfg": "",
        "node_modules/m/index.js": "",
        ".evo/runs/1/journal.jsonl": "",
        "cachedir/CACHEDIR.TAG": "Signature: 8a477f597d28d172789f06886806bc55",
        "script.sh": "#!/bin/sh\n",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / "script.sh").chmod(0o755)
    (root / "inner").symlink_to("lib/mod.py")
    (root / "absolute").symlink_to(root / "artifact" / "prompt.txt")
    (root / "outer").symlink_to("../shared.txt")
    (tmp_path / "shared.txt").write_text("shared")
    os.mkfifo(root / "pipe")
    return root


@pytest.fixture
def cache(tmp_path: Path) -> CandidateCache:
    return CandidateCache(tmp_path / "cache")


def manifest(cache: CandidateCache, **files: str) -> tuple[TreeEntry, ...]:
    entries = []
    for name, text in files.items():
        data = text.encode()
        sha = hashlib.sha256(data).hexdigest()
        cache.add(sha, data)
        path = name.replace("__", "/") + ".txt"
        entries.append(TreeEntry(path, "file", 0o644, sha, len(data)))
    return tuple(entries)


@pytest.fixture
def spaces(tmp_path: Path, project: Path, cache: CandidateCache) -> Workspaces:
    return Workspaces(tmp_path / "spaces", project, project / "artifact", cache)


def names(top: Path) -> set[str]:
    return {
        path.relative_to(top).as_posix()
        for path in top.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def test_workspace_is_the_project_with_the_candidate_in_place(
    spaces: Workspaces, cache: CandidateCache
) -> None:
    space = spaces.take(manifest(cache, prompt="candidate"))
    assert names(space.root) == {
        "absolute",
        "artifact/prompt.txt",
        "inner",
        "lib/mod.py",
        "outer",
        "script.sh",
        "tests/test_a.py",
    }
    assert (space.root / "artifact" / "prompt.txt").read_text() == "candidate"
    assert os.access(space.root / "script.sh", os.X_OK)


def test_links_into_the_project_stay_in_the_copy_and_others_lead_out(
    spaces: Workspaces, cache: CandidateCache
) -> None:
    space = spaces.take(manifest(cache, prompt="candidate"))
    assert (space.root / "absolute").read_text() == "candidate"
    assert (space.root / "inner").resolve() == space.root.resolve() / "lib" / "mod.py"
    assert (space.root / "outer").read_text() == "shared"


def test_used_workspace_comes_back_restored(
    spaces: Workspaces, cache: CandidateCache, project: Path
) -> None:
    first = manifest(cache, prompt="one", extra="more")
    space = spaces.take(first)
    (space.root / "lib" / "mod.py").write_text("X = 2\n")
    (space.root / "tests" / "test_a.py").unlink()
    (space.root / "made").mkdir()
    (space.root / "made" / "deep.txt").write_text("x")
    (space.root / "outer").unlink()
    (space.root / "outer").symlink_to("elsewhere")
    (space.root / "script.sh").chmod(0o644)
    spaces.give_back(space)
    again = spaces.take(manifest(cache, prompt="two"))
    assert again.root == space.root
    assert names(again.root) == {
        "absolute",
        "artifact/prompt.txt",
        "inner",
        "lib/mod.py",
        "outer",
        "script.sh",
        "tests/test_a.py",
    }
    assert (again.root / "lib" / "mod.py").read_text() == "X = 1\n"
    assert (again.root / "artifact" / "prompt.txt").read_text() == "two"
    assert (again.root / "outer").read_text() == "shared"
    assert os.access(again.root / "script.sh", os.X_OK)
    assert (project / "lib" / "mod.py").read_text() == "X = 1\n"


def test_workspace_that_was_removed_comes_back(
    spaces: Workspaces, cache: CandidateCache
) -> None:
    space = spaces.take(manifest(cache, prompt="one"))
    spaces.give_back(space)
    cache.remove(space.root)
    spaces.give_back(spaces.take(manifest(cache, prompt="one")))
    again = spaces.take(manifest(cache, prompt="two"))
    assert (again.root / "lib" / "mod.py").read_text() == "X = 1\n"


def test_two_at_once_are_apart(spaces: Workspaces, cache: CandidateCache) -> None:
    one = spaces.take(manifest(cache, prompt="one"))
    two = spaces.take(manifest(cache, prompt="two"))
    assert one.root != two.root
    assert (one.artifact / "prompt.txt").read_text() == "one"
    assert (two.artifact / "prompt.txt").read_text() == "two"


def test_edits_of_the_project_during_a_run_change_no_workspace(
    spaces: Workspaces, cache: CandidateCache, project: Path
) -> None:
    spaces.take(manifest(cache, prompt="one"))
    (project / "lib" / "mod.py").write_text("X = 3\n")
    later = spaces.take(manifest(cache, prompt="two"))
    assert (later.root / "lib" / "mod.py").read_text() == "X = 1\n"


def test_violation_is_about_the_candidates_files(
    spaces: Workspaces, cache: CandidateCache
) -> None:
    files = manifest(cache, prompt="one")
    space = spaces.take(files)
    assert spaces.violation(space, files) is None
    (space.root / "lib" / "mod.py").write_text("anything")
    assert spaces.violation(space, files) is None
    (space.artifact / "prompt.txt").write_text("two")
    assert spaces.violation(space, files) == f"{COPY_CHANGED}changed prompt.txt"


def test_include_leaves_the_other_files_beside_the_candidate(
    tmp_path: Path, project: Path, cache: CandidateCache
) -> None:
    spaces = Workspaces(
        tmp_path / "spaces",
        project,
        project / "artifact",
        cache,
        ["prompt.txt", "old.txt"],
    )
    files = manifest(cache, prompt="candidate", notes__new="new")
    for _ in range(2):
        space = spaces.take(files)
        assert names(space.artifact) == {
            "prompt.txt",
            "notes/own.log",
            "notes/new.txt",
        }
        assert spaces.violation(space, files) is None
        spaces.give_back(space)


def test_close_removes_everything(
    spaces: Workspaces, cache: CandidateCache, tmp_path: Path
) -> None:
    spaces.take(manifest(cache, prompt="one"))
    spaces.close()
    assert not (tmp_path / "spaces").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_unreadable_project_is_told(
    spaces: Workspaces, cache: CandidateCache, project: Path
) -> None:
    (project / "lib" / "mod.py").chmod(0)
    with pytest.raises(EvoError, match="cannot be copied"):
        spaces.take(manifest(cache, prompt="one"))
