from __future__ import annotations

import errno
import os
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.store.disk import failed
from pytest_evo.store.disk import write_atomic
from pytest_evo.store.disk import write_once
from pytest_evo.store.disk import write_plain


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("durable", [True, False])
def test_atomic_write_replaces_and_leaves_nothing_beside(
    tmp_path: Path, durable: bool
) -> None:
    path = tmp_path / "a.json"
    for content in (b"old", b"new"):
        write_atomic(path, content, durable=durable)
        assert path.read_bytes() == content
    assert names(tmp_path) == ["a.json"]


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may grow beyond one byte, as on a disk with no room for the second."""
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def once(path: Path, data: bytes) -> None:
    write_once(path, data, lambda: path.read_bytes() == data)


def plain(path: Path, data: bytes) -> None:
    write_plain(str(path), data)


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("write", [write_atomic, once, plain])
def test_failed_write_says_why_and_leaves_no_half_file(
    tmp_path: Path, write: Callable[[Path, bytes], None]
) -> None:
    with pytest.raises(RunDirectoryProblem, match=r"cannot write .*a\.json.*make room"):
        write(tmp_path / "a.json", b"new")
    assert names(tmp_path) == []


@pytest.mark.usefixtures("full_disk")
def test_failed_atomic_write_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, b"1")
    with pytest.raises(RunDirectoryProblem):
        write_atomic(path, b"23")
    assert path.read_bytes() == b"1"


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "--evo-resume=last"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "--evo-run-dir=DIR"),
        (errno.EACCES, "writable"),
        (errno.EIO, "Check the disk"),
    ],
)
def test_failure_says_what_to_type(number: int, says: str) -> None:
    problem = failed(OSError(number, os.strerror(number)), Path("runs/x/journal.jsonl"))
    assert os.strerror(number) in str(problem)
    assert "runs/x/journal.jsonl" in str(problem)
    assert says in str(problem)


@pytest.mark.parametrize("write", [once, plain])
def test_folder_is_made_with_its_first_file(
    tmp_path: Path, write: Callable[[Path, bytes], None]
) -> None:
    path = tmp_path / "ab" / "cd" / "e"
    write(path, b"1")
    assert path.read_bytes() == b"1"


def test_content_that_a_crash_has_cut_is_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"ha")
    once(path, b"half")
    assert path.read_bytes() == b"half"


def test_whole_content_is_not_written_again(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"whole")
    before = path.stat()
    once(path, b"whole")
    after = path.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
