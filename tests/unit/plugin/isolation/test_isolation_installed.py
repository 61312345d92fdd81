"""What counts as installed, and what a fresh state keeps."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from pytest_evo.plugin.isolation.installed import forget_foreign
from pytest_evo.plugin.isolation.installed import installed_prefixes


def test_site_folders_added_to_the_path_hold_installed_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, sources = tmp_path / "site-packages", tmp_path / "src"
    monkeypatch.setattr(sys, "path", [*sys.path, str(site), str(sources)])
    found = installed_prefixes()
    assert f"{site}/" in found
    assert f"{sources}/" not in found


def test_forgetting_spares_what_was_there_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefixes = (*installed_prefixes(), f"{Path(__file__).parents[4]}/")
    for name in ("kept_module", "foreign_module"):
        module = ModuleType(name)
        module.__file__ = str(tmp_path / f"{name}.py")
        monkeypatch.setitem(sys.modules, name, module)
    gone = forget_foreign(prefixes, {*sys.modules} - {"foreign_module"})
    assert gone == ["foreign_module"]
    assert "kept_module" in sys.modules
