"""The changelog of proposals, from the answer to what the next proposer sees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from evolve_project import evolve
from evolve_project import make_project
from evolve_project import records
from evolve_project import run_directory

pytestmark = pytest.mark.slow

FORGETFUL = """
from pytest_evo.models import ChangelogEntry, Proposal

def propose(request):
    art = request.workspace / "artifact"
    (art / "level.txt").write_text(str(request.iteration))
    (art / "other.txt").write_text(str(request.rng.random()))
    entries = [ChangelogEntry("level.txt", "too low")]
    if {when}:
        entries.append(ChangelogEntry(
            "other.txt", "noise", evidence=("test_level.py::invented: saw it",)
        ))
    return Proposal(changelog=tuple(entries))
"""
LEVELS = """
import json
from pathlib import Path
from pytest_evo.models import ChangelogEntry, Proposal

def propose(request):
    out = Path(__file__).with_name("seen.json")
    art = request.workspace / "artifact"
    told = [entry for one in request.history for entry in one.changelog]
    told += [entry for node in request.nodes for entry in node.candidate.changelog]
    out.write_text(json.dumps([
        [entry.file, entry.effect.before, entry.effect.after, len(entry.effect.cases)]
        for entry in told
    ] + [(request.workspace / "evidence" / "brief.md").read_text()]))
    (art / "level.txt").write_text(str(min(3, request.iteration)))
    (art / "unread.txt").write_text(str(request.rng.random()))
    return "one more"
"""


def project(pytester: pytest.Pytester, proposals: str) -> Path:
    root = make_project(pytester)
    (root / "proposals.py").write_text(proposals)
    return root


def test_missing_entry_is_asked_for_once(pytester: pytest.Pytester) -> None:
    root = project(pytester, FORGETFUL.format(when="request.feedback"))
    done = evolve(root, "--budget-iterations=1", "--evo-chain-depth=0", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    first, second = records(root, "proposal")
    assert "says nothing of these changed files: other.txt" in first["refusal"]
    assert second["refusal"] is None
    assert [one["file"] for one in second["changelog"]] == ["level.txt", "other.txt"]
    assert {one["change"] for one in second["changelog"]} == {"modified", "added"}
    assert "names no case of the batch" in second["warnings"][0]


def test_proposal_without_all_entries_is_refused_the_second_time(
    pytester: pytest.Pytester,
) -> None:
    root = project(pytester, FORGETFUL.format(when="False"))
    done = evolve(root, "--budget-iterations=1", "--evo-chain-depth=0", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    made = records(root, "proposal")
    assert [row["tree"] for row in made] == [None, None]
    (iteration,) = records(root, "iteration")
    assert iteration["reason"].startswith("refused: The changelog says nothing")
    assert iteration["rollouts"] == 0


def test_effect_of_each_entry_is_measured_and_shown_to_the_next_proposer(
    pytester: pytest.Pytester,
) -> None:
    root = project(pytester, LEVELS)
    done = evolve(root, "--budget-iterations=3", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    *entries, brief = json.loads((root / "seen.json").read_text())
    levels = [row for row in entries if row[0] == "level.txt"]
    others = [row for row in entries if row[0] == "unread.txt"]
    assert any(after > before for _, before, after, _ in levels)
    assert others[0][3] > 0  # a file that is new can be noticed without being read
    assert others[-1][1:] == [None, None, 0]  # one that is changed cannot
    assert "measured: +" in brief
    candidate = next(row for row in records(root, "candidate") if row["parent"])
    by_file = {entry["file"]: entry["effect"] for entry in candidate["changelog"]}
    assert by_file["level.txt"]["base"] == "c0000"
    assert by_file["level.txt"]["better"]
    assert by_file["unread.txt"]["unsure"] == by_file["unread.txt"]["cases"]
    folder = run_directory(root) / "candidates" / candidate["id"]
    lines = (folder / "changelog.jsonl").read_text().splitlines()
    assert [json.loads(line)["effect"] for line in lines] == list(by_file.values())
