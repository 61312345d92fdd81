from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from datetime import datetime
from datetime import timedelta
from datetime import UTC
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.store import run_directory
from pytest_evo.store.clock import RunClock
from pytest_evo.store.journal import FileJournal
from pytest_evo.store.lock import RunLock
from pytest_evo.store.repair import repair
from pytest_evo.store.run_directory import create
from pytest_evo.store.run_directory import identify
from pytest_evo.store.run_directory import new_run_id
from pytest_evo.store.run_directory import NewRun
from pytest_evo.store.run_directory import open_existing
from pytest_evo.store.run_directory import RUN_ID
from pytest_evo.store.run_directory import run_ids
from pytest_evo.store.run_directory import RunDirectory
from pytest_evo.store.run_info import Project
from pytest_evo.testing.journal_contract import rollout

NOW = datetime(2026, 11, 29, 15, 30, 12, tzinfo=UTC)
MINE = Project(name="shop", id="0123456789ab")
OTHER = Project(name="blog", id="ba9876543210")


def new(project: Project = MINE, settings: Mapping[str, Any] | None = None) -> NewRun:
    return NewRun(
        project=project,
        package_version="0.1.0",
        seed=7,
        settings={} if settings is None else settings,
        artifact="prompts",
        python="3.11.7",
        pytest="9.2.0",
    )


def made(root: Path, project: Project = MINE, after: int = 0) -> RunDirectory:
    return create(root, new(project), NOW + timedelta(seconds=after), Random(after))


# -- creating --------------------------------------------------------------------


def test_new_run_is_complete(tmp_path: Path) -> None:
    run = made(tmp_path / ".evo")
    assert run.path == tmp_path / ".evo" / "runs" / run.id
    assert run.id.startswith("20261129-153012-")
    content = json.loads((run.path / "run.json").read_text(encoding="utf-8"))
    assert content["id"] == run.id
    assert content["project"] == {"name": "shop", "id": "0123456789ab"}
    assert content["schema_version"] == 1
    assert sorted(p.name for p in run.path.iterdir() if p.is_dir()) == [
        "blobs",
        "candidates",
        "open",
        "trees",
    ]


def test_folder_of_runs_keeps_itself_out_of_git_and_backups(tmp_path: Path) -> None:
    made(tmp_path / ".evo")
    names = sorted(path.name for path in (tmp_path / ".evo").iterdir())
    assert names == [".gitignore", "CACHEDIR.TAG", "README.md", "runs"]
    assert (tmp_path / ".evo" / ".gitignore").read_text() == "*\n"
    tag = (tmp_path / ".evo" / "CACHEDIR.TAG").read_text()
    assert tag.startswith("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert [p.name for p in tmp_path.iterdir()] == [".evo"]


def test_existing_folder_of_runs_is_left_as_it_is(tmp_path: Path) -> None:
    root = tmp_path / "runs here"
    root.mkdir()
    (root / ".gitignore").write_text("mine\n")
    made(root)
    assert (root / ".gitignore").read_text() == "mine\n"


def test_runs_of_one_second_have_ids_of_their_own(tmp_path: Path) -> None:
    rng = Random(0)
    runs = [create(tmp_path, new(), NOW, rng).id for _ in range(20)]
    same_dice = [create(tmp_path, new(), NOW, Random(0)).id for _ in range(1)]
    assert len({*runs, *same_dice}) == 21
    assert not [p for p in (tmp_path / "runs").iterdir() if p.name.startswith(".")]


def test_ids_sort_by_time() -> None:
    rng = Random(0)
    ids = [new_run_id(NOW + timedelta(seconds=step), rng) for step in range(100)]
    assert ids == sorted(ids)
    assert all(RUN_ID.fullmatch(name) for name in ids)


def test_last_run_is_the_last_that_began_though_the_clock_went_back(
    tmp_path: Path,
) -> None:
    ids = [made(tmp_path, after=seconds).id for seconds in (0, 9_000_000, -50, 3, 3)]
    assert run_ids(tmp_path) == ids
    assert open_existing(tmp_path, "last", MINE).id == ids[-1]
    assert open_existing(tmp_path, ids[2], MINE).info.created == NOW - timedelta(0, 50)


def test_secrets_among_the_settings_are_not_written(tmp_path: Path) -> None:
    settings = {
        "model": "x",
        "api_key": "sk-1",
        "budget_tokens": 5,
        "nested": [{"GITHUB_TOKEN": "sk-2", "key": "bm25.k1", "password": "sk-3"}],
    }
    run = create(tmp_path, new(settings=settings), NOW, Random(0))
    for path in run.path.iterdir():
        if path.is_file():
            assert "sk-" not in path.read_text(encoding="utf-8")
    assert run.info.settings["budget_tokens"] == 5
    assert run.info.settings["nested"][0]["key"] == "bm25.k1"  # type: ignore[index,call-overload]


def test_update_replaces_fields(tmp_path: Path) -> None:
    run = made(tmp_path).update(start_tree="ab")
    assert run.info.start_tree == "ab"
    assert open_existing(tmp_path, run.id, MINE).info == run.info


def test_place_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".evo").write_text("")
    for place in (".evo", ".evo/below", ".evo/much/deeper"):
        with pytest.raises(RunDirectoryProblem, match="--evo-run-dir=DIR") as caught:
            made(tmp_path / place)
        assert str(tmp_path / place) in str(caught.value)
        assert "resume" not in str(caught.value)


def test_place_that_is_no_link_to_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".evo").symlink_to(tmp_path / "gone")
    with pytest.raises(RunDirectoryProblem, match="--evo-run-dir=DIR"):
        made(tmp_path / ".evo")


def test_write_that_fails_while_a_run_begins_names_another_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", no_room)
    with pytest.raises(RunDirectoryProblem, match="--evo-run-dir=DIR") as caught:
        made(tmp_path)
    assert "resume" not in str(caught.value)
    monkeypatch.undo()
    assert run_ids(tmp_path) == []


def test_full_disk_is_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = SimpleNamespace(f_bavail=10, f_frsize=4096)
    monkeypatch.setattr(run_directory.os, "statvfs", lambda _: full)
    with pytest.raises(RunDirectoryProblem, match=r"40960 bytes left.*--evo-run-dir"):
        made(tmp_path)
    assert run_ids(tmp_path) == []


@pytest.mark.skipif(
    getattr(os, "geteuid", int)() == 0, reason="root may write anywhere"
)
def test_read_only_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs").chmod(0o500)
    with pytest.raises(RunDirectoryProblem, match="Permission denied"):
        made(tmp_path)


def test_many_controllers_can_create_at_once(tmp_path: Path) -> None:
    script = (
        "import datetime, pathlib, random, sys\n"
        "from pytest_evo.store.run_directory import create, NewRun\n"
        "from pytest_evo.store.run_info import Project\n"
        "new = NewRun(Project(name='a', id='b'), '0', 0, {}, 'p', '3', '9')\n"
        "now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)\n"
        "print(create(pathlib.Path(sys.argv[1]), new, now, random.Random()).id)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / ".evo")]
    started = [
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    ids = [process.communicate()[0].strip() for process in started]
    assert [process.returncode for process in started] == [0, 0, 0]
    assert sorted(ids) == run_ids(tmp_path / ".evo")
    assert (tmp_path / ".evo" / "CACHEDIR.TAG").exists()


# -- which project ---------------------------------------------------------------


def test_project_keeps_its_name_when_it_is_moved(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "shop", tmp_path / "b" / "shop"
    assert identify(first, first / ".evo") == identify(second, second / ".evo")


def test_projects_that_share_a_place_are_told_apart(tmp_path: Path) -> None:
    first, second = tmp_path / "a" / "shop", tmp_path / "b" / "shop"
    place = tmp_path / "runs"
    assert identify(first, place) != identify(second, place)
    assert identify(first, place) == identify(first, place)


# -- opening ---------------------------------------------------------------------


def test_run_is_found_by_id_and_as_the_last(tmp_path: Path) -> None:
    first, second = made(tmp_path), made(tmp_path, after=1)
    assert open_existing(tmp_path, first.id, MINE) == first
    assert open_existing(tmp_path, "last", MINE) == second
    assert open_existing(tmp_path, "last", None) == second


def test_last_run_is_the_last_of_this_project(tmp_path: Path) -> None:
    mine = made(tmp_path)
    made(tmp_path, OTHER, after=1)
    assert open_existing(tmp_path, "last", MINE) == mine


def test_unknown_run_gets_the_nearest_name(tmp_path: Path) -> None:
    run = made(tmp_path)
    with pytest.raises(RunDirectoryProblem, match=f"Did you mean {run.id}"):
        open_existing(tmp_path, run.id[:-1], MINE)
    with pytest.raises(RunDirectoryProblem, match=f"newest one is {run.id}"):
        open_existing(tmp_path, "x", MINE)


@pytest.mark.parametrize("name", ["last", "x", "../runs"])
def test_no_run_yet_says_how_to_start_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunDirectoryProblem, match="pytest --evolve"):
        open_existing(tmp_path, name, MINE)
    with pytest.raises(RunDirectoryProblem) as caught:
        open_existing(tmp_path, name, MINE)
    assert "pytest-evo runs" not in str(caught.value)  # there is nothing to list


def test_only_runs_of_other_projects_is_said(tmp_path: Path) -> None:
    made(tmp_path, OTHER)
    with pytest.raises(RunDirectoryProblem, match="1 of other projects"):
        open_existing(tmp_path, "last", MINE)


def test_run_of_another_project_is_refused(tmp_path: Path) -> None:
    run = made(tmp_path, OTHER)
    with pytest.raises(RunDirectoryProblem, match=r"'blog', this is 'shop'"):
        open_existing(tmp_path, run.id, MINE)


def test_newer_form_is_refused_with_the_version_that_wrote_it(tmp_path: Path) -> None:
    run = made(tmp_path)
    content = json.loads((run.path / "run.json").read_bytes())
    content |= {"schema_version": 2, "package_version": "9.1", "novelty": True}
    (run.path / "run.json").write_text(json.dumps(content))
    with pytest.raises(RunDirectoryProblem, match=r"pytest-evo 9\.1 .*pip install -U"):
        open_existing(tmp_path, run.id, MINE)


@pytest.mark.parametrize(
    "content", [b"", b'{"id": "2026', b"[]", b"{}", b"\xff", None], ids=repr
)
def test_damaged_run_json_says_what_to_type_and_that_helps(
    tmp_path: Path, content: bytes | None
) -> None:
    run = made(tmp_path)
    if content is None:
        (run.path / "run.json").unlink()
    else:
        (run.path / "run.json").write_bytes(content)
    for name in (run.id, "last"):
        with pytest.raises(RunDirectoryProblem, match=f"pytest-evo repair {run.id}"):
            open_existing(tmp_path, name, MINE)
    (done,) = repair(tmp_path, run.id, NOW)
    assert done.file.name == "run.json"
    assert open_existing(tmp_path, run.id, MINE) == run


# -- repair ----------------------------------------------------------------------


def test_repair_of_a_sound_run_does_nothing(tmp_path: Path) -> None:
    run = made(tmp_path)
    assert repair(tmp_path, run.id, NOW) == []
    assert repair(tmp_path, "last", NOW) == []


def test_run_that_is_going_on_is_not_repaired(tmp_path: Path) -> None:
    run = made(tmp_path)
    with (
        RunLock(run.path, NOW),
        pytest.raises(RunDirectoryProblem, match="in use"),
    ):
        repair(tmp_path, run.id, NOW)


def test_run_json_without_a_copy_stays_refused(tmp_path: Path) -> None:
    run = made(tmp_path)
    for path in (run.path / "run.json", run.path / "run.saved"):
        path.write_bytes(b"{")
    with pytest.raises(RunDirectoryProblem, match=r"run\.json is damaged"):
        repair(tmp_path, run.id, NOW)


@pytest.mark.parametrize(
    "how", ["cut-tail", "cut-utf8", "no-newline", "nul-tail", "empty-json", "half-json"]
)
def test_crash_damage_of_every_kind_leaves_a_run_that_goes_on(
    tmp_path: Path, how: str
) -> None:
    run = made(tmp_path)
    journal = FileJournal(run.path, RunClock())
    for number in range(3):
        journal.open(str(number)).close([rollout(number)])
    journal.open("3").note(rollout(3))
    journal.close()
    for path in sorted(run.path.rglob("*")):
        damage(path, how)

    repair(tmp_path, run.id, NOW)
    again = FileJournal(open_existing(tmp_path, run.id, MINE).path, RunClock())
    kept = list(again.replay())
    again.open("3").close([rollout(9)])
    again.close()
    assert kept == [rollout(number) for number in range(len(kept))]
    assert len(kept) >= 2
    after = FileJournal(run.path, RunClock())
    assert list(after.replay()) == [*kept, rollout(9)]
    after.close()


def damage(path: Path, how: str) -> None:
    """What a crash of this kind does to a file."""
    if not path.is_file():
        return
    data = path.read_bytes()
    if path.suffix == ".jsonl":
        start = data.rstrip(b"\n").rfind(b"\n") + 1
        half = start + (len(data) - start) // 2
        changed = {
            "cut-tail": data[:half],
            "cut-utf8": data + b'{"note": "caf\xc3',
            "no-newline": data.rstrip(b"\n"),
            "nul-tail": data + b"\0" * 4096,
        }
        path.write_bytes(changed.get(how, data))
    elif path.suffix == ".json":
        changed = {"empty-json": b"", "half-json": data[: len(data) // 2]}
        path.write_bytes(changed.get(how, data))
