from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from recorded_run import FILES
from recorded_run import NOW
from recorded_run import record_baseline
from recorded_run import record_run

import pytest_evo
from pytest_evo.cli import main


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


def refusal(capsys, *arguments: str) -> str:
    """The one line on stderr of a command that exits with 4."""
    assert main(arguments) == 4
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("pytest-evo: ")
    assert err.count("\n") == 1
    return err


def test_runs_lists_them_oldest_first(project, capsys):
    first = record_run(project, finished=False)
    second = record_run(project, now=NOW + timedelta(hours=1))
    assert main(["runs"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines] == [
        [first.name, "open"],
        [second.name, "complete"],
    ]
    assert lines[0].endswith("c0001: not measured")
    assert lines[1].endswith("c0001: 0.000 -> 1.000 on test (+1.000)")
    assert max(map(len, lines)) <= 110


def test_runs_of_a_fresh_project_says_how_to_start_one(project, capsys):
    assert main(["runs"]) == 0
    assert "pytest --evolve" in capsys.readouterr().out


def test_runs_shows_a_damaged_one_and_how_to_repair_it(project, capsys):
    path = record_run(project)
    journal = path / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[2] = lines[2].replace(b"c0000", b"c9999", 1)
    journal.write_bytes(b"".join(lines))
    assert main(["runs", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["state"] == "damaged"
    assert f"pytest-evo repair {path.name}" in row["text"]
    assert f"pytest-evo repair {path.name}" in refusal(capsys, "show")
    assert main(["repair"]) == 0
    assert "2 records kept" in capsys.readouterr().out
    assert main(["show"]) == 0
    assert main(["repair", path.name]) == 0
    assert "sound" in capsys.readouterr().out


def test_show_tells_the_whole_story(project, capsys):
    record_run(project)
    assert main(["show"]) == 0
    out = capsys.readouterr().out
    for text in (
        "artifact prompts: Be nice.",
        "c0001 *    c0000   accepted",
        "start 0.000 -> winner 1.000 on test, 1 case: +1.000",
        "rollouts: 9 (child 9)",
        "   2  c0001 > c0002: nothing accepted",
        "ended after 2 iterations: iterations (2 of 2)",
        "next: pytest-evo apply last",
    ):
        assert text in out


def test_show_begins_with_what_is_known_and_to_the_second(project, capsys):
    record_run(project, settings={"objective": ""})
    assert main(["show"]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.endswith(", seed 3, 2026-01-01 12:00:00 UTC")
    assert second == "artifact prompts"


def test_show_is_one_screen_until_all_is_asked_for(project, capsys, monkeypatch):
    monkeypatch.setattr("pytest_evo.cli.SHOWN_ROWS", 1)
    record_run(project)
    assert main(["show"]) == 0
    out = capsys.readouterr().out
    assert "and 2 more" in out
    assert "1 before these: pytest-evo show --all" in out
    assert "c0000 > c0001" not in out
    assert main(["show", "--all"]) == 0
    out = capsys.readouterr().out
    assert "c0000 > c0001" in out
    assert "--all" not in out


def test_show_json_is_for_programs(project, capsys):
    record_run(project, said="\ud800\x1b[31m")
    assert main(["show", "last", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["winner"] == "c0001"
    assert found["claim"]["difference"] == 1.0
    assert [one["id"] for one in found["candidates"]] == ["c0001", "c0000", "c0002"]
    assert found["candidates"][0]["val"] == 1.0
    assert found["cases"]["tests/test_a.py::test_x[0]"] == "train"


def test_show_escapes_what_candidates_wrote(project, capsys):
    record_run(project, said="\x1b]0;owned\x07\ud800")
    assert main(["show"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "\\x1b]0;owned" in out


def test_run_that_was_stopped_in_its_baseline_is_no_result(project, capsys):
    run = record_baseline(project).name
    resume = f"pytest --evolve --evo-resume={run}"
    assert main(["runs"]) == 0
    assert f"the baseline is not complete; go on: {resume}" in capsys.readouterr().out
    assert main(["show", run]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "the baseline is not complete: nothing was compared yet" in shown
    assert f"next: {resume}" in shown
    assert "candidate  parent" not in "\n".join(shown)
    assert main(["show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["winner"] is None
    assert main(["report"]) == 0
    summary = (project / "evo-reports/summary.md").read_text()
    assert "the baseline of `prompts` is not complete" in summary
    assert "pytest --evolve --evo-resume=last" in summary
    assert "evo.winner" not in (project / "evo-reports/leaderboard.xml").read_text()
    for word in ("nothing better", "No candidate", "Candidates"):
        assert word not in summary


@pytest.mark.parametrize(
    "command",
    [["apply"], ["apply", "c0001"], ["diff"], ["export", "last", "c0001", "out"]],
    ids=" ".join,
)
def test_run_that_was_stopped_in_its_baseline_has_no_candidates(
    project, capsys, command
):
    run = record_baseline(project).name
    told = refusal(capsys, *command)
    assert "is not complete" in told
    assert f"pytest --evolve --evo-resume={run}" in told


def test_diff_is_a_patch_that_git_applies(project, capfdbinary):
    record_run(project)
    assert main(["diff"]) == 0
    patch = capfdbinary.readouterr().out
    (project / "p.patch").write_bytes(patch)
    subprocess.run(["git", "apply", "p.patch"], check=True, cwd=project)
    assert (project / "prompts/new/x.md").read_text() == "New.\n"
    assert (project / "prompts/prompt.md").read_text() == "Be kind.\n"


def test_diff_of_a_project_below_its_repository_is_applied_from_both(
    project, capfdbinary
):
    subprocess.run(["git", "init", "-q"], check=True, cwd=project)
    inner = project / "services/search"
    record_run(inner)
    assert main(["diff", "--rootdir", str(inner)]) == 0
    patch = capfdbinary.readouterr().out
    for place, options in ((project, []), (inner, ["--reverse"]), (inner, [])):
        command = ["git", "apply", *options]
        subprocess.run(command, check=True, cwd=place, input=patch)
        kind = (inner / "prompts/prompt.md").read_text() == "Be kind.\n"
        assert kind is not bool(options)


def test_diff_takes_a_candidate_alone(project, capfdbinary):
    record_run(project)
    assert main(["diff", "c0002"]) == 0
    assert b"+Be rude." in capfdbinary.readouterr().out


def test_apply_writes_lists_and_says_what_comes_next(project, capsys):
    record_run(project)
    assert main(["apply"]) == 0
    out = capsys.readouterr().out
    assert "  prompt.md\n" in out
    assert out.endswith("next: pytest-evo diff last c0001\n")
    assert (project / "prompts/prompt.md").read_text() == "Be kind.\n"
    assert main(["apply", "last", "c0001"]) == 0
    assert "nothing to do" in capsys.readouterr().out


def test_apply_below_a_repository_says_git_diff_and_else_what_works_without(
    project, capfd
):
    record_run(project)
    assert main(["apply"]) == 0
    command = capfd.readouterr().out.splitlines()[-1].removeprefix("next: pytest-evo ")
    assert main(command.split()) == 0
    assert "+Be kind." in capfd.readouterr().out
    assert main(["apply", "last", "c0000"]) == 0
    assert capfd.readouterr().out.endswith("next: pytest-evo show last\n")
    (project / ".git").mkdir()
    assert main(["apply"]) == 0
    assert capfd.readouterr().out.endswith("next: git diff\n")


def test_apply_refuses_changed_files_until_forced(project, capsys):
    record_run(project)
    (project / "prompts/prompt.md").write_text("Mine.\n")
    told = refusal(capsys, "apply")
    assert "Undo those changes and type it again; or commit or copy them" in told
    command = told.split(": pytest-evo ")[-1].split()
    assert command[-1] == "--force"
    assert main(command) == 0


def test_report_writes_where_the_run_says(project, capsys):
    record_run(project, settings={"reports": "out"})
    assert main(["report"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "out/junit.xml" in lines
    assert lines[-1] == "out/candidates: 3 files"
    assert main(["report", "--reports", "elsewhere"]) == 0
    assert (project / "elsewhere/summary.md").exists()


def test_export_copies_a_candidate(project, capsys):
    record_run(project)
    assert main(["export", "last", "c0002", "copy"]) == 0
    assert (project / "copy/prompt.md").read_text() == FILES["c0002"]["prompt.md"]
    capsys.readouterr()
    assert "not empty" in refusal(capsys, "export", "last", "c0001", "copy")


def test_commands_work_from_below_the_project_and_with_rootdir(project, capsys):
    record_run(project)
    (project / "sub/deep").mkdir(parents=True)
    os.chdir(project / "sub/deep")
    assert main(["show"]) == 0
    os.chdir("/")
    assert main(["show", "--rootdir", str(project)]) == 0
    assert main(["show", "--run-dir", str(project / ".evo")]) == 0


def test_run_that_is_named_is_found_after_the_project_moved(project, capsys):
    path = record_run(project / "old")
    (project / "old").rename(project / "new")
    os.chdir(project / "new")
    assert main(["show", path.name]) == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["show", "nosuch"], "pytest --evolve"),
        (["show"], "pytest --evolve"),
        (["apply", "--rootdir", "/no/such/place"], "--rootdir"),
        (["nosuch"], "--help"),
        ([], "--help"),
        (["show", "--nosuch"], "--help"),
        (["shwo"], "Did you mean show?"),
        (["show", "--jsn"], "Did you mean --json?"),
    ],
)
def test_mistakes_get_one_line_that_says_what_to_type(project, capsys, arguments, hint):
    assert hint in refusal(capsys, *arguments)


def test_version_is_said(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pytest-evo {pytest_evo.__version__}\n"


def test_broken_settings_do_not_hide_runs(project, capsys):
    record_run(project)
    (project / "pytest_evo.toml").write_text("nonsense = 1\n")
    assert main(["runs"]) == 0


def test_doctor_finds_nothing_wrong_with_a_sound_project(project, capsys):
    record_run(project)
    (project / "pytest_evo.toml").write_text(
        'artifact = "prompts"\nmodel = "ollama/llama3"\n'
    )
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "ok       artifact: prompts" in out
    assert "ok       proposer: llm with ollama/llama3" in out
    assert out.endswith("all is well\n")


def test_doctor_names_every_problem(project, capsys):
    (project / "pytest_evo.toml").write_text('artifact = "nowhere"\n')
    assert main(["doctor"]) == 1
    out = capsys.readouterr().out
    assert "problem  artifact: The artifact 'nowhere'" in out
    assert "problem  proposer: The proposer 'search' turns knobs" in out
    assert out.endswith("2 to be solved\n")


def test_doctor_stops_at_settings_that_cannot_be_read(project, capsys):
    (project / "pytest_evo.toml").write_text("artefact = 'x'\n")
    assert main(["doctor"]) == 1
    assert "problem  settings:" in capsys.readouterr().out


def test_init_then_doctor(project, capsys):
    (project / "prompts").mkdir()
    (project / "prompts/a.md").write_text("x")
    assert main(["init"]) == 0
    assert 'artifact = "prompts"' in capsys.readouterr().out
    assert "settings already" in refusal(capsys, "init")


def test_init_says_that_the_guessed_directory_is_not_there(project, capsys):
    assert main(["init"]) == 0
    assert "there is no directory prompts: create it" in capsys.readouterr().out


def test_init_refuses_a_directory_that_is_not_there(project, capsys):
    assert "--artifact=asistant" in refusal(capsys, "init", "--artifact", "asistant")


def test_module_is_the_command(project):
    done = subprocess.run(
        [sys.executable, "-m", "pytest_evo", "runs"],
        capture_output=True,
        text=True,
        cwd=project,
        check=True,
    )
    assert "no runs in" in done.stdout


def test_reader_that_stops_early_is_no_error(project):
    record_run(project)
    command = f"{sys.executable} -m pytest_evo show | head -n 1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        cwd=project,
    )
    assert done.stderr == ""
