from __future__ import annotations

import os
from pathlib import Path

import pytest

from pytest_evo.plugin.room import no_room


def stat(free: int, inodes: int, inodes_left: int) -> os.statvfs_result:
    block = 4096
    return os.statvfs_result(
        (block, block, 100, free, free, inodes, inodes_left, inodes_left, 0, 255)
    )


@pytest.mark.parametrize(
    ("free", "inodes", "left", "said"),
    [
        (1000, 500, 20, None),
        (1000, 0, 0, None),  # a file system that has no such limit
        (3, 500, 20, "12288 bytes are left"),
        (1000, 500, 0, "no inodes are left"),
    ],
)
def test_disk_without_room_is_told_with_the_way_on(
    free: int,
    inodes: int,
    left: int,
    said: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda path: stat(free, inodes, left))
    text = no_room(tmp_path)
    if said is None:
        assert text is None
    else:
        assert text is not None
        assert said in text
        assert str(tmp_path) in text
        assert "--evo-resume=last" in text


def test_directory_that_is_gone_is_no_full_disk(tmp_path: Path) -> None:
    assert no_room(tmp_path / "gone") is None
