from __future__ import annotations

import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

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
