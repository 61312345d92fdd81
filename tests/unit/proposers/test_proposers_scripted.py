from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import HealthCheck
from hypothesis import settings
from hypothesis import strategies as st

from pytest_evo.errors import ProposalRefused
from pytest_evo.errors import ProposerExhausted
from pytest_evo.errors import SettingsProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Candidate
from pytest_evo.proposers.patches import load_patch
from pytest_evo.proposers.patches import parse_diff
from pytest_evo.proposers.scripted import PatchProposer
from pytest_evo.protocols import ProposalRequest

START = {"prompt.md": b"one\ntwo\nthree\nfour\n", "old.txt": b"bye\n"}


def lay(root, files):
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    return root


def held(root):
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def artifact(tmp_path):
    return lay(tmp_path / "workspace" / "artifact", START)


def request(artifact, iteration=1, step=0, feedback=None):
    return ProposalRequest(
        iteration,
        step,
        artifact.parent,
        ArtifactSchema("artifact"),
        "",
        Candidate("c0000", "t"),
        (),
        (),
        (),
        feedback,
        Random(0),
        (),
    )


def diff(text):
    return parse_diff("fix.patch", text.encode())


def test_overlay_replaces_adds_and_deletes(tmp_path, artifact):
    folder = lay(tmp_path / "01", {"prompt.md": b"new\n", "deep/er.txt": b"x"})
    (folder / "deep/er.txt").chmod(0o755)
    (tmp_path / "01.delete").write_text("old.txt\n\n")
    proposal = PatchProposer([load_patch(folder)]).propose(request(artifact))
    assert held(artifact) == {"prompt.md": b"new\n", "deep/er.txt": b"x"}
    assert (artifact / "deep/er.txt").stat().st_mode & 0o100
    assert {entry.file for entry in proposal.changelog} == {
        "prompt.md",
        "deep/er.txt",
        "old.txt",
    }
    assert all("01" in entry.reason for entry in proposal.changelog)


def test_patch_number_is_iteration_plus_step(tmp_path, artifact):
    names = [f"{number:02}" for number in range(1, 4)]
    for name in names:
        lay(tmp_path / name, {"mark": name.encode()})
    proposer = PatchProposer([load_patch(tmp_path / name) for name in names])
    seen = []
    for iteration, step in ((2, 0), (1, 0), (1, 2), (2, 1), (2, 0)):
        proposer.propose(request(artifact, iteration, step))
        seen.append((artifact / "mark").read_text())
    assert seen == ["02", "01", "03", "03", "02"]
    with pytest.raises(ProposalRefused, match="no patch 4"):
        proposer.propose(request(artifact, 3, 1))
    with pytest.raises(ProposerExhausted, match="all 3"):
        proposer.propose(request(artifact, 4, 0))


def test_a_refused_patch_is_not_offered_again(tmp_path, artifact):
    lay(tmp_path / "01", {"x": b"x"})
    proposer = PatchProposer([load_patch(tmp_path / "01")])
    with pytest.raises(ProposalRefused, match="too big"):
        proposer.propose(request(artifact, feedback="too big"))


def test_diff_changes_adds_and_deletes(artifact):
    patch = diff(
        "Subject: say it better\n\n"
        "diff --git a/prompt.md b/prompt.md\n"
        "--- a/prompt.md\n+++ b/prompt.md\n"
        "@@ -1,3 +1,3 @@\n one\n-two\n+TWO\n three\n"
        "diff --git a/run.sh b/run.sh\nnew file mode 100755\n"
        "--- /dev/null\n+++ b/run.sh\n@@ -0,0 +1 @@\n+exit\n"
        "\\ No newline at end of file\n"
        "diff --git a/old.txt b/old.txt\ndeleted file mode 100644\n"
        "--- a/old.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-bye\n"
    )
    patch.apply(artifact)
    assert held(artifact) == {
        "prompt.md": b"one\nTWO\nthree\nfour\n",
        "run.sh": b"exit",
    }
    assert (artifact / "run.sh").stat().st_mode & 0o111 == 0o111
    assert patch.reason == "say it better"
    assert patch.paths == ("prompt.md", "run.sh", "old.txt")


def test_diff_finds_its_context_further_down(artifact):
    (artifact / "prompt.md").write_bytes(b"zero\n" + START["prompt.md"])
    diff("--- prompt.md\n+++ prompt.md\n@@ -2 +2 @@\n-two\n+2\n").apply(artifact)
    assert (artifact / "prompt.md").read_bytes() == b"zero\none\n2\nthree\nfour\n"


@pytest.mark.parametrize(
    ("content", "hunk"),
    [
        (b"a\nb\n", "@@ -1 +1 @@\n-two\n+2\n"),
        (b"x\ntwo\ntwo\n", "@@ -1 +1 @@\n-two\n+2\n"),
        (b"two", "@@ -1 +1 @@\n-two\n+2\n"),
    ],
    ids=["absent", "ambiguous", "no newline"],
)
def test_diff_that_does_not_fit_is_refused(artifact, content, hunk):
    (artifact / "prompt.md").write_bytes(content)
    with pytest.raises(ProposalRefused, match="hunk 1 does not fit"):
        diff(f"--- prompt.md\n+++ prompt.md\n{hunk}").apply(artifact)
    assert (artifact / "prompt.md").read_bytes() == content


@pytest.mark.parametrize(
    "path", ["../out.txt", "/etc/out", "a/../../out", "conftest.py", "x.pyc", "link/x"]
)
def test_hostile_paths_are_refused(tmp_path, artifact, path):
    (artifact / "link").symlink_to(tmp_path)
    with pytest.raises(ProposalRefused):
        diff(f"--- /dev/null\n+++ {path}\n@@ -0,0 +1 @@\n+x\n").apply(artifact)
    (tmp_path / "01.delete").write_text(path)
    with pytest.raises(ProposalRefused):
        load_patch(tmp_path / "01").apply(artifact)
    assert not (tmp_path / "x").exists()
    assert not (tmp_path.parent / "out.txt").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no change"),
        ("hello\n", "no change"),
        ("--- a\n+++ b\n@@ -1 +1 @@\n-x\n+y\n", "renames a to b"),
        ("rename from a\n", "renames"),
        ("GIT binary patch\n", "binary"),
        ("Binary files a and b differ\n", "binary"),
        ("--- a\n+++ a\n", "no hunk"),
        ("--- a\n+++ a\n@@ -1,2 +1 @@\n-x\n", "ends within"),
        ("--- a\n+++ a\n@@ -1 +1 @@\n-x\n-y\n+z\n", "counts"),
        ("--- a\n+++ a\n@@ -1 +1 @@\n?x\n", "begins with"),
        ("@@ -1 +1 @@\n-x\n+y\n", "without"),
        ('--- "a\\t"\n+++ "a\\t"\n@@ -1 +1 @@\n-x\n+y\n', "quoted"),
        ("--- /dev/null\n+++ /dev/null\n@@ -1 +1 @@\n-x\n+y\n", "dev/null"),
        ("diff --git a/e b/e\nnew file mode 100644\nindex 0..e\n", "without changed"),
    ],
)
def test_malformed_diffs_are_named_at_once(text, said):
    with pytest.raises(SettingsProblem, match=said) as caught:
        diff(text)
    assert "fix.patch" in str(caught.value)


def test_what_is_no_patch_is_named_at_once(tmp_path):
    with pytest.raises(SettingsProblem, match="neither a folder"):
        load_patch(tmp_path / "nothing")
    folder = lay(tmp_path / "01", {"x": b""})
    (folder / "y").symlink_to("x")
    with pytest.raises(SettingsProblem, match="is a link"):
        load_patch(folder)


lines = st.lists(st.sampled_from([b"a", b"b", b"c\r", b"", b"d d"]), max_size=12)
texts = st.builds(
    lambda rows, ended: b"\n".join(rows) + (b"\n" if rows and ended else b""),
    lines,
    st.booleans(),
)


@pytest.mark.skipif(shutil.which("git") is None, reason="makes its diffs with git")
@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(texts, texts)
def test_diffs_of_git_are_applied_as_git_means_them(tmp_path, before, after):
    for name, content in (("a", before), ("b", after)):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "f.txt").write_bytes(content)
    made = subprocess.run(
        ["git", "diff", "--no-index", "--no-prefix", "a", "b"],
        cwd=tmp_path,
        capture_output=True,
        check=False,
    ).stdout
    if not made:
        assert before == after
        return
    target = Path(tmp_path / "target")
    target.mkdir(exist_ok=True)
    (target / "f.txt").write_bytes(before)
    parse_diff("made", made).apply(target)
    assert (target / "f.txt").read_bytes() == after
