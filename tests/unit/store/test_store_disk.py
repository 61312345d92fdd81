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


@pytest.mark.usefixtures("full_disk")
@pytest.mark.parametrize("write", [write_atomic, write_once])
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
