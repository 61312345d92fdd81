from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from recorded_run import FILES
from recorded_run import NOW
from recorded_run import record_run
from recorded_run import write_files

from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import RunDirectoryProblem
from pytest_evo.errors import UsageProblem
from pytest_evo.events import CandidateRecorded
from pytest_evo.models import START
from pytest_evo.models import Status
from pytest_evo.publish import apply_candidate
from pytest_evo.publish import candidate_diff
from pytest_evo.publish import chosen_candidates
from pytest_evo.publish import publish
from pytest_evo.publish import run_report
from pytest_evo.store.view import load_run


def everything(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_publish_writes_every_report(tmp_path):
    path = record_run(tmp_path)
    reports = tmp_path / "evo-reports"
    done = publish(path, reports)
    found = everything(reports)
    assert sorted(found) == [
        ".gitignore",
        "candidates/TEST-c0000.xml",
        "candidates/TEST-c0001.xml",
        "candidates/TEST-c0002.xml",
        "junit.xml",
        "leaderboard.xml",
        "metrics.txt",
        "summary.md",
    ]
    assert {p.relative_to(reports).as_posix() for p in done.files} | {
        ".gitignore"
    } == set(found)
    assert done.run.winner == "c0001"
    assert b"+Be kind." in found["summary.md"]
    root = ET.fromstring(found["candidates/TEST-c0002.xml"])
    assert [f.text for f in root.iter("failure")] == ["boom"] * 3
    for name in FILES:
        own = path / "candidates" / name / "junit.xml"
        assert own.read_bytes() == found[f"candidates/TEST-{name}.xml"]


def test_publish_twice_is_the_same_as_once(tmp_path):
    path = record_run(tmp_path)
    publish(path, tmp_path / "r")
    first = everything(tmp_path)
    publish(path, tmp_path / "r")
    assert everything(tmp_path) == first


def test_publish_removes_reports_of_earlier_runs_and_nothing_else(tmp_path):
    path = record_run(tmp_path)
    folder = tmp_path / "r/candidates"
    folder.mkdir(parents=True)
    stale = [folder / "TEST-c0099.xml", folder / "TEST-c0001-part2.xml"]
    stale.append(tmp_path / "r/junit-part2.xml")
    foreign = [folder / "TEST-java.xml", folder / "notes.txt", tmp_path / "r/x.xml"]
    for file in (*stale, *foreign):
        file.write_text("x")
    (folder / "TEST-c0098.xml").mkdir()
    publish(path, tmp_path / "r")
    assert not any(file.exists() for file in stale)
    assert all(file.exists() for file in foreign)
    assert not (tmp_path / "r/.gitignore").exists()


def test_publish_takes_the_mode_of_the_run(tmp_path):
    path = record_run(tmp_path, settings={"junit_candidates": "skipped"})
    publish(path, tmp_path / "r")
    text = (tmp_path / "r/candidates/TEST-c0002.xml").read_text()
    assert "<failure" not in text
    publish(path, tmp_path / "r", junit_candidates="failures")
    assert "<failure" in (tmp_path / "r/candidates/TEST-c0002.xml").read_text()


@pytest.mark.parametrize(
    "said", ["\x00\x1b[31m]]>", "\ud800 lone", "```\n# x", "é" * 9]
)
def test_publish_survives_hostile_text(tmp_path, said):
    path = record_run(tmp_path, said=said)
    files = publish(path, tmp_path / "r").files
    assert {file.suffix for file in files} == {".md", ".txt", ".xml"}
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not {"\x00", "\x1b"} & set(text)
        if file.suffix == ".xml":
            assert list(ET.fromstring(text).iter("testcase"))


def test_publish_of_a_killed_run_shows_what_there_is(tmp_path):
    path = record_run(tmp_path, finished=False)
    done = publish(path, tmp_path / "r")
    assert "--evo-resume=last" in (tmp_path / "r/summary.md").read_text()
    assert done.run.winner == "c0001"


def test_publish_without_the_blobs_still_reports(tmp_path):
    path = record_run(tmp_path)
    for file in (path / "trees").iterdir():
        file.unlink()
    publish(path, tmp_path / "r")
    assert "are not known" in (tmp_path / "r/summary.md").read_text()


def test_publish_into_a_file_says_what_to_type(tmp_path):
    path = record_run(tmp_path)
    (tmp_path / "r").write_text("x")
    with pytest.raises(UsageProblem, match=r"cannot write .*--evo-reports=DIR"):
        publish(path, tmp_path / "r")


def test_at_most_fifty_candidates_are_shown_best_accepted_and_latest(tmp_path):
    run = run_report(load_run(record_run(tmp_path)))
    records = [
        CandidateRecorded(
            f"c{n:04}",
            "c0000",
            "t",
            Status.ACCEPTED if n % 10 == 0 else Status.REJECTED,
            iteration=n,
        )
        for n in range(3, 300)
    ]
    one = run.rollouts["c0002"]
    many = replace(
        run,
        candidates=(*run.candidates, *records),
        rollouts={**run.rollouts, **{record.id: one for record in records}},
    )
    chosen = chosen_candidates(many)
    assert len(chosen) == len(set(chosen)) == 50
    assert chosen[:2] == ["c0001", "c0000"]
    assert {"c0290", "c0280", "c0150"} <= set(chosen)


def test_publish_imports_no_test_runner():
    script = (
        "import sys, pytest_evo.publish, pytest_evo.cli\n"
        "assert not {'pytest', 'xdist', 'litellm', 'optuna'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


# -- apply -------------------------------------------------------------------------


def test_apply_writes_the_candidate(tmp_path):
    view = load_run(record_run(tmp_path))
    done = apply_candidate(view, tmp_path, "c0001")
    assert done.paths == ("new", "new/x.md", "prompt.md")
    assert (tmp_path / "prompts/prompt.md").read_text() == "Be kind.\n"
    assert apply_candidate(view, tmp_path, "c0001").paths == ()


def test_apply_of_the_start_undoes_it(tmp_path):
    view = load_run(record_run(tmp_path))
    apply_candidate(view, tmp_path, "c0001")
    apply_candidate(view, tmp_path, "c0000")
    assert sorted(everything(tmp_path / "prompts")) == ["prompt.md", "tool.sh"]


def test_apply_refuses_to_overwrite_what_was_changed_since(tmp_path):
    view = load_run(record_run(tmp_path))
    (tmp_path / "prompts/prompt.md").write_text("Mine.\n")
    with pytest.raises(ArtifactProblem, match=r"changed .*\(prompt\.md\).*--force"):
        apply_candidate(view, tmp_path, "c0001")
    assert (tmp_path / "prompts/prompt.md").read_text() == "Mine.\n"
    apply_candidate(view, tmp_path, "c0001", force=True)
    assert (tmp_path / "prompts/prompt.md").read_text() == "Be kind.\n"


def test_apply_of_an_unknown_candidate_says_how_to_see_the_known(tmp_path):
    view = load_run(record_run(tmp_path))
    with pytest.raises(RunDirectoryProblem, match=r"no candidate 'c9'.*evo show"):
        apply_candidate(view, tmp_path, "c9")


@pytest.mark.parametrize("artifact", ["..", "../other", ".", "missing"])
def test_apply_never_writes_outside_the_project(tmp_path, artifact):
    view = load_run(record_run(tmp_path / "p"))
    write_files(tmp_path / "other", FILES["c0000"])
    view.info = view.info.model_copy(update={"artifact": artifact})
    with pytest.raises(ArtifactProblem, match="not a directory inside"):
        apply_candidate(view, tmp_path / "p", "c0001", force=True)
    assert sorted(everything(tmp_path / "other")) == ["prompt.md", "tool.sh"]


def test_apply_names_what_was_changed_since_the_last_apply(tmp_path):
    view = load_run(record_run(tmp_path))
    apply_candidate(view, tmp_path, "c0001")
    (tmp_path / "prompts/tool.sh").write_text("echo by hand\n")
    told = r"since c0001 of run \S+ was applied \(tool\.sh\)"
    with pytest.raises(ArtifactProblem, match=told):
        apply_candidate(view, tmp_path, "c0002")
    apply_candidate(view, tmp_path, START, force=True)
    (tmp_path / "prompts/tool.sh").write_text("echo by hand\n")
    with pytest.raises(ArtifactProblem, match=r"since run \S+ began \(tool\.sh\)"):
        apply_candidate(view, tmp_path, "c0002")


def test_diff_of_a_candidate_is_a_patch_from_the_start(tmp_path):
    view = load_run(record_run(tmp_path, now=NOW + timedelta(seconds=1)))
    patch = candidate_diff(view, "c0002")
    assert "-Be short.\n+Be rude.\n" in patch
