"""What a run that goes on says of the working tree."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_evo.events import CandidateRecorded
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.plugin.runfiles import changed
from pytest_evo.plugin.runfiles import create_run
from pytest_evo.plugin.runfiles import resume_run
from pytest_evo.plugin.runfiles import resume_warnings
from pytest_evo.plugin.runfiles import RunFiles
from pytest_evo.settings import Settings

SCHEMA = ArtifactSchema("art")


@pytest.fixture
def art(tmp_path: Path) -> Path:
    art = tmp_path / "art"
    art.mkdir()
    for name in "abcdefg":
        (art / f"{name}.md").write_text("as it began")
    return art


@pytest.fixture
def begun(art: Path) -> RunFiles:
    files = create_run(art.parent, Settings(artifact="art"), SCHEMA, art)
    files.journal.append(CandidateRecorded(START, None, files.start, Status.START))
    files.close()
    return files


def warnings(files: RunFiles, art: Path) -> list[str]:
    resumed = resume_run(files.directory)
    try:
        return list(resume_warnings(resumed, SCHEMA, art))
    finally:
        resumed.close()


def test_resumed_run_names_the_files_that_are_not_as_it_began(begun, art):
    assert warnings(begun, art) == []
    (art / "b.md").write_text("by hand")
    (art / "new.md").write_text("new")
    (told,) = warnings(begun, art)
    assert "art has changed since the run began (b.md, new.md)." in told
    assert "goes on from the files that it began with" in told


def test_many_changed_files_are_counted(begun, art):
    for path in art.iterdir():
        path.write_text("by hand")
    assert "(a.md, b.md, c.md, d.md, e.md and 2 more)" in warnings(begun, art)[0]


def test_candidate_of_the_run_that_was_applied_is_no_change(begun, art):
    (art / "b.md").write_text("applied")
    other = create_run(art.parent, Settings(artifact="art"), SCHEMA, art)
    other.close()
    assert changed(begun, SCHEMA, art, ())
    assert changed(begun, SCHEMA, art, {other.start}) == ""


def test_artifact_that_cannot_be_read_is_told_and_ends_nothing(begun, art):
    (art / "out.md").symlink_to(art.parent)
    (told,) = warnings(begun, art)
    assert "art cannot be read as it is now" in told


def test_new_run_warns_of_nothing(begun, art):
    (art / "b.md").write_text("by hand")
    assert list(resume_warnings(begun, SCHEMA, art)) == []
