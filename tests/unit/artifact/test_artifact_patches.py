from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.patches import diff
from pytest_evo.artifact.trees import make_tree
from pytest_evo.artifact.trees import restore
from pytest_evo.artifact.trees import snapshot
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not there")


def tree_with(blobs: MemoryBlobs, **files: str | bytes) -> Tree:
    return make_tree(
        TreeEntry(name, "file", 0o644, blobs.put(data.encode()), len(data))
        if isinstance(data, str)
        else TreeEntry(name, "file", 0o644, blobs.put(data), len(data))
        for name, data in files.items()
    )


def test_diff_of_equal_versions_is_empty():
    blobs = MemoryBlobs()
    tree = tree_with(blobs, a="1\n")
    assert diff(tree, tree, blobs) == ""


def test_diff_is_a_unified_patch_with_context():
    blobs = MemoryBlobs()
    lines = [f"line {n}\n" for n in range(30)]
    old = tree_with(blobs, prompt="".join(lines))
    lines[4], lines[25] = "changed\n", "line 25\nadded\n"
    new = tree_with(blobs, prompt="".join(lines))
    assert diff(old, new, blobs).splitlines()[2:] == [
        "--- a/prompt",
        "+++ b/prompt",
        "@@ -2,7 +2,7 @@",
        " line 1",
        " line 2",
        " line 3",
        "-line 4",
        "+changed",
        " line 5",
        " line 6",
        " line 7",
        "@@ -24,6 +24,7 @@",
        " line 23",
        " line 24",
        " line 25",
        "+added",
        " line 26",
        " line 27",
        " line 28",
    ]


def test_diff_notes_binary_files_without_their_bytes():
    blobs = MemoryBlobs()
    old, new = tree_with(blobs, a=b"\0" * 9), tree_with(blobs, a=b"\0" * 10)
    text = diff(old, new, blobs)
    assert "Binary files a/a (9 bytes) and b/a (10 bytes) differ" in text
    assert "\0" not in text


def test_diff_of_hostile_texts_is_not_slow():
    blobs = MemoryBlobs()
    few = ["".join("ab"[n % m % 2] + "\n" for n in range(1400)) for m in (3, 7)]
    big = tree_with(blobs, a="a\nb\n" * 100_000, b=few[0])
    other = tree_with(blobs, a="b\na\nx\n" * 100_000, b=few[1])
    before = time.process_time()
    assert len(diff(big, other, blobs)) > 1_000_000
    assert time.process_time() - before < 10  # 0.3 here; minutes without the guard


lines = st.lists(st.sampled_from(["a", "b", "c\r", "é", " x", "-y", ""]), max_size=20)
contents = st.one_of(
    lines.map("\n".join), lines.map(lambda some: "".join(f"{one}\n" for one in some))
)
entries = st.one_of(
    st.tuples(
        st.just("file"), contents.map(str.encode), st.sampled_from([0o644, 0o755])
    ),
    st.tuples(st.just("file"), st.binary(max_size=200), st.just(0o644)),
    st.tuples(st.just("link"), st.sampled_from([b"gone", b"other/x"]), st.just(0)),
)
versions = st.dictionaries(
    st.sampled_from(
        ["a", "b c", 'q"uote', "new\nline", "sub/é.md", "sub/deep/x", "tab\t"]
    ),
    entries,
    max_size=5,
)


def version(blobs: MemoryBlobs, files: dict) -> Tree:
    found = []
    for name, (kind, data, mode) in files.items():
        folders = [f for f in ("sub", "sub/deep") if name.startswith(f)]
        found += [TreeEntry(folder, "dir", 0o755) for folder in folders]
        if kind == "link":
            found.append(TreeEntry(name, "link", 0o777, target=data.decode()))
        else:
            found.append(TreeEntry(name, "file", mode, blobs.put(data), len(data)))
    return make_tree({entry.path: entry for entry in found}.values())


@needs_git
@settings(deadline=None)
@given(before=versions, after=versions)
def test_git_applies_the_patch_to_the_same_version(before, after):
    blobs = MemoryBlobs()
    old, new = version(blobs, before), version(blobs, after)
    text = diff(old, new, blobs, binary=True)
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, "a")
        restore(old, blobs, folder)
        if text:
            done = subprocess.run(
                [
                    "git",
                    "-c",
                    "core.autocrlf=false",
                    "apply",
                    "--whitespace=nowarn",
                    "-",
                ],
                cwd=folder,
                input=text.encode(),
                capture_output=True,
                env={"GIT_CEILING_DIRECTORIES": top, "PATH": "/usr/bin:/bin"},
            )
            assert done.returncode == 0, done.stderr.decode() + text
        found = snapshot(folder, blobs)
    assert facts(found) == facts(new)


def facts(tree: Tree) -> list[tuple[str, str, str, bool]]:
    return [
        (e.path, e.kind, e.blob or e.target, bool(e.mode & 0o100))
        for e in tree.entries
        if e.kind != "dir"
    ]
