from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_evo.plugin.isolation.zygote import _preload


def test_packages_that_do_not_load_are_left_and_the_others_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources = {
        "evo_odd_own": "class Unset(Exception): pass\nraise Unset('configure me')",
        "evo_odd_end": "import sys\nsys.exit(3)",
        "evo_odd_gone": "import nothing_of_that_name",
        "evo_odd_fine": "import warnings\nwarnings.warn('told')",
    }
    for name, source in sources.items():
        (tmp_path / f"{name}.py").write_text(source)
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    assert _preload(sources) == ["evo_odd_own", "evo_odd_end", "evo_odd_gone"]
    assert "evo_odd_fine" in sys.modules


def test_nobody_who_asks_to_stop_is_ignored_while_packages_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evo_odd_stop.py").write_text("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        _preload(["evo_odd_stop"])
