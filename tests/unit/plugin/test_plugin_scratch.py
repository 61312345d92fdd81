from __future__ import annotations

from pathlib import Path

from pytest_evo.plugin.scratch import bytes_below
from pytest_evo.plugin.scratch import scratch_directory


def test_size_is_that_of_all_files_and_of_links_themselves(tmp_path: Path) -> None:
    (tmp_path / "art" / "sub").mkdir(parents=True)
    (tmp_path / "big").write_bytes(b"x" * 10_000)
    (tmp_path / "art" / "a").write_bytes(b"x" * 10)
    (tmp_path / "art" / "sub" / "b").write_bytes(b"x" * 5)
    assert bytes_below(tmp_path / "art") == 15
    (tmp_path / "art" / "link").symlink_to(tmp_path / "big")
    assert 15 < bytes_below(tmp_path / "art") < 10_000


def test_what_memory_has_no_room_for_goes_to_the_usual_place(
    tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = scratch_directory("evo-", 10**18)
    assert made.parent == tmp_path
    assert made.name.startswith("evo-")
