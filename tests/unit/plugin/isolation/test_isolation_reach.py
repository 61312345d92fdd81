from __future__ import annotations

import importlib
import importlib.resources
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_evo.plugin.isolation.paths import source_of
from pytest_evo.plugin.isolation.reach import recorder
from pytest_evo.plugin.isolation.reach import Seen


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "artifact" / "sub").mkdir(parents=True)
    (root / "artifact" / "prompt.txt").write_text("seed")
    (root / "artifact" / "sub" / "deep.txt").write_text("deep")
    (root / "helper.txt").write_text("helper")
    candidate = tmp_path / "copies" / "one"
    shutil.copytree(root / "artifact", candidate)
    return root


@pytest.fixture
def candidate(project: Path) -> Path:
    return project.parent / "copies" / "one"


@pytest.fixture
def modules() -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - before:
        del sys.modules[name]
    importlib.invalidate_caches()


def watch(
    action: Callable[[], object], real: Path, candidate: Path, project: Path
) -> Seen:
    seer = recorder()
    seer.begin(real, candidate, project)
    try:
        action()
    finally:
        seen = seer.end()
    return seen


def watch_prompt(candidate: Path, project: Path) -> Seen:
    read = (candidate / "prompt.txt").read_text
    return watch(read, project / "artifact", candidate, project)


def in_place(action: Callable[[], object], project: Path) -> Seen:
    real = project / "artifact"
    # a candidate of its own name makes a window that carries nothing over
    return watch(action, real, real, project)


def test_opened_file_is_reached(project: Path) -> None:
    seen = in_place((project / "artifact" / "prompt.txt").read_text, project)
    assert seen.reach.files == ("prompt.txt",)
    assert seen.reach.exact
    assert seen.reach.stale == ()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no files in memory")
def test_files_in_memory_are_reached(project: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        candidate = Path(folder) / "copy"
        shutil.copytree(project / "artifact", candidate)
        seen = watch_prompt(candidate, project)
    assert seen.reach.files == ("prompt.txt",)


def test_nothing_opened_is_no_reach(project: Path) -> None:
    assert in_place(lambda: (project / "artifact").exists(), project) == Seen(
        in_place(lambda: None, project).reach
    )


def test_read_of_the_project_while_a_candidate_is_meant_is_stale(
    project: Path, candidate: Path
) -> None:
    def action() -> None:
        (project / "artifact" / "prompt.txt").read_text()
        (candidate / "sub" / "deep.txt").read_text()

    seen = watch(action, project / "artifact", candidate, project)
    assert seen.reach.stale == ("prompt.txt",)
    assert seen.reach.files == ("sub/deep.txt",)


def test_mounted_candidate_counts_under_both_names(
    project: Path, candidate: Path
) -> None:
    seer = recorder()
    seer.begin(project / "artifact", candidate, project, mounted=True)
    (project / "artifact" / "prompt.txt").read_text()
    (candidate / "sub" / "deep.txt").read_text()
    reach = seer.end().reach
    assert reach.files == ("prompt.txt", "sub/deep.txt")
    assert reach.stale == ()


def test_relative_path_is_taken_from_where_the_test_stood(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def action() -> None:
        monkeypatch.chdir(project / "artifact")
        Path("prompt.txt").read_text()
        monkeypatch.chdir(project)

    assert in_place(action, project).reach.files == ("prompt.txt",)


def test_bytes_and_low_level_opens_are_seen(project: Path) -> None:
    path = project / "artifact" / "prompt.txt"

    def action() -> None:
        os.close(os.open(os.fsencode(path), os.O_RDONLY))

    seen = in_place(action, project)
    assert seen.reach.files == ("prompt.txt",)
    assert seen.reach.exact


def test_open_by_descriptor_of_a_folder_is_not_exact(project: Path) -> None:
    def action() -> None:
        folder = os.open(project / "artifact", os.O_RDONLY)
        os.close(os.open("prompt.txt", os.O_RDONLY, dir_fd=folder))
        os.close(folder)

    assert not in_place(action, project).reach.exact


def test_listing_reaches_the_folder(project: Path) -> None:
    seen = in_place(lambda: os.listdir(project / "artifact"), project)  # noqa: PTH208
    assert seen.reach.files == ("./",)
    seen = in_place(lambda: list((project / "artifact" / "sub").iterdir()), project)
    assert "sub/" in seen.reach.files


def test_link_and_its_target_are_both_reached(project: Path) -> None:
    (project / "artifact" / "alias.txt").symlink_to("prompt.txt")
    seen = in_place((project / "artifact" / "alias.txt").read_text, project)
    assert seen.reach.files == ("alias.txt", "prompt.txt")


def test_link_to_a_folder_is_reached(project: Path) -> None:
    (project / "artifact" / "folder").symlink_to("sub")
    action = (project / "artifact" / "folder" / "deep.txt").read_text
    assert in_place(action, project).reach.files == ("folder", "sub/deep.txt")


def test_link_from_outside_leads_to_the_artifact(project: Path) -> None:
    (project / "way").symlink_to("artifact")
    seen = in_place((project / "way" / "prompt.txt").read_text, project)
    assert seen.reach.files == ("prompt.txt",)


def test_written_file_is_not_read(project: Path) -> None:
    def action() -> None:
        out = project / "artifact" / "out.txt"
        out.write_text("x")
        out.read_text()
        (project / "made.txt").write_text("x")
        (project / "made.txt").read_text()

    seen = in_place(action, project)
    assert seen.reach.files == ()
    assert seen.project_files == ()


def test_file_read_before_it_is_written_counts(project: Path) -> None:
    path = project / "artifact" / "prompt.txt"

    def action() -> None:
        path.write_text(path.read_text() + "!")

    assert in_place(action, project).reach.files == ("prompt.txt",)


def test_project_files_leave_out_environments_and_caches(project: Path) -> None:
    foreign = [
        project / ".venv" / "lib" / "a.txt",
        project / "env" / "lib" / "b.txt",
        project / ".pytest_cache" / "c.txt",
        project / "lib" / "site-packages" / "d.txt",
    ]
    for path in foreign:
        path.parent.mkdir(parents=True)
        path.write_text("x")
    (project / "env" / "pyvenv.cfg").write_text("")

    def action() -> None:
        for path in (*foreign, project / "helper.txt"):
            path.read_text()

    assert in_place(action, project).project_files == ("helper.txt",)


@pytest.mark.usefixtures("modules")
def test_import_reaches_the_source_even_from_byte_code(project: Path) -> None:
    package = project / "artifact" / "reached_pkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("X = 1\n")
    sys.path.insert(0, str(project / "artifact"))

    def load() -> None:
        importlib.import_module("reached_pkg.part")

    first = in_place(load, project)
    assert first.reach.files == ("reached_pkg/__init__.py", "reached_pkg/part.py")
    assert first.reach.exact
    del sys.modules["reached_pkg.part"], sys.modules["reached_pkg"]
    assert load() is None
    del sys.modules["reached_pkg.part"], sys.modules["reached_pkg"]
    again = watch(load, project / "artifact", project / "artifact", project.parent)
    assert again.reach.files == first.reach.files


@pytest.mark.usefixtures("modules")
def test_import_of_something_else_does_not_list_the_artifact(project: Path) -> None:
    sys.path.insert(0, str(project / "artifact"))
    (project / "elsewhere_mod.py").write_text("")
    sys.path.append(str(project))
    seen = in_place(lambda: importlib.import_module("elsewhere_mod"), project)
    assert seen.reach.files == ()
    assert seen.project_files == ("elsewhere_mod.py",)


@pytest.mark.usefixtures("modules")
def test_resource_of_a_package_is_reached(project: Path) -> None:
    package = project / "artifact" / "respkg"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "words.txt").write_text("a")
    sys.path.insert(0, str(project / "artifact"))

    def action() -> None:
        importlib.resources.files("respkg").joinpath("words.txt").read_text()

    assert "respkg/words.txt" in in_place(action, project).reach.files


def test_process_makes_the_reach_unknown(project: Path) -> None:
    seen = in_place(lambda: subprocess.run(["/bin/true"], check=True), project)
    assert seen.reach.processes
    assert not seen.reach.exact


def test_process_started_natively_is_noticed(project: Path) -> None:
    def action() -> None:
        import _posixsubprocess  # what multiprocessing's spawn uses: no audit event

        empty = b"PATH=/bin"
        read, write = os.pipe()
        arguments = [[b"/bin/true"], [b"/bin/true"], True, (), None, [empty]]
        pid = _posixsubprocess.fork_exec(  # type: ignore[call-arg]
            *arguments, -1, -1, -1, -1, -1, -1, read, write, False, False, *_IDS
        )
        os.waitpid(pid, 0)
        os.close(read)
        os.close(write)

    assert in_place(action, project).reach.processes


_IDS: tuple[object, ...] = (
    (None, None, None, -1, None)
    if sys.version_info < (3, 11)
    else (-1, None, None, None, -1, None, False)
)


def test_network_is_noticed_and_keeps_the_reach_exact(project: Path) -> None:
    def action() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname()).close()

    seen = in_place(action, project)
    assert seen.reach.network
    assert seen.reach.exact


def test_database_makes_the_reach_unknown(project: Path) -> None:
    path = project / "artifact" / "facts.db"
    sqlite3.connect(path).close()
    seen = in_place(lambda: sqlite3.connect(path).close(), project)
    assert not seen.reach.exact
    assert "facts.db" in seen.reach.files


def test_removing_a_tree_reads_nothing(project: Path) -> None:
    def action() -> None:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a").mkdir()
            Path(folder, "a", "b").write_text("x")

    assert in_place(action, project).reach.exact
    doomed = project / "artifact" / "sub"
    reach = in_place(lambda: shutil.rmtree(doomed), project).reach
    assert reach.exact


def test_source_lines_of_a_traceback_are_not_reads(project: Path) -> None:
    import linecache

    source = project / "artifact" / "code.py"
    source.write_text("raise ValueError\n")
    linecache.clearcache()
    seen = in_place(lambda: linecache.getline(str(source), 1), project)
    assert seen.reach.files == ()


def test_later_windows_keep_what_caches_may_hold(
    project: Path, candidate: Path
) -> None:
    real, seer = project / "artifact", recorder()
    seer.begin(real, candidate, project)
    (candidate / "prompt.txt").read_text()
    seer.end()
    seer.begin(real, candidate, project)
    assert seer.end().reach.files == ("prompt.txt",)
    seer.begin(real, project.parent / "copies" / "two", project)
    assert seer.end().reach.files == ()


def test_own_reads_are_not_noted_while_paused(project: Path) -> None:
    def action() -> None:
        with recorder().paused():
            (project / "artifact" / "prompt.txt").read_text()

    assert in_place(action, project).reach.files == ()


@pytest.mark.usefixtures("modules")
def test_collection_sees_reads_and_modules_loaded_before(project: Path) -> None:
    (project / "artifact" / "early_mod.py").write_text("X = 1\n")
    sys.path.insert(0, str(project / "artifact"))
    importlib.import_module("early_mod")
    seer = recorder()
    seer.listen()
    (project / "artifact" / "prompt.txt").read_text()
    (project / "helper.txt").read_text()
    seen = seer.end_collection(project / "artifact", project)
    assert {"early_mod.py", "prompt.txt"} <= set(seen.reach.files)
    assert "helper.txt" in seen.project_files


def test_process_that_runs_no_test_notes_nothing_and_can_begin_later(
    project: Path, candidate: Path
) -> None:
    seer = recorder()
    seer.listen()
    (project / "helper.txt").read_text()
    seer.dismiss()
    (project / "artifact" / "prompt.txt").read_text()
    collected = seer.end_collection(project / "artifact", project)
    assert not collected.reach.files
    seen = watch_prompt(candidate, project)
    assert seen.reach.files == ("prompt.txt",)


def test_hook_stays_quiet_outside_of_windows(project: Path) -> None:
    recorder()
    (project / "artifact" / "prompt.txt").read_text()
    assert in_place(lambda: None, project).reach.files == ()


@pytest.mark.parametrize(
    ("cached", "source"),
    [
        ("/p/__pycache__/m.cpython-311.pyc", "/p/m.py"),
        ("/p/__pycache__/m.x.cpython-313.opt-2.pyc", "/p/m.x.py"),
        ("/p/__pycache__/test_a.cpython-311-pytest-9.2.0.pyc", "/p/test_a.py"),
        ("/p/__pycache__/m.pypy310-73.pyc", "/p/m.py"),
        ("/p/m.pyc", "/p/m.pyc"),
        ("/p/m.py", "/p/m.py"),
    ],
)
def test_byte_code_is_named_by_its_source(cached: str, source: str) -> None:
    assert source_of(cached) == source


def test_byte_code_of_a_common_folder_is_named_by_its_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "pycache_prefix", "/cache")
    assert source_of("/cache/p/m.cpython-311.pyc") == "/p/m.py"
