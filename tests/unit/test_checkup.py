from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pytest_evo.checkup import checkup
from pytest_evo.checkup import Finding
from pytest_evo.plugin.isolation.mount import probe

KNOB = '[[file.knob]]\nkey = "k"\ntype = "int"\nlow = 1\nhigh = 3\n'
SEARCH = f'artifact = "p"\n[[file]]\npath = "x.toml"\n{KNOB}'


@pytest.fixture
def project(tmp_path) -> Path:
    (tmp_path / "p").mkdir()
    (tmp_path / "p/x.toml").write_text("k = 1\n")
    return tmp_path


def look(project: Path, settings: str) -> dict[str, Finding]:
    (project / "pytest_evo.toml").write_text(settings)
    return {finding.about: finding for finding in checkup(project)}


def test_checkup_looks_at_python_packages_and_settings(tmp_path):
    found = {finding.about: finding for finding in checkup(tmp_path)}
    assert found["python"].state == "ok"
    assert found["pytest"].state == "ok"
    assert found["artifact"].state == "problem"
    assert "No artifact is declared" in found["artifact"].text


def test_checkup_counts_the_knobs_that_search_turns(tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p/x.toml").write_text("k = 1\n")
    (tmp_path / "pytest_evo.toml").write_text(
        'artifact = "p"\n[[file]]\npath = "x.toml"\n'
        '[[file.knob]]\nkey = "k"\ntype = "int"\nlow = 1\nhigh = 3\n'
    )
    found = {finding.about: finding for finding in checkup(tmp_path)}
    assert found["artifact"].state == "ok"
    assert found["proposer"].text.startswith("search over 1 knob")
    assert found["run directory"].text.endswith("(0 runs)")


@pytest.mark.skipif(sys.platform != "linux", reason="mounts need Linux")
def test_checkup_says_what_the_kernel_says_of_mounts(project):
    why = probe(project / "p")
    found = look(project, SEARCH)["mount"]
    if why is None:
        assert (found.state, found.text.partition(":")[0]) == ("ok", "available")
    else:
        assert found == Finding("note", "mount", f"not available: {why}")


def test_checkup_finds_a_run_directory_that_cannot_be(tmp_path):
    (tmp_path / "taken").write_text("a file")
    (tmp_path / "pytest_evo.toml").write_text('run_dir = "taken/x"\n')
    found = {finding.about: finding for finding in checkup(tmp_path)}
    assert found["run directory"].state == "problem"
    assert "Set run_dir" in found["run directory"].text


@pytest.mark.parametrize(
    ("settings", "about", "told"),
    [
        (f'proposer = "serach"\n{SEARCH}', "proposer", "--evo-proposer=search"),
        (f'strategy = "maraa"\n{SEARCH}', "strategy", "Did you mean 'mara'"),
        (f'acceptance = "paird"\n{SEARCH}', "strategy", "Did you mean 'paired'"),
        (f'diagnoser = "maara"\n{SEARCH}', "diagnoser", "Did you mean 'mara'"),
        (f'diagnoser = "mara"\n{SEARCH}', "diagnoser", "asks a model"),
        (SEARCH.replace('"k"', '"bm25.k1"'), "artifact", "bm25"),
        (SEARCH.replace("x.toml", "y.toml"), "artifact", "y.toml: declared in"),
        (f'run_dir = "p/runs"\n{SEARCH}', "artifact", "inside the artifact"),
        ('artifact = "p"\nscripted = "no.py"\n', "proposer", "no.py"),
        ('artifact = "p"\nscripted = ["edits/1"]\n', "proposer", "edits/1"),
        ('artifact = "p"\nproposer = "llm"\n', "proposer", "--evo-model"),
        ('artifact = "p"\nmodel = "nobody/x"\n', "proposer", "PROVIDER/NAME"),
        ('artifact = "p"\nagent = "cluade"\n', "proposer", "cluade"),
        ('artifact = "p"\n', "proposer", "declare values"),
    ],
)
def test_checkup_finds_settings_that_cannot_run(project, settings, about, told):
    found = look(project, settings)[about]
    assert (found.state, told in found.text) == ("problem", True), found


def test_checkup_makes_what_the_settings_name(project):
    (project / "mine.py").write_text("def propose(request): ...\n")
    found = look(project, 'artifact = "p"\nscripted = "mine.py"\n')
    assert found["proposer"] == Finding("ok", "proposer", "scripted from mine.py")
    assert found["strategy"].text == "mara"
    assert "diagnoser" not in found


def test_checkup_leaves_names_to_hooks_that_only_they_can_know(project):
    found = look(project, f'proposer = "house-rules"\n{SEARCH}')["proposer"]
    assert found.state == "note"
    assert "--evo-dry-run" in found.text


def test_checkup_of_a_replayed_run_needs_its_cassette_and_no_key(project, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    settings = f'model = "openai/gpt-5-mini"\nreplay = "run.jsonl"\n{SEARCH}'
    assert "no such cassette" in look(project, settings)["proposer"].text
    header = (
        '{"kind":"cassette","version":1,"run":"r","made_by":"0","seed":0,"slots":1}'
    )
    (project / "run.jsonl").write_text(f"{header}\n")
    found = look(project, settings)
    assert found["proposer"].state == "ok", found["proposer"].text
    assert found["diagnoser"].state == "ok"
