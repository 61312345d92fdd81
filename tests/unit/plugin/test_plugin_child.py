from __future__ import annotations

import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import _pytest.capture
import pytest

from pytest_evo.plugin.child import _capture_files_in_memory
from pytest_evo.plugin.child import _give_basetemp


def test_temporary_folder_is_made_when_a_test_asks_for_it(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    factory = pytest.TempPathFactory.from_config(request.config, _ispytest=True)
    config: Any = SimpleNamespace(_tmp_path_factory=factory)
    _give_basetemp(config, tmp_path / "link" / "all" / "own")
    assert list((tmp_path / "real").iterdir()) == []
    own = (tmp_path / "real").resolve() / "all" / "own"
    assert factory.mktemp("x") == own / "x0"
    assert factory.getbasetemp() == own
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no files in memory")
def test_output_is_captured_into_memory() -> None:
    before = vars(_pytest.capture)["TemporaryFile"]
    with _capture_files_in_memory():
        capture = _pytest.capture.FDCapture(1)
    assert vars(_pytest.capture)["TemporaryFile"] is before
    where = str(Path(f"/proc/self/fd/{capture.tmpfile.fileno()}").readlink())
    assert where.startswith("/memfd:")
    capture.start()
    os.write(1, "\N{SNOWMAN}\r\n".encode())
    said = capture.snap()
    capture.done()
    assert said == "\N{SNOWMAN}\r\n"


def test_output_is_captured_where_no_file_can_be_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    with _capture_files_in_memory():
        capture = _pytest.capture.FDCapture(2)
    capture.start()
    os.write(2, b"said")
    said = capture.snap()
    capture.done()
    assert said == "said"
