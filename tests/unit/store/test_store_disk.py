from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.store import disk
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


@pytest.mark.parametrize("write", [write_atomic, write_once])
def test_failed_write_says_why_and_leaves_no_half_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: object
) -> None:
    assert callable(write)

    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:1])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "write_all", full)
    with pytest.raises(RunDirectoryProblem, match=r"cannot write .*a\.json.*make room"):
        write(tmp_path / "a.json", b"new")
    assert names(tmp_path) == []


def test_failed_atomic_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.json"
    write_atomic(path, b"old")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk, "write_all", full)
    with pytest.raises(RunDirectoryProblem):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"


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
