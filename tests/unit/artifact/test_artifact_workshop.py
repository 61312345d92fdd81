from __future__ import annotations

import contextlib
import os
import sys
import threading
from pathlib import Path

import pytest

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.blobs import MemoryTrees
from pytest_evo.artifact.trees import snapshot
from pytest_evo.artifact.workshop import DirectoryWorkshop
from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import EvoError
from pytest_evo.errors import ProposalRefused
from pytest_evo.evidence import Evidence
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Candidate
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import FileRule
from pytest_evo.models import Knob
from pytest_evo.models import Node
from pytest_evo.models import Proposal
from pytest_evo.protocols import KnobValue
from pytest_evo.protocols import ProposalKey
from pytest_evo.protocols import Workshop
from pytest_evo.store.blobs import DirectoryBlobs
from pytest_evo.store.trees import TreeFiles

KEY = ProposalKey(3, 1, 0)
KNOB = Knob("p.toml", "k", "int", 1, 9)
SCHEMA = ArtifactSchema(
    "artifact",
    (
        FileRule("p.toml", knobs=(KNOB,)),
        FileRule("*.md"),
        FileRule("run.sh"),
        FileRule("fixed.txt", edit=False),
    ),
    max_bytes=10_000,
    max_files=20,
)


class Bench:
    """A workshop with its start version."""

    def __init__(self, tmp_path: Path, schema: ArtifactSchema = SCHEMA, **more) -> None:
        source = tmp_path / "source"
        source.mkdir()
        for name, text in {
            "p.toml": "k = 2 # two\n",
            "a.md": "a\n",
            "b.md": "b\n",
            "run.sh": "#!/bin/sh\n",
            "fixed.txt": "x",
        }.items():
            (source / name).write_text(text)
        (source / "run.sh").chmod(0o755)
        self.root = tmp_path / "workspaces"
        self.blobs = MemoryBlobs()
        self.trees = MemoryTrees()
        self.shop = DirectoryWorkshop(self.root, self.blobs, self.trees, schema, **more)
        self.start = self.shop.register(snapshot(source, self.blobs))

    def edit(self, *edits, answer: Proposal | str = "because"):
        workspace = self.shop.open(KEY, self.start, (), ())
        for edit in edits:
            edit(workspace / "artifact")
        return self.shop.close(KEY, self.start, answer)

    def left(self) -> list[str]:
        """Workspaces that are still there, beside folders kept for the next ones."""
        return [path.name for path in self.root.iterdir() if path.name != "left"]


def write(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


def test_an_edit_comes_back_as_a_version_with_reasons(tmp_path):
    bench = Bench(tmp_path)
    edit = bench.edit(
        write("a.md", "new\n"),
        write("c.md", "c\n"),
        lambda folder: (folder / "b.md").unlink(),
        lambda folder: (folder / "__pycache__").mkdir(),
    )
    assert edit.changelog == (
        ChangelogEntry("a.md", "because", "modified"),
        ChangelogEntry("b.md", "because", "deleted"),
        ChangelogEntry("c.md", "because", "added"),
    )
    tree = bench.shop.tree(edit.tree)
    assert [e.path for e in tree.entries if e.kind == "file"] == [
        "a.md",
        "c.md",
        "fixed.txt",
        "p.toml",
        "run.sh",
    ]
    assert bench.shop.size(edit.tree) == 29
    assert bench.left() == []
    assert bench.shop.tree(bench.start) != tree


def test_a_changelog_is_matched_to_what_really_changed(tmp_path):
    bench = Bench(tmp_path)
    told = (
        ChangelogEntry("./b.md", "why b", "deleted", ("t::x",), "more"),
        ChangelogEntry("artifact/a.md", "why a"),
        ChangelogEntry("a.md", "again"),
        ChangelogEntry("fixed.txt", "did not"),
    )
    edit = bench.edit(
        write("a.md", "1"), write("b.md", "2"), answer=Proposal(changelog=told)
    )
    assert edit.changelog == (
        ChangelogEntry("a.md", "why a", "modified"),
        ChangelogEntry("b.md", "why b", "modified", ("t::x",), "more"),
    )
    assert edit.warnings == (
        "changelog: 'a.md' is there twice; first one kept",
        "changelog: 'fixed.txt' did not change; entry dropped",
    )


def test_a_change_without_a_reason_is_refused_by_name(tmp_path):
    bench = Bench(tmp_path)
    told = Proposal(
        changelog=(ChangelogEntry("a.md", "why"), ChangelogEntry("b.md", " "))
    )
    with pytest.raises(ProposalRefused, match=r"changed files: b\.md, p\.toml\."):
        bench.edit(
            write("a.md", "1"), write("b.md", "2"), write("p.toml", "k=3"), answer=told
        )
    with pytest.raises(ProposalRefused, match="Say why"):
        bench.edit(write("a.md", "1"), answer="  ")
    assert bench.left() == []


def test_nothing_changed_is_refused(tmp_path):
    bench = Bench(tmp_path)
    with pytest.raises(ProposalRefused, match="Nothing changed"):
        bench.edit()
    with pytest.raises(ProposalRefused, match="Nothing changed"):
        bench.edit(lambda folder: (folder / "a.md").chmod(0o600))


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (write("fixed.txt", "y"), "read-only"),
        (write("p.toml", "k = 10"), "outside 1 to 9"),
        (write("conftest.py", ""), "pytest loads it by itself"),
        (lambda f: (f / "c.md").symlink_to("../evidence"), "leaves the artifact"),
        (lambda f: (f / "c.md").symlink_to("/etc/passwd"), "absolute target"),
        (lambda f: os.mkfifo(f / "c.md"), "is a pipe"),
        (lambda f: (f / "big.md").write_bytes(b"x" * 10_001), "max_bytes"),
        (lambda f: [write(f"{n}.md", "")(f) for n in range(20)], "max_files"),
        (lambda f: f.rename(f.with_name("moved")), "is gone or was replaced"),
        (
            lambda f: (f.rename(f.with_name("moved")), f.symlink_to("moved")),
            "is gone or was replaced",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_and_leaves_nothing(tmp_path, edit, told):
    bench = Bench(tmp_path)
    before = bench.trees.get(bench.start)
    with pytest.raises(ProposalRefused, match=told):
        bench.edit(edit)
    assert bench.left() == []
    assert bench.shop.tree(bench.start) == before


def test_destructive_edits_are_versions_like_others(tmp_path):
    bench = Bench(tmp_path, ArtifactSchema("artifact"))

    def wipe(folder: Path) -> None:
        for path in folder.iterdir():
            path.unlink()

    emptied = bench.edit(wipe)
    assert emptied.tree == bench.shop.empty()
    again = bench.shop.open(KEY, emptied.tree, (), ())
    assert list((again / "artifact").iterdir()) == []
    bench.shop.discard(KEY)
    swapped = bench.edit(
        lambda f: (f / "a.md").unlink(),
        lambda f: (f / "a.md" / "x").mkdir(parents=True),
    )
    assert [(e.file, e.change) for e in swapped.changelog] == [
        ("a.md", "deleted"),
        ("a.md/x", "added"),
    ]


def test_what_a_proposal_made_read_only_is_cleared_away(tmp_path):
    bench = Bench(tmp_path, ArtifactSchema("artifact"))

    def lock(folder: Path) -> None:
        (folder / "sub").mkdir()
        (folder / "sub" / "x").write_text("")
        (folder / "sub").chmod(0o555)

    edit = bench.edit(lock)
    assert bench.left() == []
    workspace = bench.shop.open(KEY, edit.tree, (), ())
    assert (workspace / "artifact/sub").stat().st_mode & 0o777 == 0o555
    bench.shop.discard(KEY)
    bench.shop.discard(KEY)
    assert bench.left() == []


def test_open_gives_evidence_and_clears_what_a_killed_session_left(tmp_path):
    seen = []

    def evidence(folder: Path, evidence: Evidence) -> None:
        seen.append(evidence)
        (folder / "scores.txt").write_text("1")

    bench = Bench(tmp_path, write_evidence=evidence)
    node = Node(Candidate("c0000", bench.start))
    known = Evidence(nodes=(node,))
    first = bench.shop.open(KEY, bench.start, (node,), (), known)
    (first / "artifact" / "a.md").write_text("half done")
    second = bench.shop.open(KEY, bench.start, (node,), (), known)
    assert first == second
    assert (second / "artifact" / "a.md").read_text() == "a\n"
    assert (second / "evidence" / "scores.txt").read_text() == "1"
    assert seen == [known] * 2
    assert second.stat().st_mode & 0o777 == 0o700
    assert bench.shop.open(ProposalKey(3, 1, 1), bench.start, (), ()) != second


def test_the_check_of_the_project_has_the_last_word(tmp_path):
    seen = []

    def check(folder: Path) -> list[str]:
        seen.append((folder / "a.md").read_text())
        return ["too short"] if len(seen[-1]) < 5 else []

    bench = Bench(tmp_path, user_check=check)
    with pytest.raises(ProposalRefused, match="too short"):
        bench.edit(write("a.md", "1"))
    assert bench.edit(write("a.md", "long enough")).tree
    with pytest.raises(ProposalRefused, match="read-only"):
        bench.edit(write("fixed.txt", "1"))
    assert seen == ["1", "long enough"]


def test_knobs_are_read_from_the_version(tmp_path):
    bench = Bench(tmp_path)
    assert bench.shop.knobs(bench.start) == (KnobValue(KNOB, 2),)
    edit = bench.edit(write("p.toml", "k = 3\n"))
    assert bench.shop.knobs(edit.tree) == (KnobValue(KNOB, 3),)
    with pytest.raises(ArtifactProblem, match=r"p\.toml: holds the knob 'k'"):
        bench.shop.knobs(bench.shop.empty())


def test_the_directory_workshop_is_a_workshop(tmp_path):
    shop: Workshop = Bench(tmp_path).shop
    assert shop.size(shop.empty()) == 0


def test_versions_are_there_after_a_restart(tmp_path):
    def shop() -> DirectoryWorkshop:
        blobs, trees = DirectoryBlobs(tmp_path / "blobs"), TreeFiles(tmp_path / "trees")
        return DirectoryWorkshop(tmp_path / "work", blobs, trees, SCHEMA)

    source = tmp_path / "source"
    (source / "empty").mkdir(parents=True)
    (source / "a.md").write_text("a")
    (source / "a.md").chmod(0o600)
    (source / "link").symlink_to("a.md")
    name = shop().register(snapshot(source, DirectoryBlobs(tmp_path / "blobs")))
    workspace = shop().open(KEY, name, (), ())
    assert snapshot(workspace / "artifact", MemoryBlobs()) == shop().tree(name)
    assert (workspace / "artifact/a.md").stat().st_mode & 0o777 == 0o600
    with pytest.raises(EvoError):
        shop().tree("0" * 64)


class Meddler:
    """Changes a folder for as long as it is open, as a process left behind does."""

    def __init__(self, meddle, folder: Path) -> None:
        self.meddle = meddle
        self.folder = folder
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.often = sys.getswitchinterval()

    def run(self) -> None:
        while not self.over.is_set():
            with contextlib.suppress(OSError):
                self.meddle(self.folder)

    def __enter__(self) -> None:
        sys.setswitchinterval(1e-5)
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()
        sys.setswitchinterval(self.often)


def swap_file(folder: Path) -> None:
    (folder / "a.md").unlink()
    (folder / "a.md").symlink_to("b.md")
    (folder / "a.md").unlink()
    (folder / "a.md").write_text("other")


def swap_folder(folder: Path) -> None:
    (folder / "more").mkdir()
    (folder / "more" / "x.md").write_text("x")
    (folder / "more" / "x.md").unlink()
    (folder / "more").rmdir()


def swap_all(folder: Path) -> None:
    away = folder.with_name("away")
    folder.rename(away)
    away.rename(folder)


@pytest.mark.parametrize("meddle", [swap_file, swap_folder, swap_all])
def test_a_workspace_that_changes_all_the_time_is_an_edit_or_a_refusal(
    tmp_path, meddle
):
    bench = Bench(tmp_path)
    for number in range(60):
        workspace = bench.shop.open(KEY, bench.start, (), ())
        folder = workspace / "artifact"
        (folder / "b.md").write_text(f"{number}")
        meddler = Meddler(meddle, folder)
        with meddler, contextlib.suppress(ProposalRefused):
            bench.shop.close(KEY, bench.start, "because")
        bench.shop.discard(KEY)
        assert bench.left() == []
