"""What a CI job checks out: depth 1, detached, no remote, no git, another owner."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from gate_project import commit
from gate_project import environment
from gate_project import gate
from gate_project import git
from gate_project import make_repository
from gate_project import said
from gate_project import verdict
from gate_project import write

pytestmark = pytest.mark.slow
TESTS = """
def level(folder):
    return int((folder / "level.txt").read_text())

def test_one(evo_artifact):
    assert level(evo_artifact) >= 1

def test_two(evo_artifact):
    assert level(evo_artifact) >= 2
"""
BASELINE = ("--evo-baseline-update", "-n", "0")
REF = ("--evo-gate=git:origin/main", "-n", "0")


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Origin with ``main`` (level 2) and a change (level 1), and four checkouts."""
    seed = make_repository(
        tmp_path / "seed", {"art/level.txt": "2", "tests/test_two.py": TESTS}
    )
    git(seed, "checkout", "-q", "-b", "change")
    write(seed, {"art/level.txt": "1"})
    commit(seed, "worse")
    git(seed, "checkout", "-q", "main")
    write(seed, {"NOTES": "main moved on"})
    commit(seed, "main moved on")
    git(seed, "checkout", "-q", "-b", "merged")
    git(seed, "merge", "-q", "--no-ff", "-m", "merge", "change")
    git(seed, "checkout", "-q", "main")
    git(tmp_path, "clone", "-q", "--bare", str(seed), "origin.git")
    url = f"file://{tmp_path / 'origin.git'}"
    git(tmp_path, "clone", "-q", "-b", "change", url, "full")
    one = ("--depth", "1", "--single-branch", "-b", "merged")
    git(tmp_path, "clone", "-q", *one, url, "shallow")
    git(tmp_path / "shallow", "checkout", "-q", "--detach")
    shutil.copytree(tmp_path / "full", tmp_path / "no_remote")
    git(tmp_path / "no_remote", "remote", "remove", "origin")
    shutil.copytree(tmp_path / "full", tmp_path / "no_git")
    shutil.rmtree(tmp_path / "no_git" / ".git")
    return tmp_path


def state(root: Path) -> tuple[str, ...]:
    """What the gate must not change."""
    return (
        git(root, "rev-parse", "--is-shallow-repository"),
        git(root, "rev-parse", "HEAD"),
        git(root, "for-each-ref"),
        *sorted(str(p) for p in (root / ".git" / "objects").rglob("*") if p.is_file()),
    )


def test_a_full_clone_has_its_base(work: Path) -> None:
    done = gate(work / "full", *REF)
    assert done.returncode == 1, said(done)
    assert "test_two" in done.stdout


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("shallow", "git fetch --depth=1 origin main"),
        ("no_remote", "has no remote"),
        ("no_git", "not in a git repository"),
    ],
)
def test_a_checkout_without_the_ref_says_what_to_type(
    work: Path, name: str, hint: str
) -> None:
    root = work / name
    before = state(root) if name != "no_git" else ()
    done = gate(root, *REF)
    assert done.returncode == 4, said(done)
    assert hint in said(done)
    assert "Traceback" not in said(done)
    assert before == (state(root) if name != "no_git" else ())


def test_a_shallow_clone_is_judged_after_the_fetch_that_it_named(work: Path) -> None:
    root = work / "shallow"
    text = said(gate(root, *REF))
    command = text.partition("Type: ")[2].partition(" and compare")[0].split()
    git(root, *command[1:])
    before = state(root)
    done = gate(root, *REF)
    assert done.returncode == 1, said(done)
    assert state(root) == before


def test_a_baseline_file_needs_no_git(work: Path) -> None:
    root = work / "no_git"
    write(root, {"art/level.txt": "2"})
    done = gate(root, *BASELINE, PATH=str(work / "nothing"))
    assert done.returncode == 0, said(done)
    write(root, {"art/level.txt": "1"})
    done = gate(root, "--evo-gate=baseline", "-n", "0", PATH=str(work / "nothing"))
    assert done.returncode == 1, said(done)
    (root / "evo-baseline.json").rename(root / "other.json")
    done = gate(root, "--evo-gate=other.json", "-n", "0")
    assert done.returncode == 1, said(done)
    done = gate(root, "--evo-gate=baseline", "-n", "0")
    assert done.returncode == 4
    assert "pytest --evo-baseline-update" in said(done)


def test_without_git_a_ref_says_what_to_do(work: Path) -> None:
    done = gate(work / "full", *REF, PATH=str(work / "nothing"))
    assert done.returncode == 4
    assert "git cannot be run" in said(done)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="owners are a matter of Unix")
def test_a_checkout_of_another_owner_names_the_setting(work: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("only root can give a file away")
    root = work / "full"
    for path in (root, root / ".git"):
        os.chown(path, 12345, 12345)
    unsafe = subprocess.run(
        ["git", "status"], cwd=root, env=environment(), capture_output=True, check=False
    )
    if unsafe.returncode == 0:
        pytest.skip("this git does not look at owners")
    done = gate(root, *REF)
    assert done.returncode == 4, said(done)
    assert "safe.directory" in said(done)


def test_an_artifact_that_is_new_has_no_base(work: Path) -> None:
    root = work / "full"
    git(root, "mv", "art", "elsewhere")
    write(root, {"pyproject.toml": '[tool.pytest_evo]\nartifact = "elsewhere"\n'})
    done = gate(root, *REF)
    assert done.returncode == 4, said(done)
    assert "is not there at" in said(done)


def test_the_same_commit_is_said_and_nothing_is_run(work: Path) -> None:
    root = work / "full"
    git(root, "checkout", "-q", "origin/main")
    done = gate(root, *REF)
    assert done.returncode == 0, said(done)
    assert "nothing was run" in done.stdout


def test_a_merge_with_conflicts_is_refused(work: Path) -> None:
    root = work / "full"
    write(root, {"art/level.txt": "7"})
    commit(root, "another way")
    git(root, "checkout", "-q", "-b", "mine", "origin/main")
    write(root, {"art/level.txt": "8"})
    commit(root, "mine")
    merge = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", "merge", "change"],
        cwd=root,
        env=environment(),
        capture_output=True,
        check=False,
    )
    assert merge.returncode
    done = gate(root, *REF)
    assert done.returncode == 4, said(done)
    assert "merge conflicts" in said(done)


def test_filters_and_monitors_of_the_repository_do_not_run(work: Path) -> None:
    root = work / "full"
    trap = work / "ran"
    git(root, "config", "filter.trap.smudge", f"touch {trap}; cat")
    git(root, "config", "filter.trap.clean", f"touch {trap}; cat")
    git(root, "config", "filter.trap.process", f"touch {trap}")
    git(root, "config", "core.fsmonitor", f"touch {trap}")
    git(root, "config", "diff.external", f"touch {trap}")
    write(root, {".gitattributes": "* filter=trap diff=trap export-ignore\n"})
    done = gate(root, *REF)
    assert done.returncode == 1, said(done)
    assert not trap.exists()
    assert verdict(root) == "regressed"


@pytest.mark.parametrize(
    "ref",
    ["--upload-pack=touch ran", "-h", "HEAD:art", "$(touch ran)", "a\nb", "HEAD ran"],
)
def test_a_hostile_ref_is_refused_and_runs_nothing(work: Path, ref: str) -> None:
    done = gate(work / "full", f"--evo-gate=git:{ref}", "-n", "0")
    assert done.returncode == 4, said(done)
    assert "Traceback" not in said(done)
    assert not (work / "full" / "ran").exists()
