"""What a child forgets of the artifact's files, though it asks of few names."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_evo.plugin.isolation.listings import forget
from pytest_evo.plugin.isolation.mount import prepare

Cache = dict[str, object]


def add(cache: Cache, artifact: Path) -> None:
    cache[f"{artifact}/new.py"] = object()


def remove_and_add(cache: Cache, artifact: Path) -> None:
    del cache["/elsewhere/first.py"]
    cache[f"{artifact}/new.py"] = object()


def move_to_the_end(cache: Cache, artifact: Path) -> None:
    last = next(reversed(cache))
    del cache["/elsewhere/first.py"], cache[last]
    cache.update({f"{artifact}/new.py": object(), last: object()})


def empty_and_fill(cache: Cache, artifact: Path) -> None:
    cache.clear()
    cache.update({f"{artifact}/new.py": object(), "/elsewhere/new.py": object()})


def leave(cache: Cache, artifact: Path) -> None:
    """Nothing happens between the two looks."""


@pytest.mark.parametrize(
    "change", [leave, add, remove_and_add, move_to_the_end, empty_and_fill]
)
def test_names_below_the_artifact_are_forgotten_and_no_others(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[Cache, Path], None],
) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    caches: list[Cache] = []
    for module, name in ((linecache, "cache"), (sys, "path_importer_cache")):
        names = ("/elsewhere/first.py", f"{link}/old.py", f"{real}/old.py", "/last.py")
        cache: Cache = {name: object() for name in names}
        monkeypatch.setattr(module, name, cache)
        caches.append(cache)
    prepare(tmp_path / "copy", link)
    for cache in caches:
        change(cache, real)
    kept = [[name for name in cache if "elsewhere" in name] for cache in caches]
    forget(str(real))
    for cache, names in zip(caches, kept, strict=True):
        assert [name for name in cache if name != "/last.py"] == names


def test_caches_that_were_replaced_are_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(linecache, "cache", {})
    prepare(tmp_path / "copy", tmp_path)
    again: Cache = {f"{tmp_path}/a.py": object(), "/elsewhere/b.py": object()}
    monkeypatch.setattr(linecache, "cache", again)
    forget(str(tmp_path))
    assert list(again) == ["/elsewhere/b.py"]
