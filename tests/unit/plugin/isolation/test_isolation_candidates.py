from __future__ import annotations

import errno
import hashlib
import importlib
import os
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.errors import EvoError
from pytest_evo.models import COPY_CHANGED
from pytest_evo.models import TreeEntry
from pytest_evo.plugin.isolation.candidates import CandidateCache
from pytest_evo.plugin.isolation.candidates import ManifestRefused
from pytest_evo.plugin.isolation.candidates import quiet_bytecode


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def entry(path: str, data: bytes, mode: int = 0o644) -> TreeEntry:
    return TreeEntry(path, "file", mode, sha(data), len(data))


@pytest.fixture
def cache(tmp_path: Path) -> CandidateCache:
    return CandidateCache(tmp_path / "cache")


def filled(cache: CandidateCache, *contents: bytes) -> None:
    for data in contents:
        cache.add(sha(data), data)


BIG = bytes(range(256)) * 1024
MANIFEST = (
    TreeEntry("empty", "dir", 0o755),
    TreeEntry("empty/deeper", "dir", 0o755),
    entry("frozen.txt", b"frozen", 0o444),
    TreeEntry("inside.txt", "link", target="locked/inner.txt"),
    TreeEntry("locked", "dir", 0o555),
    entry("locked/inner.txt", b"inner", 0o444),
    TreeEntry("loop", "link", target="loop"),
    TreeEntry("nowhere", "link", target="missing.txt"),
    entry("run.sh", b"#!/bin/sh\n", 0o755),
    entry("sub/big.bin", BIG),
    entry("token", b"secret", 0o600),
    entry("zero", b""),
)


@pytest.fixture
def full(cache: CandidateCache) -> CandidateCache:
    filled(cache, b"frozen", b"inner", b"#!/bin/sh\n", BIG, b"secret", b"")
    return cache


def test_missing_names_each_blob_once(cache: CandidateCache) -> None:
    manifest = (entry("a", b"one"), entry("b", b"one"), entry("c", b"two"))
    assert cache.missing(manifest) == [sha(b"one"), sha(b"two")]
    filled(cache, b"one")
    assert cache.missing(manifest) == [sha(b"two")]


def test_blobs_that_memory_has_no_room_for_are_files(tmp_path: Path) -> None:
    cache = CandidateCache(tmp_path, in_memory=100)
    contents = [b"%09d\n" % number for number in range(30)]
    filled(cache, *contents, BIG)
    manifest = tuple(
        entry(f"f{number:02}", data) for number, data in enumerate([*contents, BIG])
    )
    assert cache.missing(manifest) == []
    copy = cache.copy(manifest)
    assert [path.read_bytes() for path in sorted(copy.iterdir())] == [*contents, BIG]
    assert len(list((tmp_path / "blobs").iterdir())) == 20 + 1


def test_copy_that_memory_has_no_room_for_is_made_beside_the_blobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = tmp_path / "memory"
    cache = CandidateCache(tmp_path / "cache", memory)
    filled(cache, b"one", BIG)
    manifest = (entry("a", b"one"), entry("b", BIG))
    assert cache.copy(manifest).parent == memory
    write = CandidateCache._write

    def full(cache: CandidateCache, entry: TreeEntry, target: str) -> None:
        if target.startswith(f"{memory}/") and entry.path == "b":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        write(cache, entry, target)

    monkeypatch.setattr(CandidateCache, "_write", full)
    copy = cache.copy(manifest)
    assert copy.parent == tmp_path / "cache" / "copies"
    assert copy.parent.parent in cache.folders
    assert cache.violation(copy, manifest) is None
    assert len(list(memory.iterdir())) == 1


def test_damaged_blob_is_refused(cache: CandidateCache) -> None:
    with pytest.raises(EvoError, match="arrived damaged: 5 bytes"):
        cache.add(sha(b"right"), b"wrong")
    assert cache.missing((entry("a", b"right"),)) == [sha(b"right")]


def test_copy_keeps_bytes_modes_links_and_empty_folders(full: CandidateCache) -> None:
    copy = full.copy(MANIFEST)
    assert (copy / "sub" / "big.bin").read_bytes() == BIG
    assert (copy / "zero").read_bytes() == b""
    assert (copy / "empty" / "deeper").is_dir()
    assert (copy / "inside.txt").readlink() == Path("locked/inner.txt")
    assert (copy / "loop").readlink() == Path("loop")
    assert (copy / "nowhere").is_symlink()
    modes = {
        name: stat.S_IMODE((copy / name).stat().st_mode)
        for name in ("run.sh", "token", "frozen.txt", "locked", "sub")
    }
    assert modes == {
        "run.sh": 0o755,
        "token": 0o600,
        "frozen.txt": 0o444,
        "locked": 0o555,
        "sub": 0o755,
    }
    assert full.violation(copy, MANIFEST) is None


def test_two_copies_share_nothing_with_each_other_or_the_store(
    full: CandidateCache,
) -> None:
    one, two = full.copy(MANIFEST), full.copy(MANIFEST)
    for name in ("token", "sub/big.bin"):
        with (one / name).open("r+b") as file:
            file.write(b"scribble")
    assert full.violation(two, MANIFEST) is None
    assert full.violation(full.copy(MANIFEST), MANIFEST) is None


def test_copy_can_be_made_in_a_given_place(
    full: CandidateCache, tmp_path: Path
) -> None:
    place = tmp_path / "project" / "artifact"
    assert full.copy(MANIFEST, place) == place
    assert (place / "token").read_bytes() == b"secret"


def test_violation_names_what_a_request_did(full: CandidateCache) -> None:
    copy = full.copy(MANIFEST)
    (copy / "hits.txt").write_text("x")
    (copy / "token").write_text("sekret")  # same size
    (copy / "zero").unlink()
    assert full.violation(copy, MANIFEST) == (
        f"{COPY_CHANGED}added hits.txt; changed token; removed zero"
    )


@pytest.mark.parametrize("change", ["mode", "link", "kind", "hard link", "folder"])
def test_violation_sees_more_than_bytes(full: CandidateCache, change: str) -> None:
    copy = full.copy(MANIFEST)
    if change == "mode":
        (copy / "run.sh").chmod(0o644)
    elif change == "link":
        (copy / "inside.txt").unlink()
        (copy / "inside.txt").symlink_to("token")
    elif change == "kind":
        (copy / "zero").unlink()
        (copy / "zero").symlink_to("token")
    elif change == "hard link":
        os.link(copy / "token", copy.parent / "outside")
    else:
        (copy / "new").mkdir()
    assert full.violation(copy, MANIFEST) is not None


def test_copy_that_was_removed_altogether_is_a_violation(
    full: CandidateCache,
) -> None:
    copy = full.copy(MANIFEST)
    full.remove(copy)
    said = full.violation(copy, MANIFEST)
    assert said is not None
    assert said.startswith(f"{COPY_CHANGED}removed empty, ")


def test_byte_code_made_by_imports_is_no_violation(full: CandidateCache) -> None:
    copy = full.copy(MANIFEST)
    (copy / "sub" / "__pycache__").mkdir()
    (copy / "sub" / "__pycache__" / "m.cpython-311.pyc").write_bytes(b"")
    assert full.violation(copy, MANIFEST) is None


def test_byte_code_of_a_manifest_is_left_out(cache: CandidateCache) -> None:
    filled(cache, b"x = 1\n")
    manifest = (
        TreeEntry("__pycache__", "dir", 0o755),
        entry("__pycache__/m.cpython-311.pyc", b"evil"),
        entry("m.py", b"x = 1\n"),
        entry("m.pyc", b"evil"),
    )
    assert cache.missing(manifest) == []
    copy = cache.copy(manifest)
    assert [path.name for path in copy.iterdir()] == ["m.py"]
    assert cache.violation(copy, manifest) is None


@pytest.mark.parametrize(
    "bad",
    [
        entry("../out", b"x"),
        entry("/etc/out", b"x"),
        entry("a/../../out", b"x"),
        entry("a//b", b"x"),
        entry("", b"x"),
        entry("..", b"x"),
        TreeEntry("link", "link", target="../out"),
        TreeEntry("sub/link", "link", target="../../out"),
        TreeEntry("link", "link", target="/etc/passwd"),
        TreeEntry("link", "link", target=""),
    ],
    ids=lambda bad: bad.path + ":" + bad.target,
)
def test_names_that_lead_out_are_refused(
    cache: CandidateCache, tmp_path: Path, bad: TreeEntry
) -> None:
    filled(cache, b"x")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ManifestRefused):
        cache.copy((bad,))
    assert sorted(tmp_path.rglob("*")) == before


def test_file_below_a_link_is_refused(cache: CandidateCache) -> None:
    filled(cache, b"x")
    manifest = (TreeEntry("d", "link", target="e"), entry("d/x", b"x"))
    with pytest.raises(ManifestRefused, match="below a link"):
        cache.copy(manifest)


def test_read_only_and_locked_copies_are_removed(full: CandidateCache) -> None:
    copy = full.copy(MANIFEST)
    (copy / "sub").chmod(0)
    full.remove(copy)
    assert not copy.exists()
    full.remove(copy)


def test_same_size_in_the_same_second_is_told_apart(
    cache: CandidateCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")
    filled(cache, b"X = 1\n", b"X = 2\n")
    quiet_bytecode()
    for data in (b"X = 1\n", b"X = 2\n"):
        copy = cache.copy((entry("samesecond_mod.py", data),))
        os.utime(copy / "samesecond_mod.py", (1_700_000_000, 1_700_000_000))
        monkeypatch.syspath_prepend(str(copy))
        module = importlib.import_module("samesecond_mod")
        assert int(data[4:5]) == module.X
        assert not (copy / "__pycache__").exists()
        del sys.modules["samesecond_mod"]
        sys.path.remove(str(copy))


names = st.text("abc", min_size=1, max_size=2)
trees = st.dictionaries(
    st.lists(names, min_size=1, max_size=3).map("/".join),
    st.binary(max_size=40),
    max_size=6,
).filter(
    lambda tree: (
        not any(other.startswith(name + "/") for name in tree for other in tree)
    )
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(tree=trees)
def test_copy_holds_exactly_the_manifest(
    tmp_path: Path, tree: dict[str, bytes]
) -> None:
    cache = CandidateCache(tmp_path / "property")
    filled(cache, *tree.values())
    manifest = tuple(entry(name, data) for name, data in sorted(tree.items()))
    copy = cache.copy(manifest)
    found = {
        path.relative_to(copy).as_posix(): path.read_bytes()
        for path in copy.rglob("*")
        if path.is_file()
    }
    assert found == tree
    assert cache.violation(copy, manifest) is None
    cache.remove(copy)
