from __future__ import annotations

import ctypes
import importlib
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from pytest_evo.plugin.isolation.mount import enter
from pytest_evo.plugin.isolation.mount import open_descriptors
from pytest_evo.plugin.isolation.mount import probe

ALLOWED = sys.platform == "linux" and probe(Path(__file__).parent) is None
needs_mount = pytest.mark.skipif(not ALLOWED, reason="no private mounts here")


@pytest.fixture
def artifact(tmp_path: Path) -> Path:
    path = tmp_path / "project" / "artifact"
    (path / "sub").mkdir(parents=True)
    (path / "prompt.txt").write_text("seed")
    (path / "other.txt").write_text("seed other")
    (path / "sub" / "deep.txt").write_text("seed deep")
    return path


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "copy"
    (path / "sub").mkdir(parents=True)
    (path / "prompt.txt").write_text("candidate")
    (path / "sub" / "deep.txt").write_text("candidate deep")
    return path


def in_child(action: Callable[[], str]) -> str:
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        answer = "no answer"
        try:
            answer = action()
        except OSError as error:
            answer = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, answer.encode())
            os._exit(0)
    os.close(write)
    with open(read) as pipe:  # noqa: PTH123
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


@needs_mount
def test_child_sees_the_candidate_and_its_parent_does_not(
    artifact: Path, copy: Path
) -> None:
    def action() -> str:
        enter(copy, artifact)
        return (artifact / "prompt.txt").read_text()

    assert in_child(action) == "candidate"
    assert (artifact / "prompt.txt").read_text() == "seed"


@needs_mount
def test_relative_paths_and_processes_see_the_candidate(
    artifact: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(artifact)

    def action() -> str:
        enter(copy, artifact)
        shell = subprocess.run(
            ["/bin/cat", str(artifact / "prompt.txt"), "sub/deep.txt"],
            capture_output=True,
            text=True,
            check=True,
        )
        return Path("prompt.txt").read_text() + " " + shell.stdout

    assert in_child(action) == "candidate candidatecandidate deep"


@needs_mount
def test_two_children_at_once_see_their_own(artifact: Path, tmp_path: Path) -> None:
    ready, go = os.pipe()
    answers = []
    for name in ("one", "two"):
        own = tmp_path / name
        own.mkdir()
        (own / "prompt.txt").write_text(name)
        read, write = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                enter(own, artifact)
                os.write(write, b".")
                os.read(ready, 1)  # until both are mounted
                os.write(write, (artifact / "prompt.txt").read_bytes())
            finally:
                os._exit(0)
        assert os.read(read, 1) == b"."
        answers.append((name, read, pid))
    os.write(go, b"..")
    for name, read, pid in answers:
        assert os.read(read, 100).decode() == name
        os.waitpid(pid, 0)


@needs_mount
def test_writes_reach_the_copy_only(artifact: Path, copy: Path) -> None:
    def action() -> str:
        enter(copy, artifact)
        (artifact / "prompt.txt").write_text("scribbled")
        return ""

    in_child(action)
    assert (artifact / "prompt.txt").read_text() == "seed"
    assert (copy / "prompt.txt").read_text() == "scribbled"


@needs_mount
def test_user_and_file_modes_stay_as_they_were(artifact: Path, copy: Path) -> None:
    (copy / "prompt.txt").chmod(0o444)

    def action() -> str:
        enter(copy, artifact)
        writable = os.access(artifact / "prompt.txt", os.W_OK)
        return f"{os.getuid()} {os.getgid()} {writable}"

    expected = f"{os.getuid()} {os.getgid()} {os.geteuid() == 0}"
    assert in_child(action) == expected


@needs_mount
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_unprivileged_user_mounts_and_gains_nothing(
    request: pytest.FixtureRequest,
) -> None:
    top = Path(tempfile.mkdtemp())  # pytest's own folders are closed to other users
    request.addfinalizer(lambda: shutil.rmtree(top))
    top.chmod(0o755)
    artifact, copy = top / "artifact", top / "copy"
    for path, text in ((artifact, "seed"), (copy, "candidate")):
        path.mkdir()
        (path / "prompt.txt").write_text(text)
        os.chown(path, 1000, 1000)
        os.chown(path / "prompt.txt", 1000, 1000)
        (path / "prompt.txt").chmod(0o444)

    def action() -> str:
        os.setgroups([])
        os.setgid(1000)
        os.setuid(1000)
        ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # dumpable again, as after an exec
        enter(copy, artifact)
        writable = os.access(artifact / "prompt.txt", os.W_OK)
        return f"{(artifact / 'prompt.txt').read_text()} {os.getuid()} {writable}"

    assert in_child(action) in (
        "candidate 1000 False",
        "MountRefused: [Errno 1] making a user namespace: Operation not permitted",
    )


@needs_mount
def test_include_replaces_adds_and_hides_single_files(
    artifact: Path, tmp_path: Path
) -> None:
    (artifact / "prompts").mkdir()
    (artifact / "prompts" / "a.txt").write_text("seed a")
    (artifact / "prompts" / "gone.txt").write_text("seed gone")
    (artifact / "prompts" / "own.log").write_text("not included")
    (artifact / "prompts" / "nested").mkdir()
    (artifact / "prompts" / "nested" / "b.txt").write_text("seed b")
    (artifact / "prompts" / "nested" / "keep.log").write_text("kept")
    copy = tmp_path / "narrow"
    (copy / "prompts" / "nested").mkdir(parents=True)
    (copy / "prompts" / "new").mkdir()
    (copy / "prompts" / "a.txt").write_text("candidate a")
    (copy / "prompts" / "new" / "c.txt").write_text("candidate c")
    (copy / "prompts" / "nested" / "d.txt").write_text("candidate d")
    (copy / "prompts" / "alias.txt").symlink_to("a.txt")
    files = ["prompts/a.txt", "prompts/gone.txt", "prompts/nested/b.txt"]

    def action() -> str:
        enter(copy, artifact, files)
        found = sorted(
            f"{path.relative_to(artifact)}={path.read_text()}"
            for path in artifact.rglob("*")
            if path.is_file()
        )
        return "\n".join(found)

    assert in_child(action).splitlines() == [
        "other.txt=seed other",
        "prompt.txt=seed",
        "prompts/a.txt=candidate a",
        "prompts/alias.txt=candidate a",
        "prompts/nested/d.txt=candidate d",
        "prompts/nested/keep.log=kept",
        "prompts/new/c.txt=candidate c",
        "prompts/own.log=not included",
        "sub/deep.txt=seed deep",
    ]
    assert (artifact / "prompts" / "a.txt").read_text() == "seed a"
    assert sorted(path.name for path in (artifact / "prompts").iterdir()) == [
        "a.txt",
        "gone.txt",
        "nested",
        "own.log",
    ]


@needs_mount
def test_include_covers_byte_code_of_the_projects_own_files(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(artifact))
    source = artifact / "bytecoded_rule.py"
    source.write_text("X = 1\n")
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    importlib.import_module("bytecoded_rule")
    del sys.modules["bytecoded_rule"]
    copy = tmp_path / "narrow"
    copy.mkdir()
    (copy / "bytecoded_rule.py").write_text("X = 2\n")
    status = source.stat()
    os.utime(
        copy / "bytecoded_rule.py", ns=(status.st_atime_ns, status.st_mtime_ns)
    )  # same size, same second

    def action() -> str:
        enter(copy, artifact, ["bytecoded_rule.py"])
        return str(importlib.import_module("bytecoded_rule").X)

    assert in_child(action) == "2"


@needs_mount
def test_probe_says_nothing_and_leaves_nothing(artifact: Path) -> None:
    assert probe(artifact) is None
    assert probe(artifact, ["prompt.txt", "sub/deep.txt"]) is None
    assert (artifact / "prompt.txt").read_text() == "seed"
    assert sorted(path.name for path in artifact.iterdir()) == [
        "other.txt",
        "prompt.txt",
        "sub",
    ]


def test_probe_says_why_not(tmp_path: Path) -> None:
    problem = probe(tmp_path / "missing")
    assert problem is not None
    assert "no directory" in problem or "needs Linux" in problem


@needs_mount
def test_working_directory_that_the_candidate_lacks_is_told(
    artifact: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flat").mkdir()
    monkeypatch.chdir(artifact / "sub")

    def action() -> str:
        enter(tmp_path / "flat", artifact)
        return "entered"

    assert "lacks the working directory" in in_child(action)


def test_copy_inside_the_artifact_is_refused(artifact: Path) -> None:
    with pytest.raises(OSError, match="lies inside the artifact"):
        enter(artifact / "sub", artifact)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_open_descriptors_below_the_artifact_are_found(artifact: Path) -> None:
    assert open_descriptors(artifact) == []
    with (artifact / "prompt.txt").open():
        assert open_descriptors(artifact) == [str(artifact.resolve() / "prompt.txt")]
    assert open_descriptors(artifact) == []
