"""Whole runs whose diagnoser asks a scripted model over real HTTP."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evolve_project import comparable
from evolve_project import evolve
from evolve_project import executed
from evolve_project import make_project
from evolve_project import records
from llm_project import climb
from llm_project import evolve_with_model

from pytest_evo.diagnosis.templates import SHIPPED
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ServedRequest
from pytest_evo.testing.model_server import server_error
from pytest_evo.testing.model_server import unauthorized

pytestmark = pytest.mark.slow

SETTINGS = """
diagnosis_model = "openai/scripted"
chain_depth = 2
mount = "never"

[tool.pytest_evo.diagnosis_options]
api_base = "{url}"
retries = 0
input_usd = 1.0
output_usd = 4.0
"""
PROPOSALS = """
import json
from pathlib import Path

SEEN = Path(__file__).with_name("seen.jsonl")

def propose(request):
    folder = request.workspace / "evidence"
    with SEEN.open("a") as file:
        file.write(json.dumps({
            "id": [request.iteration, request.step],
            "diagnoses": [
                [node.candidate.id, d.file, d.weak] for node in request.nodes
                for d in node.diagnoses
            ],
            "named": [name for name, _ in request.evidence.diagnoses],
            "effects": [
                entry["effect"] is not None
                for node in json.loads((folder / "changelog.json").read_text())
                for entry in node["entries"]
            ],
            "files": sorted(path.name for path in folder.iterdir()),
            "text": "\\n".join(
                path.read_text() for path in folder.rglob("*") if path.is_file()
            ),
        }) + "\\n")
    level = request.workspace / "artifact" / "level.txt"
    rise = request.step == 1
    mark = " " * request.step + "\\t" * request.iteration
    level.write_text(f"{int(level.read_text()) + rise} \\n{mark}")
    return "one more"
"""
READING = {
    "methods": {
        "incremental_evidence_tracing": "nothing moved so far",
        "success_extraction": "other levels pass",
        "oscillation_detection": "none",
        "inconsistency_patterns": "none",
        "run_corroboration": "level.txt was read",
    },
    "observation": "the level in the file is below what the case wants",
    "quotes": ["assert int((evo_artifact / "],
    "cause": "level.txt holds a number that is one too low",
    "file": "level.txt",
    "change": "raise the number in level.txt by one",
    "confidence": 0.9,
}


def read(request: ServedRequest) -> Answer:
    """Reads every case alike, and classes what it is asked to class."""
    if "Reply with: ok" in request.text:
        return Answer("ok")
    found = re.search(r"earlier diagnoses a class: (.*)\.$", request.text, re.M)
    names = found[1].split(", ") if found else []
    earlier = [{"diagnosis": one, "letter": "B", "why": "too low"} for one in names]
    return Answer(json.dumps({**READING, "earlier": earlier}))


@pytest.fixture
def project(pytester: pytest.Pytester) -> Callable[[str], Path]:
    def make(url: str, more: str = "") -> Path:
        root = make_project(pytester)
        (root / "proposals.py").write_text(PROPOSALS)
        with (root / "pyproject.toml").open("a") as file:
            file.write(more + SETTINGS.format(url=url))
        return root

    return make


def seen(root: Path) -> list[dict[str, Any]]:
    lines = (root / "seen.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_diagnoses_are_made_journalled_charged_and_shown(
    project: Callable[[str], Path],
) -> None:
    with ModelServer(read) as server:
        root = project(server.url)
        done = evolve(root, "--budget-iterations=2", "-n", "2")
        asked = [one for one in server.requests if "The case" in one.text]
    assert done.returncode == 0, done.stdout + done.stderr
    made = records(root, "diagnosis")
    assert made
    diagnoses = [one for row in made for one in row["diagnoses"]]
    assert len(asked) == len(diagnoses)
    assert not any(one["weak"] for one in diagnoses), diagnoses
    assert {one["file"] for one in diagnoses} == {"level.txt"}
    first_word = 1  # the check before the run is charged with the first answer
    assert sum(row["usage"]["calls"] for row in made) == len(asked) + first_word
    assert all(row["usage"]["usd"] > 0 for row in made)
    told = seen(root)
    first = told[0]
    assert first["diagnoses"]
    assert len(first["diagnoses"]) == len(first["named"])
    assert {"brief.md", "diagnoses.md", "diagnoses.json"} <= set(first["files"])
    later = next(one for one in told if one["id"][1] > 0)
    assert later["effects"]
    assert all(later["effects"])
    assert any(one["classes"] for one in diagnoses)
    assert "failures are read by mara (openai/scripted)" in done.stdout
    assert re.search(r"^diagnoser +\d+ ", done.stdout, re.M)


def test_nothing_of_val_or_test_reaches_the_model_or_the_proposer(
    project: Callable[[str], Path],
) -> None:
    with ModelServer(read) as server:
        root = project(server.url)
        (root / "test_level.py").write_text(
            "import pytest\n"
            "@pytest.mark.parametrize('word', [\n"
            + "".join(f"    'word-{n:02}-{n * 7919:06}',\n" for n in range(24))
            + "])\n"
            "def test_level(word, evo_artifact):\n"
            "    level = int((evo_artifact / 'level.txt').read_text())\n"
            "    assert int(word.split('-')[1]) % 6 + 1 <= level\n"
        )
        done = evolve(root, "--budget-iterations=2", "-n", "0")
        prompts = "\n".join(request.text for request in server.requests)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = records(root, "cases")[0]["cases"]
    evidence = "\n".join(one["text"] for one in seen(root))
    trained = [case for case in cases if case["split"] == "train"]
    for case in cases:
        word = case["id"].partition("[")[2].rstrip("]")
        if case["split"] != "train":
            assert word not in prompts
            assert word not in evidence
    assert any(case["id"].partition("[")[2].rstrip("]") in prompts for case in trained)
    assert "[decorators left out]" in prompts


def test_same_seed_gives_the_same_journal(project: Callable[[str], Path]) -> None:
    journals = []
    spent = []
    with ModelServer(read) as server:
        root = project(server.url)
        for _ in range(2):
            done = evolve(root, "--budget-iterations=3", "-n", "2", "--evo-slots=2")
            assert done.returncode == 0, done.stdout + done.stderr
            rows = comparable(records(root))
            usages = [row.pop("usage") for row in rows if row["kind"] == "diagnosis"]
            journals.append(rows)
            # which slot's answer came first is chance, what all cost is none
            spent.append(sum(one["calls"] for one in usages))
    assert journals[0] == journals[1]
    assert spent[0] == spent[1]
    assert any(row["kind"] == "diagnosis" for row in journals[0])


def test_model_that_goes_away_does_not_end_the_run(
    project: Callable[[str], Path],
) -> None:
    def leave(request: ServedRequest) -> Any:
        return Answer("ok") if request.number <= 1 else server_error(503)

    with ModelServer(leave) as server:
        root = project(server.url)
        done = evolve(root, "--budget-iterations=2", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    made = records(root, "diagnosis")
    assert made
    assert all(row["problems"] and not row["diagnoses"] for row in made)
    assert records(root, "stop")[-1]["iterations"] == 2
    assert done.stdout.count("a diagnosis is missing") == 1, done.stdout


def test_reading_that_does_not_hold_reaches_the_proposer_as_weak(
    project: Callable[[str], Path],
) -> None:
    def wrong(request: ServedRequest) -> Answer:
        good = json.loads(read(request).text) if "The case" in request.text else None
        if good is None:
            return Answer("ok")
        return Answer(json.dumps({**good, "quotes": ["it never said that"]}))

    with ModelServer(wrong) as server:
        root = project(server.url)
        done = evolve(root, "--budget-iterations=1", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    (first, *_) = seen(root)
    assert all(weak for _, _, weak in first["diagnoses"])
    assert "WEAK" in first["text"]
    assert "is not in the trace" in first["text"]


def test_budget_of_tokens_is_asked_before_each_call(
    project: Callable[[str], Path],
) -> None:
    with ModelServer(read) as server:
        root = project(server.url)
        done = evolve(root, "--budget-tokens=9000", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    spent = sum(
        row["usage"]["input_tokens"] + row["usage"]["output_tokens"]
        for row in records(root, "diagnosis")
    )
    assert 0 < spent < 12_000
    assert records(root, "stop")[-1]["reason"] == "budget: tokens"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ('diagnosis_prompts = "prompts"\n', "no such directory"),
        ('diagnoser = "marra"\n', "Did you mean 'mara'"),
        ('diagnoser = "none"\n', "Remove one of them"),
    ],
)
def test_bad_settings_are_said_before_any_rollout(
    project: Callable[..., Path], more: str, said: str
) -> None:
    with ModelServer(read) as server:
        root = project(server.url, more)
        done = evolve(root, "--budget-iterations=1", "-n", "0")
    assert done.returncode == 4, done.stdout + done.stderr
    assert said in done.stdout + done.stderr
    assert executed(root) == 0
    assert not (root / ".evo" / "runs").exists() or more.startswith('diagnoser = "m')


def test_missing_prompt_is_said_before_any_rollout(
    project: Callable[..., Path],
) -> None:
    with ModelServer(read) as server:
        root = project(server.url, 'diagnosis_prompts = "prompts"\n')
        shutil.copytree(SHIPPED, root / "prompts")
        (root / "prompts" / "mara-case.md").unlink()
        done = evolve(root, "--budget-iterations=1", "-n", "0")
        assert done.returncode == 4, done.stdout + done.stderr
        assert "mara-case.md is not there" in done.stdout + done.stderr
        assert executed(root) == 0
        own = (SHIPPED / "mara-case.md").read_text() + "\nAnswer in verse.\n"
        (root / "prompts" / "mara-case.md").write_text(own)
        done = evolve(root, "--budget-iterations=1", "-n", "0")
        assert done.returncode == 0, done.stdout + done.stderr
        assert any("Answer in verse." in one.text for one in server.requests)


def test_refused_key_is_said_before_any_rollout(project: Callable[[str], Path]) -> None:
    with ModelServer(lambda request: unauthorized()) as server:
        root = project(server.url)
        done = evolve(root, "--budget-iterations=1", "-n", "0")
    assert done.returncode == 4, done.stdout + done.stderr
    assert "refuses the key" in done.stdout + done.stderr
    assert executed(root) == 0


MODEL = """
[tool.pytest_evo]
artifact = "art"
objective = "climb"
model = "openai/scripted"
chain_depth = 1
{more}

[tool.pytest_evo.model_options]
api_base = "{url}"
retries = 0
"""


def both(request: ServedRequest) -> Answer:
    """Diagnoses where it is asked for a reading, else edits with tools."""
    return climb(request) if request.tools else read(request)


def test_model_diagnoses_by_default_and_the_llm_proposer_reads_it(
    pytester: pytest.Pytester,
) -> None:
    root = make_project(pytester)
    with ModelServer(both) as server:
        (root / "pyproject.toml").write_text(MODEL.format(more="", url=server.url))
        done = evolve_with_model(root, "--budget-iterations=1", "-n", "0")
        proposing = [one for one in server.requests if one.tools]
    assert done.returncode == 0, done.stdout + done.stderr
    assert records(root, "diagnosis")
    assert READING["cause"] in proposing[0].text
    assert re.search(r"^diagnoser +\d+ ", done.stdout, re.M)
    assert re.search(r"^proposer +\d+ ", done.stdout, re.M)


def test_failures_are_grouped_and_read_by_three_roles(
    pytester: pytest.Pytester,
) -> None:
    def answer(request: ServedRequest) -> Answer:
        if request.tools or "Reply with: ok" in request.text:
            return climb(request)
        kept = {name: READING[name] for name in ("file", "confidence")}
        if "Group these failing cases" in request.text:
            asked = request.text.partition("a group of its own:")[2]
            cases = re.findall(r"^- `(.*)`: ", asked, re.M)
            group = {
                "title": "level",
                "cases": cases,
                "pattern": READING["observation"],
                "quotes": READING["quotes"],
                "kind": "defect",
                "why": "all cases want a higher level than the file has",
            }
            return Answer(json.dumps({"groups": [group]}))
        if "Your role: cause" in request.text:
            part = {"cause": READING["cause"], "quotes": READING["quotes"], **kept}
        elif "Your role: objection" in request.text:
            part = {
                "objection": "some cases want much more than one step of the level",
                "counter_quotes": READING["quotes"],
                "verdict": "amended",
                "cause": "level.txt is several steps below what most cases want",
            }
        else:
            assert "amended" in request.text
            part = {
                "methods": READING["methods"],
                "earlier": [],
                "change": "raise the number in level.txt by several steps at once",
                **kept,
            }
        return Answer(json.dumps(part))

    root = make_project(pytester)
    with ModelServer(answer) as server:
        more = 'diagnoser = "ecdysis"'
        (root / "pyproject.toml").write_text(MODEL.format(more=more, url=server.url))
        done = evolve_with_model(
            root, "--budget-iterations=1", "--evo-chain-depth=0", "-n", "0"
        )
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = records(root, "diagnosis")
    (diagnosis,) = made["diagnoses"]
    assert len(diagnosis["cases"]) > 1
    assert (diagnosis["kind"], diagnosis["weak"]) == ("defect", False)
    assert diagnosis["objection"].startswith("amended: some cases want")
    assert diagnosis["cause"] == "level.txt is several steps below what most cases want"
    assert made["usage"]["calls"] == 4 + 1  # and the first word before the run
