from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_evo.plugin import scratch
from pytest_evo.plugin.scratch import bytes_below
from pytest_evo.plugin.scratch import give_back
from pytest_evo.plugin.scratch import remove_abandoned
from pytest_evo.plugin.scratch import scratch_directory
from pytest_evo.plugin.scratch import temporary_directory

pytest.importorskip("fcntl")
OWNER = """
import fcntl, os, sys
from pytest_evo.plugin.scratch import temporary_directory
print(temporary_directory("evo-"), flush=True)
if "unlock" in sys.argv:
    child = os.fork()
    if not child:
        for number in range(3, 100):
            try:
                fcntl.flock(number, fcntl.LOCK_UN)
            except OSError:
                pass
        os._exit(0)
    os.waitpid(child, 0)
    print("tried", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_MEMORY", tmp_path)
    return tmp_path


@pytest.fixture
def owner(place: Path) -> Iterator[subprocess.Popen[str]]:
    process = _start(place)
    yield process
    process.kill()
    process.communicate()


def _start(place: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", OWNER, *words],
        env={**os.environ, "TMPDIR": str(place)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def made_by(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def age(path: Path) -> None:
    hour_ago = time.time() - 3600
    os.utime(path, (hour_ago, hour_ago))


def claim(path: Path) -> None:
    (path / ".pytest-evo").write_bytes(scratch._identity(path))


def test_size_is_that_of_all_files_and_of_links_themselves(tmp_path: Path) -> None:
    (tmp_path / "art" / "sub").mkdir(parents=True)
    (tmp_path / "big").write_bytes(b"x" * 10_000)
    (tmp_path / "art" / "a").write_bytes(b"x" * 10)
    (tmp_path / "art" / "sub" / "b").write_bytes(b"x" * 5)
    assert bytes_below(tmp_path / "art") == 15
    (tmp_path / "art" / "link").symlink_to(tmp_path / "big")
    assert 15 < bytes_below(tmp_path / "art") < 10_000


def test_what_memory_has_no_room_for_goes_to_the_usual_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = scratch_directory("evo-", 10**18)
    assert made.parent == tmp_path
    assert made.name.startswith("evo-")
    give_back(made)
    assert list(tmp_path.iterdir()) == []


def test_scratch_directory_is_new_and_writable() -> None:
    one, two = scratch_directory("evo-test-", 10), scratch_directory("evo-test-", 10)
    assert one != two
    for path in (one, two):
        (path / "file").write_text("x")
        give_back(path)
        assert not path.exists()


def test_directory_of_a_killed_process_is_removed(
    owner: subprocess.Popen[str],
) -> None:
    made = made_by(owner)
    (made / "copies").mkdir()
    (made / "copies" / "file").write_text("left")
    owner.kill()
    owner.wait()
    age(made)
    remove_abandoned("evo-")
    assert not made.exists()


def test_directory_of_a_living_process_stays(owner: subprocess.Popen[str]) -> None:
    made = made_by(owner)
    age(made)
    remove_abandoned("evo-")
    assert made.is_dir()


def test_read_only_folders_of_a_killed_process_are_removed(
    owner: subprocess.Popen[str],
) -> None:
    made = made_by(owner)
    (made / "copies" / "locked").mkdir(parents=True)
    (made / "copies" / "locked" / "file").touch()
    (made / "copies" / "locked").chmod(0o500)
    owner.kill()
    owner.wait()
    age(made)
    remove_abandoned("evo-")
    assert not made.exists()


def test_copy_that_somebody_made_stays(owner: subprocess.Popen[str]) -> None:
    made = made_by(owner)
    kept = made.with_name("evo-kept")
    shutil.copytree(made, kept)
    owner.kill()
    owner.wait()
    age(kept)
    remove_abandoned("evo-")
    assert kept.is_dir()


def test_fork_cannot_give_a_directory_back_to_others(place: Path) -> None:
    process = _start(place, "unlock")
    made = made_by(process)
    assert process.stdout is not None
    assert process.stdout.readline() == "tried\n"
    age(made)
    remove_abandoned("evo-")
    assert made.is_dir()
    process.communicate("")


def test_own_directory_stays_until_it_is_given_back(place: Path) -> None:
    made = temporary_directory("evo-")
    age(made)
    remove_abandoned("evo-")
    assert made.is_dir()
    give_back(made)
    assert not made.exists()


@pytest.mark.parametrize("name", ["evo-agents", "evo-link", "other-abc"])
def test_what_was_not_made_here_stays(place: Path, name: str) -> None:
    target = place / "evo" if name == "evo-link" else place / name
    target.mkdir()
    if name == "evo-link":
        (place / name).symlink_to(target)
    if name != "evo-agents":
        claim(target)
    age(target)
    remove_abandoned("evo-")
    assert target.is_dir()


def test_directory_that_is_just_made_stays(place: Path) -> None:
    made = place / "evo-new"
    made.mkdir()
    claim(made)
    remove_abandoned("evo-")
    assert made.is_dir()
    age(made)
    remove_abandoned("evo-")
    assert not made.exists()
