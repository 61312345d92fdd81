"""Whole runs of artifacts with odd files, links, modes, repositories and sizes."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from odd_project import make_odd
from odd_project import run_odd

from pytest_evo.artifact.removal import remove

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links, modes and pipes")
PASSED, FAILED = "passed", "failed"
WORD = """
from pathlib import Path

ART = Path(__file__).parent / "art"

def test_word(): assert (ART / "word.txt").read_text() == "right"
def test_word_again(): assert (ART / "word.txt").read_text() == "right"
"""
LINKS = (
    WORD
    + """
def test_links_are_links():
    assert (ART / "same.txt").readlink() == Path("word.txt")
    assert (ART / "same.txt").read_text() == (ART / "word.txt").read_text()
    assert (ART / "folder" / "up" / "folder" / "inner.txt").read_text() == "inner"
    assert (ART / "nowhere").is_symlink() and not (ART / "nowhere").exists()
    assert (ART / "round").is_symlink()
"""
)


def test_links_inside_stay_links_and_links_out_are_refused(
    pytester: pytest.Pytester,
) -> None:
    files = {
        "art/word.txt": "wrong",
        "art/folder/inner.txt": "inner",
        "outside/secret.txt": "secret",
        "test_links.py": LINKS,
    }
    root = make_odd(
        pytester.path,
        files,
        [{"same.txt": "right"}, {"word.txt": "right", "more.txt": ""}],
    )
    art = root / "art"
    for name, target in {
        "same.txt": "word.txt",
        "folder/up": "..",
        "nowhere": "missing.txt",
        "round": "round",
    }.items():
        (art / name).symlink_to(target)
    done = run_odd(root, "-n", "0")
    for number in (1, 2):
        assert set(done.outcomes(number).values()) == {PASSED}
    assert (art / "word.txt").read_text() == "wrong"

    (art / "out.txt").symlink_to("../outside/secret.txt")
    (art / "all").symlink_to("../outside")
    (art / "absolute.txt").symlink_to(art / "word.txt")
    refused = run_odd(root, "-n", "0", status=4)
    for name in ("'out.txt'", "'all'", "'absolute.txt'"):
        assert name in refused.output
    assert "Make it relative" in refused.output
    assert (root / "outside" / "secret.txt").read_text() == "secret"


KINDS = """
import os
import stat
import subprocess
from pathlib import Path

ART = Path(__file__).parent / "art"

def test_modes():
    seen = {n: stat.S_IMODE((ART / n).stat().st_mode) for n in
            ("run.sh", "token", "frozen.txt", "locked")}
    assert seen == {"run.sh": 0o755, "token": 0o600, "frozen.txt": 0o444,
                    "locked": 0o555}

def test_script():
    assert subprocess.check_output([ART / "run.sh"], text=True) == "after\\n"
def test_script_again(): test_script()

def test_contents():
    assert (ART / "empty" / "deep").is_dir()
    assert (ART / "zero").stat().st_size == 0
    assert (ART / "all.bin").read_bytes() == bytes(range(256)) * 9

def test_twins_are_two():
    assert (ART / "twin-a").read_text() == (ART / "twin-b").read_text() == "twin"
    os.chmod(ART / "twin-a", 0o644)
    (ART / "twin-a").write_text("scribble")
"""
SCRIPT = """
def propose(request):
    artifact = request.workspace / "artifact"
    script = artifact / "run.sh"
    script.write_text(script.read_text().replace("before", "after"))
    return "after"
"""


def test_modes_and_kinds_of_files_survive_every_copy(pytester: pytest.Pytester) -> None:
    files = {
        "art/run.sh": "#!/bin/sh\necho before\n",
        "art/token": "token",
        "art/frozen.txt": "frozen",
        "art/locked/inner.txt": "inner",
        "art/zero": "",
        "art/twin-a": "twin",
        "test_kinds.py": KINDS,
        "proposals.py": SCRIPT,
    }
    root = make_odd(pytester.path, files, [{}])
    art = root / "art"
    (art / "empty" / "deep").mkdir(parents=True)
    (art / "all.bin").write_bytes(bytes(range(256)) * 9)
    os.link(art / "twin-a", art / "twin-b")
    modes = {"run.sh": 0o755, "token": 0o600, "frozen.txt": 0o444, "locked": 0o555}
    for name, mode in modes.items():
        (art / name).chmod(mode)
    done = run_odd(root, "-n", "1")
    assert done.outcomes()["test_script"] == FAILED
    assert set(done.outcomes(1).values()) == {PASSED}
    assert (art / "twin-a").read_text() == (art / "twin-b").read_text() == "twin"
    remove(root / ".evo")  # folders in it are read-only
    os.mkfifo(art / "pipe")
    refused = run_odd(root, "-n", "0", status=4)
    assert "'pipe'" in refused.output


REPOSITORY = (
    WORD
    + """
def test_ignored_and_untracked_files_are_there():
    assert (ART / "build" / "needed.txt").read_text() == "needed"
    assert (ART / "dos.txt").read_bytes() == b"one\\r\\ntwo\\r\\n"
def test_no_hook_has_run(): assert not (ART / "hook-has-run").exists()
def test_repository_is_left_out(): assert not (ART / ".git").exists()
"""
)


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_repository_in_the_artifact_is_left_alone(pytester: pytest.Pytester) -> None:
    files = {
        "art/word.txt": "wrong",
        "art/.gitignore": "build/\n",
        "art/.gitattributes": "*.txt text eol=lf\n",
        "decoy/file.txt": "decoy",
        "test_repository.py": REPOSITORY,
    }
    root = make_odd(pytester.path, files, [{"word.txt": "right"}])
    art, decoy = root / "art", root / "decoy"
    for folder in (art, decoy):
        git(folder, "init", "--quiet")
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message=first")
    (art / "build").mkdir()
    (art / "build" / "needed.txt").write_text("needed")
    (art / "dos.txt").write_bytes(b"one\r\ntwo\r\n")
    hook = art / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch hook-has-run\n")
    hook.chmod(0o755)
    before = [files_of(folder / ".git") for folder in (art, decoy)]
    hook_variables = {
        "GIT_DIR": str(decoy / ".git"),
        "GIT_INDEX_FILE": str(decoy / ".git" / "index"),
        "GIT_WORK_TREE": str(decoy),
    }
    done = run_odd(root, "-n", "1", variables=hook_variables)
    assert done.outcomes()["test_word"] == FAILED
    start = {name for name, outcome in done.outcomes().items() if outcome == PASSED}
    assert len(start) == 3
    assert set(done.outcomes(1).values()) == {PASSED}
    assert [files_of(folder / ".git") for folder in (art, decoy)] == before


def git(folder: Path, *arguments: str) -> None:
    """Run git as somebody without settings of his own."""
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ("-c", "user.name=A", "-c", "user.email=a@example.invalid")
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    command = ["git", *who, *arguments]
    subprocess.run(command, cwd=folder, env={**env, **own}, check=True)


def files_of(folder: Path) -> dict[str, bytes]:
    """Contents by name."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


BIG = (
    WORD
    + """
def test_count(): assert len(list((ART / "many").iterdir())) == 300
def test_hole():
    with (ART / "hole.bin").open("rb") as hole:
        assert hole.read(4) == bytes(4)
def test_scribble():
    one = ART / "many" / "1.txt"
    assert one.read_text() == "1"
    one.write_text("scribble")
"""
)
MEGABYTE = 1 << 20


@pytest.mark.skipif(sys.platform != "linux", reason="files with holes")
def test_big_artifact_costs_little_for_each_candidate(
    pytester: pytest.Pytester,
) -> None:
    files = {"art/word.txt": "wrong", "test_big.py": BIG}
    files |= {f"art/many/{n}.txt": str(n) for n in range(300)}
    edits = [{"word.txt": "right", "at.txt": str(n)} for n in range(2)]
    root = make_odd(pytester.path, files, edits)
    with (root / "art" / "hole.bin").open("wb") as hole:
        hole.truncate(24 * MEGABYTE)
    refused = run_odd(root, "-n", "0", status=4)
    assert "max_bytes" in refused.output
    assert not list((root / ".evo").rglob("blobs/*/*"))

    with (root / "pytest_evo.toml").open("a") as settings:
        settings.write("max_bytes = 30_000_000\n")
    done = run_odd(root, "-n", "1")
    for number in (1, 2):
        assert set(done.outcomes(number).values()) == {PASSED}, number
    assert (root / "art" / "many" / "1.txt").read_text() == "1"
    # less than one full copy for each of three versions
    seen, used = set(), 0
    for path in (root / ".evo").rglob("*"):
        status = path.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_ino not in seen:
            seen.add(status.st_ino)
            used += status.st_blocks * 512
    assert used < 2 * 24 * MEGABYTE + MEGABYTE * 3
