from __future__ import annotations

import os
import socket
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.links import leads_out
from pytest_evo.artifact.trees import changes
from pytest_evo.artifact.trees import left_out
from pytest_evo.artifact.trees import make_tree
from pytest_evo.artifact.trees import remove
from pytest_evo.artifact.trees import restore
from pytest_evo.artifact.trees import snapshot
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry


def write(root: Path, files: dict[str, bytes | str]) -> Path:
    for name, data in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    root.mkdir(parents=True, exist_ok=True)
    return root


# -- random trees --------------------------------------------------------------------

names = st.text(
    st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=6
).filter(
    lambda name: (
        name not in (".", "..")
        and name.lower() != ".git"
        and name != "__pycache__"
        and not name.lower().endswith((".pyc", ".pyo"))
    )
)
leaves = st.one_of(
    st.tuples(
        st.just("file"),
        st.binary(max_size=40),
        st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o555, 0o640]),
    ),
    st.tuples(st.just("link"), st.sampled_from(["gone", "a", ".", "b/../a"])),
)
folders = st.recursive(
    st.dictionaries(names, leaves, max_size=3),
    lambda inner: st.dictionaries(names, st.one_of(leaves, inner), max_size=3),
    max_leaves=12,
)


def build(root: Path, content: dict) -> None:
    root.mkdir()
    for name, what in content.items():
        if isinstance(what, dict):
            build(root / name, what)
        elif what[0] == "file":
            (root / name).write_bytes(what[1])
            (root / name).chmod(what[2])
        else:
            (root / name).symlink_to(what[1])


def facts(root: Path) -> dict[str, tuple[int, str | bytes]]:
    found: dict[str, tuple[int, str | bytes]] = {}
    for path in root.rglob("*"):
        mode = path.lstat().st_mode
        content: str | bytes = b""
        if stat.S_ISLNK(mode):
            content = str(path.readlink())
        elif stat.S_ISREG(mode):
            content = path.read_bytes()
        found[path.relative_to(root).as_posix()] = (mode, content)
    return found


def listed(folder: str | Path) -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


@settings(deadline=None)
@given(content=folders)
def test_restored_tree_is_the_directory_again(content):
    with tempfile.TemporaryDirectory() as top:
        source, copy = Path(top, "source"), Path(top, "copy")
        build(source, content)
        blobs = MemoryBlobs()
        tree = snapshot(source, blobs)
        restore(tree, blobs, copy)
        assert facts(copy) == facts(source)
        assert snapshot(copy, blobs) == tree
        remove(copy)
        remove(source)
        assert listed(top) == []


# -- what is kept --------------------------------------------------------------------


def test_snapshot_keeps_modes_empty_folders_links_and_binary(tmp_path):
    source = write(
        tmp_path / "a",
        {
            "run.sh": "#!/bin/sh\n",
            "zero": "",
            "blob": bytes(range(256)) * 9,
            "d/in": "x",
        },
    )
    (source / "empty" / "deeper").mkdir(parents=True)
    (source / "run.sh").chmod(0o755)
    (source / "token").write_text("s")
    (source / "token").chmod(0o600)
    (source / "d" / "in").chmod(0o444)
    (source / "loop").symlink_to("loop")
    (source / "d" / "up").symlink_to("..")
    (source / "d").chmod(0o555)
    blobs = MemoryBlobs()
    tree = snapshot(source, blobs)
    restore(tree, blobs, tmp_path / "b")
    assert facts(tmp_path / "b") == facts(source)
    assert stat.S_IMODE((tmp_path / "b/d").stat().st_mode) == 0o555
    remove(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    (source / "d").chmod(0o755)


def test_restored_files_share_nothing_with_each_other_or_the_store(tmp_path):
    source = write(tmp_path / "a", {"one": "same"})
    os.link(source / "one", source / "two")
    blobs = MemoryBlobs()
    tree = snapshot(source, blobs)
    restore(tree, blobs, tmp_path / "b")
    restore(tree, blobs, tmp_path / "c")
    (tmp_path / "b/one").write_text("other")
    assert (tmp_path / "b/two").read_text() == "same"
    assert (tmp_path / "c/one").read_text() == "same"
    assert snapshot(source, blobs) == tree


def test_hash_covers_path_kind_content_execute_bit_and_target():
    base = [TreeEntry("a", "file", 0o644, "b1", 1), TreeEntry("d", "dir", 0o755)]
    others = [
        [TreeEntry("b", "file", 0o644, "b1", 1), base[1]],
        [TreeEntry("a", "file", 0o644, "b2", 1), base[1]],
        [TreeEntry("a", "file", 0o755, "b1", 1), base[1]],
        [TreeEntry("a", "link", 0o777, target="b1"), base[1]],
        [TreeEntry("a", "link", 0o777, target="b2"), base[1]],
        [base[0]],
        [base[0], TreeEntry("d", "file", 0o644, "", 0)],
        [],
    ]
    assert len({make_tree(entries).hash for entries in [base, *others]}) == 9
    same = [TreeEntry("d", "dir", 0o555), TreeEntry("a", "file", 0o600, "b1", 1)]
    assert make_tree(same).hash == make_tree(base).hash


def test_snapshot_leaves_out_byte_code_and_git_and_says_so(tmp_path):
    source = write(
        tmp_path / "a",
        {
            "rule.py": "x = 1\n",
            "rule.pyc": b"\0",
            "__pycache__/rule.cpython-311.pyc": b"\0",
            ".git/HEAD": "ref",
            "sub/.git": "gitdir: ../elsewhere",
            ".gitignore": "build\n",
            "build/needed.txt": "y",
        },
    )
    tree = snapshot(source, MemoryBlobs())
    assert [entry.path for entry in tree.entries] == [
        ".gitignore",
        "build",
        "build/needed.txt",
        "rule.py",
        "sub",
    ]
    assert left_out(source) == (".git", "sub/.git")


def test_include_narrows_to_files_and_the_folders_they_need(tmp_path):
    source = write(
        tmp_path / "a",
        {"prompts/x/one.md": "1", "other/two.md": "2", "agent.yml": "3", "b.yml": "4"},
    )
    (source / "prompts/empty").mkdir()
    tree = snapshot(source, MemoryBlobs(), include=["prompts/**", "agent.yml"])
    assert [entry.path for entry in tree.entries] == [
        "agent.yml",
        "prompts",
        "prompts/empty",
        "prompts/x",
        "prompts/x/one.md",
    ]


# -- what is refused -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("links", "out"),
    [
        ({"a": ".."}, True),
        ({"a": "../outside"}, True),
        ({"d/a": "../.."}, True),
        ({"d/a": "../b"}, False),
        ({"d/up": ".."}, False),
        ({"a": "a"}, False),
        ({"a": "gone/../b"}, False),
        ({"a": "x/../../b"}, True),
        # by its letters it stays inside; the kernel goes through "d"
        ({"d": ".", "a": "d/../x"}, True),
        ({"s/d": "deep", "a": "s/d/../../../x"}, True),
        ({"s/d": "..", "a": "s/d/.."}, True),
        ({"a": "b/../..", "b": "c", "c": "."}, True),
    ],
)
def test_leads_out_follows_links_like_the_kernel(links, out):
    assert any(leads_out(path, links) for path in links) is out


@pytest.mark.parametrize(
    "target", ["..", "../outside", "../outside/secret", "sub/../../outside"]
)
def test_snapshot_refuses_links_that_leave(tmp_path, target):
    source = write(tmp_path / "a", {"sub/x": "1"})
    (source / "link").symlink_to(target)
    with pytest.raises(ArtifactProblem, match="a link that leaves the artifact"):
        snapshot(source, MemoryBlobs())


def test_snapshot_refuses_absolute_links_even_into_the_artifact(tmp_path):
    source = write(tmp_path / "a", {"x": "1"})
    (source / "link").symlink_to(source / "x")
    with pytest.raises(ArtifactProblem, match=r"absolute target.*Make it relative"):
        snapshot(source, MemoryBlobs())


def test_snapshot_refuses_pipes_and_sockets_without_hanging(tmp_path):
    source = write(tmp_path / "a", {"x": "1"})
    os.mkfifo(source / "pipe")
    with pytest.raises(ArtifactProblem, match="'pipe' is a pipe"):
        snapshot(source, MemoryBlobs())
    (source / "pipe").unlink()
    here = Path.cwd()
    os.chdir(source)  # the name of a socket may not be long
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("sock")
            with pytest.raises(ArtifactProblem, match="'sock' is a pipe, a socket"):
                snapshot(source, MemoryBlobs())
    finally:
        os.chdir(here)


def test_snapshot_refuses_names_that_are_not_utf8(tmp_path):
    source = write(tmp_path / "a", {"x": "1"})
    (source / os.fsdecode(b"\xff")).write_text("")
    with pytest.raises(ArtifactProblem, match="not UTF-8"):
        snapshot(source, MemoryBlobs())


def test_snapshot_refuses_what_the_owner_may_not_read(tmp_path):
    source = write(tmp_path / "a", {"x": "1"})
    (source / "x").chmod(0o200)
    with pytest.raises(ArtifactProblem, match=r"'x' cannot be read.*chmod u\+r"):
        snapshot(source, MemoryBlobs())


def test_snapshot_does_not_follow_a_link_in_place_of_the_directory(tmp_path):
    write(tmp_path / "a", {"x": "1"})
    (tmp_path / "link").symlink_to("a")
    with pytest.raises(ArtifactProblem, match="cannot be read"):
        snapshot(tmp_path / "link", MemoryBlobs())


def test_limits_hold_before_anything_is_stored(tmp_path):
    source = write(tmp_path / "a", {f"f{n}": "xx" for n in range(10)})
    blobs = MemoryBlobs()
    with pytest.raises(ArtifactProblem, match=r"more than 9 files.*max_files"):
        snapshot(source, blobs, max_files=9)
    with pytest.raises(ArtifactProblem, match=r"more than 19 bytes.*max_bytes"):
        snapshot(source, blobs, max_bytes=19)
    assert blobs._blobs == {}
    assert snapshot(source, blobs, max_files=10, max_bytes=20).entries


def test_a_sparse_file_over_the_limit_is_not_read(tmp_path):
    source = write(tmp_path / "a", {"x": "1"})
    with (source / "huge").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ArtifactProblem, match="'huge' alone has 1099511627776"):
        snapshot(source, MemoryBlobs(), max_bytes=5_000_000)


def test_all_links_that_leave_are_told_at_once(tmp_path):
    source = write(tmp_path / "a", {"x": "1"})
    for number in range(7):
        (source / f"l{number}").symlink_to("../gone")
    (source / "abs").symlink_to("/etc/passwd")
    with pytest.raises(ArtifactProblem) as caught:
        snapshot(source, MemoryBlobs())
    assert "'l0' -> '../gone', 'l1'" in str(caught.value)
    assert "and 2 more" in str(caught.value)
    assert "'abs' -> '/etc/passwd': a link with an absolute" in str(caught.value)


def test_a_sparse_file_stays_sparse(tmp_path):
    source = write(tmp_path / "a", {"x": "1"})
    with (source / "sparse").open("wb") as file:
        file.write(b"start")
        file.seek(20_000_000)
        file.write(b"end")
        file.truncate(30_000_001)
    blobs = MemoryBlobs()
    restore(snapshot(source, blobs), blobs, tmp_path / "b")
    copy = tmp_path / "b" / "sparse"
    assert copy.read_bytes() == (source / "sparse").read_bytes()
    assert copy.stat().st_blocks * 512 < 2_000_000


def test_restore_refuses_a_directory_that_holds_something(tmp_path):
    target = write(tmp_path / "b", {"x": "1"})
    with pytest.raises(ArtifactProblem, match="not empty"):
        restore(make_tree([]), MemoryBlobs(), target)
    assert (target / "x").read_text() == "1"


paths = st.lists(
    st.sampled_from(["..", ".", "", "a", "b", "d"]), min_size=1, max_size=4
).map("/".join)
hostile = st.lists(
    st.one_of(
        paths.map(lambda path: TreeEntry(path, "file", 0o644)),
        paths.map(lambda path: TreeEntry("/" + path, "file", 0o644)),
        paths.map(lambda path: TreeEntry(path, "dir", 0o755)),
        st.tuples(paths, paths).map(lambda p: TreeEntry(p[0], "link", target=p[1])),
    ),
    max_size=5,
)


@given(entries=hostile)
@example([TreeEntry("a", "dir", 0o755), TreeEntry("a", "link", target=".")])
@example([TreeEntry("a/a", "dir", 0o755), TreeEntry("a", "dir", 0o755)])
@example([TreeEntry("a", "link", target="")])
def test_restore_never_writes_outside_whatever_the_tree_says(entries):
    with tempfile.TemporaryDirectory() as top:
        blobs = MemoryBlobs()
        name = blobs.put(b"")
        entries = [
            TreeEntry(
                e.path, e.kind, e.mode, name if e.kind == "file" else "", 0, e.target
            )
            for e in entries
        ]
        tree = Tree("0" * 64, tuple(entries))
        try:
            restore(tree, blobs, Path(top, "in", "copy"))
        except ArtifactProblem:
            return
        assert listed(top) == ["in"]
        assert listed(Path(top, "in")) == ["copy"]
        snapshot(Path(top, "in", "copy"), blobs)  # no link leaves it


def test_restore_leaves_nothing_behind_when_it_fails(tmp_path):
    tree = make_tree([TreeEntry("a", "file", 0o644, "gone", 3)])
    with pytest.raises(KeyError):
        restore(tree, MemoryBlobs(), tmp_path / "b")
    assert not (tmp_path / "b").exists()


# -- removing ------------------------------------------------------------------------


def test_remove_takes_very_deep_and_closed_folders_and_no_link_target(tmp_path):
    outside = write(tmp_path / "outside", {"keep": "1"})
    top = tmp_path / "top"
    top.mkdir()
    here = Path.cwd()
    os.chdir(top)
    try:
        for _ in range(1200):
            Path("d").mkdir()
            os.chdir("d")
        Path("file").write_text("x")
        Path("link").symlink_to(outside)
        Path().chmod(0o000)
    finally:
        os.chdir(here)
    (top / "closed").mkdir()
    (top / "closed").chmod(0o000)
    remove(top)
    assert not top.exists()
    assert (outside / "keep").read_text() == "1"


def test_remove_takes_a_link_and_a_missing_directory(tmp_path):
    outside = write(tmp_path / "outside", {"keep": "1"})
    (tmp_path / "link").symlink_to(outside)
    remove(tmp_path / "link")
    remove(tmp_path / "gone")
    assert listed(tmp_path) == ["outside"]
    assert (outside / "keep").exists()


def test_changes_lists_files_and_only_empty_folders():
    def tree(*entries: TreeEntry) -> Tree:
        return make_tree(entries)

    def file(path: str, blob: str = "1", mode: int = 0o644) -> TreeEntry:
        return TreeEntry(path, "file", mode, blob, 1)

    def folder(path: str) -> TreeEntry:
        return TreeEntry(path, "dir", 0o755)

    old = tree(file("a"), folder("d"), file("d/x"), folder("e"), file("run"))
    new = tree(
        file("a", "2"), folder("d"), folder("n"), file("n/y"), file("run", "1", 0o755)
    )
    assert changes(old, new) == (
        ("a", "modified"),
        ("d/x", "deleted"),
        ("e", "deleted"),
        ("n/y", "added"),
        ("run", "modified"),
    )
    assert changes(old, old) == ()
    swapped = tree(folder("a"), file("a/b"), file("d"), file("e"), file("run"))
    assert changes(old, swapped) == (
        ("a", "deleted"),
        ("a/b", "added"),
        ("d", "added"),
        ("d/x", "deleted"),
        ("e", "modified"),
    )


contents = st.dictionaries(
    st.sampled_from(["a", "b", "d", "e"]),
    st.tuples(st.sampled_from(["1", "2"]), st.sampled_from([0o644, 0o600, 0o755])),
)


@given(contents, contents)
def test_changes_of_files_are_those_of_content_and_execute_bit(before, after):
    def tree(files):
        return make_tree(
            TreeEntry(path, "file", mode, blob) for path, (blob, mode) in files.items()
        )

    def told(files):
        return {path: (blob, mode & 0o100) for path, (blob, mode) in files.items()}

    was, now = told(before), told(after)
    assert dict(changes(tree(before), tree(after))) == {
        **dict.fromkeys(was.keys() - now.keys(), "deleted"),
        **dict.fromkeys(now.keys() - was.keys(), "added"),
        **{path: "modified" for path in was.keys() & now if was[path] != now[path]},
    }


def test_snapshot_of_a_megabyte_stores_nothing_twice(tmp_path):
    source = write(tmp_path / "a", {f"d/f{n}": os.urandom(10_000) for n in range(100)})

    class Counting(MemoryBlobs):
        puts = 0

        def put(self, data: bytes) -> str:
            self.puts += 1
            return super().put(data)

    blobs = Counting()
    first = snapshot(source, blobs)
    assert snapshot(source, blobs) == first
    assert blobs.puts == 100
