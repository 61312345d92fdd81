"""Proposers that look for val, test and expected answers in every place."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evolve_project import evolve
from evolve_project import records
from evolve_project import run_directory
from llm_project import evolve_with_model

from pytest_evo.diagnosis.hiding import ANSWER
from pytest_evo.diagnosis.hiding import HELD_OUT
from pytest_evo.proposers.agent.sandbox import find_sandbox
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ScriptedCall
from pytest_evo.testing.model_server import ServedRequest

pytestmark = pytest.mark.slow

TRAIN = """
import sys
from pathlib import Path
import pytest
from asking import solver

@pytest.mark.evo(split="train", deterministic=True)
@pytest.mark.parametrize("question, expected", [
    ("Where does the river Zorn begin?", "under mount Trainanswer"),
    ("Who painted the grey mill?", "Bertha Trainanswer Quill"),
    ("What is the sum of it all?", "known"),
    ("Which year was that?", "known"),
])
def test_train(question, expected, evo_artifact, evo_trace):
    said = solver(evo_artifact).answer(question, evo_trace)
    print("asked", question, "wanted", expected)
    evo_trace("judged", wanted=[expected], said=said)
    assert said == expected
"""
HELD = """
import pytest
from asking import solver

@pytest.mark.evo(split="{split}", deterministic=True)
@pytest.mark.parametrize("question, expected", [
    ("Hidden question {name} of the first hill?", "the answer {name} one"),
    ("Hidden question {name} of the second sea?", "the answer {name} two"),
    ("Hidden question {name} of nothing", "known"),
])
def test_{split}(question, expected, evo_artifact):
    assert solver(evo_artifact).answer(question) == expected

@pytest.mark.evo(split="{split}", deterministic=True)
def test_{split}_alone(evo_artifact):
    question = "A literal question of {name}, in the test itself"
    assert solver(evo_artifact).answer(question) == "known"
"""
ASKING = """
import importlib.util

def solver(folder):
    spec = importlib.util.spec_from_file_location("solver", folder / "solver.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
SOLVER = """
LEVEL = 0

def answer(question, trace=None):
    return "known" if LEVEL or "all" in question else "unknown"
"""
SNOOPER = r"""
import sys
from pathlib import Path

LEVEL = 0

def answer(question, trace=None):
    tests = Path(sys.modules["asking"].__file__).parent
    for name in ("test_val", "test_test"):
        source = (tests / f"{name}.py").read_text()
        print(source)
        print(repr(source), file=sys.stderr)
        sys.path.insert(0, str(tests))
        module = __import__(name)
        functions = [getattr(module, x) for x in dir(module) if x.startswith("test_")]
        rows = [m.args for f in functions for m in getattr(f, "pytestmark", ())]
        print(rows)
        if trace is not None:
            trace(f"rows {rows}", rows=[repr(row) for row in rows], **{f"{rows}": 1})
            for row in rows:
                trace("row", found={str(row): [str(part) for part in row]})
    ids = [f"tests/{name}.py::{name}_alone" for name in ("test_val", "test_test")]
    raise AssertionError(f"{ids} {rows} {source}")
"""
PYPROJECT = """
[tool.pytest.ini_options]
pythonpath = ["tests"]
testpaths = ["tests"]

[tool.pytest_evo]
artifact = "art"
objective = "know"
chain_depth = 1
batch = 4
{more}
"""
SPY = r"""
import json
import os
import shutil
from pathlib import Path

HERE = Path(__file__).parent

def propose(request):
    files = [path for path in request.workspace.rglob("*") if path.is_file()]
    links = [str(path) for path in request.workspace.rglob("*") if path.is_symlink()]
    seen = {
        "step": [request.iteration, request.step],
        "files": {
            str(path.relative_to(request.workspace)): path.read_text(errors="replace")
            for path in files if "artifact" not in path.parts
        },
        "links": links,
        "evidence": repr(request.evidence),
        "request": repr([
            request.batch, request.nodes, list(request.history), dict(request.start),
            request.feedback, request.parent, request.knobs, request.schema,
        ]),
        "beside": [str(path) for path in request.workspace.parent.iterdir()],
    }
    with (HERE / "seen.jsonl").open("a") as file:
        file.write(json.dumps(seen) + "\n")
    solver = request.workspace / "artifact" / "solver.py"
    if request.iteration == 1 and request.step == 0:
        shutil.copy(HERE / "snooper.txt", solver)
    else:
        more = f"# {request.iteration} {request.step}\n"
        solver.write_text(solver.read_text() + more)
    return "a look around"
"""
CANARY = re.compile(r"ValCanary|TestCanary")
ANSWERS = re.compile(r"Trainanswer", re.IGNORECASE)


@pytest.fixture
def project(pytester: pytest.Pytester) -> Callable[..., Path]:
    def make(more: str) -> Path:
        root = pytester.path
        files = {
            "pyproject.toml": PYPROJECT.format(more=more),
            "art/solver.py": SOLVER,
            "tests/asking.py": ASKING,
            "tests/test_train.py": TRAIN,
            "tests/test_val.py": HELD.format(split="val", name="ValCanary"),
            "tests/test_test.py": HELD.format(split="test", name="TestCanary"),
            "proposals.py": SPY,
            "snooper.txt": SNOOPER,
        }
        for name, text in files.items():
            path = root / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return root

    return make


def seen(root: Path) -> list[dict[str, Any]]:
    lines = (root / "seen.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def held_out_ids(root: Path) -> list[str]:
    cases = records(root, "cases")[0]["cases"]
    return [case["id"] for case in cases if case["split"] != "train"]


def test_artifact_that_prints_held_out_cases_shows_a_proposer_none(
    project: Callable[..., Path],
) -> None:
    root = project('scripted = "proposals.py"')
    done = evolve(root, "--budget-iterations=3", "-n", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(HELD_OUT in json.dumps(row, ensure_ascii=False) for row in seen(root))
    ids = held_out_ids(root)
    assert len(ids) == 8
    for row in seen(root):
        text = json.dumps(row, ensure_ascii=False)
        assert not CANARY.search(text), _around(CANARY, text)
        assert not [case for case in ids if case in text]
        assert row["links"] == []
        beside = [name for name in row["beside"] if not name.endswith("/.pytest-evo")]
        assert len(beside) <= 2  # its own workspace, and what is left to clear


def test_answers_of_train_cases_are_in_no_evidence(
    project: Callable[..., Path],
) -> None:
    root = project('scripted = "proposals.py"')
    done = evolve(root, "--budget-iterations=2", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = seen(root)
    assert len(rows) >= 2
    for row in rows:
        shown = json.dumps([row["files"], row["evidence"]], ensure_ascii=False)
        assert not ANSWERS.search(shown), _around(ANSWERS, shown)
        assert ANSWER in shown
        assert "Where does the river Zorn begin?" in shown
        assert f"'unknown' == '{ANSWER}'" in shown


def test_answers_are_shown_where_that_is_wanted(project: Callable[..., Path]) -> None:
    root = project('scripted = "proposals.py"\ntrain_answers = "shown"')
    done = evolve(root, "--budget-iterations=2", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    for row in seen(root):
        assert ANSWERS.search(json.dumps(row["files"]))
        assert not CANARY.search(json.dumps(row))


COPYING = """
import shutil
from pathlib import Path

def propose(request):
    solver = request.workspace / "artifact" / "solver.py"
    number = f"{request.iteration}{request.step}"
    solver.write_text(
        "KNOWN = {'where does the river\\\\n zorn BEGIN': 'a', 'no': " + number + "}\\n"
        + solver.read_text()
    )
    return "it knows"
"""


def test_edit_that_copies_a_train_case_is_warned_of_once(
    project: Callable[..., Path],
) -> None:
    root = project('scripted = "proposals.py"')
    (root / "proposals.py").write_text(COPYING)
    done = evolve(root, "--budget-iterations=2", "-n", "0")
    assert done.returncode == 0, done.stdout + done.stderr
    made = [row for row in records(root, "proposal") if row["tree"]]
    assert len(made) >= 2
    first = made[0]["warnings"]
    assert len(first) == 1
    assert "solver.py now holds 'where does the river zorn begin'" in first[0]
    assert done.stdout.count("copied from train cases") == 1


# -- a model with tools ----------------------------------------------------------------

READING = {
    "methods": dict.fromkeys(
        (
            "incremental_evidence_tracing",
            "success_extraction",
            "oscillation_detection",
            "inconsistency_patterns",
            "run_corroboration",
        ),
        "solver.py was read by the case and said unknown",
    ),
    "observation": "the solver says unknown where the case wants a place",
    "quotes": ["assert said == expected"],
    "cause": "LEVEL is zero in solver.py, so nothing is known",
    "file": "solver.py",
    "change": "set LEVEL in solver.py to one",
    "confidence": 0.9,
    "earlier": [],
}


def _looks(root: Path) -> list[ScriptedCall]:
    places = [
        "../tests/test_val.py",
        "../../tests/test_val.py",
        "evidence/../../../tests/test_val.py",
        "evidence/../artifact/../../tests/test_val.py",
        str(root / "tests" / "test_val.py"),
        f"file://{root}/tests/test_val.py",
        "~/tests/test_val.py",
        "/proc/self/environ",
        "/proc/self/cwd/tests/test_val.py",
        "evidence",
        "evidence/brief.md",
        "evidence/rollouts/*/*.json",
        "**/test_val.py",
        "more/test_val.py",
        "EVIDENCE/../tests/test_val.py",
    ]
    folders = ["..", "/", str(root), "evidence", "evidence/..", "*", "**", "more", ""]
    looks = [ScriptedCall("read_file", {"path": place}) for place in places]
    looks += [ScriptedCall("list_files", {"folder": one}) for one in folders]
    looks += [
        ScriptedCall("search_files", {"text": text, "folder": folder})
        for text in ("Canary", "Trainanswer", "test_val", "expected")
        for folder in ("", "evidence", "..", str(root), "*")
    ]
    looks += [
        ScriptedCall("move_file", {"path": place, "target": "more.txt"})
        for place in places[:4]
    ]
    return looks


def test_tools_of_a_model_lead_nowhere_near_held_out_cases(
    pytester: pytest.Pytester, project: Callable[..., Path]
) -> None:
    looks = _looks(pytester.path)
    rounds = [looks[at : at + 8] for at in range(0, len(looks), 8)]

    def script(request: ServedRequest) -> Answer:
        if "Reply with: ok" in request.text:
            return Answer("ok")
        if not request.tools:
            return Answer(json.dumps(READING))
        turn = sum(one.get("role") == "assistant" for one in request.messages)
        if turn < len(rounds):
            return Answer(calls=tuple(rounds[turn]))
        if turn == len(rounds):
            new = {"path": "solver.py", "content": SNOOPER}
            return Answer(calls=(ScriptedCall("write_file", new),))
        entry = {"file": "solver.py", "reason": "it looks around"}
        return Answer(calls=(ScriptedCall("finish", {"changelog": [entry]}),))

    with ModelServer(script) as server:
        more = (
            'model = "openai/scripted"\ndiagnoser = "mara"\n'
            "[tool.pytest_evo.model_options]\n"
            f'api_base = "{server.url}"\nsteps = 60'
        )
        root = project(more)
        done = evolve_with_model(root, "--budget-iterations=1", "-n", "1")
        results = [text for one in server.requests for text in one.results]
        diagnosed = [one for one in server.requests if not one.tools]
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(results) >= len(looks), done.stdout
    assert len(diagnosed) > 2
    told = [
        json.dumps(
            [m for m in one.body["messages"] if m["role"] != "assistant"],
            ensure_ascii=False,
        )
        for one in server.requests
    ]
    for text in told:
        assert not re.search(r"(Val|Test)Canary", text), _around(CANARY, text)
        assert not re.search(r"[a-z] Trainanswer", text), _around(ANSWERS, text)
        assert "PATH=" not in text
    assert any(ANSWER in text for text in told)
    assert any(HELD_OUT in text for text in told)


# -- an agent in its sandbox -----------------------------------------------------------

LOOKING = r"""
#!/bin/sh
project="$1"
env
cat "$project/tests/test_val.py" ../../tests/test_val.py /proc/*/environ 2>/dev/null
ls -la .. ../.. "$project" "$project/tests" "$project/.evo" ~ /tmp 2>/dev/null
ln -s "$project/tests" artifact/more
cat artifact/more/* 2>/dev/null
rm -f artifact/more
grep -rl "ValCanary" / --include="*.py" --include="*.json*" --include="*.toml" \
    --exclude-dir=proc --exclude-dir=sys 2>/dev/null
cat evidence/*.* evidence/rollouts/*/*
echo "# more" >> artifact/solver.py
echo '[{"file": "solver.py", "reason": "it looks around"}]' > changelog.json
echo "looked everywhere"
"""


def test_shell_of_an_agent_in_its_sandbox_finds_no_held_out_case(
    project: Callable[..., Path],
) -> None:
    found = find_sandbox((), os.environ)
    if isinstance(found, str):
        pytest.skip(f"bubblewrap does not work here: {found}")
    root = project("")
    (root / "look.sh").write_text(LOOKING.lstrip())
    (root / "pyproject.toml").write_text(
        PYPROJECT.format(
            more=f'agent = "{shutil.which("sh")} look.sh {root}"\n'
            '[tool.pytest_evo.agent_options]\nsandbox = "required"\ntimeout = 60'
        )
    )
    done = evolve(root, "--budget-iterations=1", "-n", "1")
    assert done.returncode == 0, done.stdout + done.stderr
    folders = sorted((run_directory(root) / "proposer").iterdir())
    assert folders
    for folder in folders:
        output = (folder / "output.txt").read_text()
        assert "looked everywhere" in output, output
        assert "river Zorn" in output
        assert not CANARY.search(output), _around(CANARY, output)
        assert not ANSWERS.search(output), _around(ANSWERS, output)
        assert "/tests" not in re.sub(r"tests/test_train", "", output)
        assert not [case for case in held_out_ids(root) if case in output]


def _around(pattern: re.Pattern[str], text: str) -> str:
    """What stands around the first hit, for the message of a failure."""
    found = pattern.search(text)
    return "" if found is None else text[max(0, found.start() - 300) : found.end() + 80]
