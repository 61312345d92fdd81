"""The example with a small model: data, prompts, grammars, scores, and how it starts.

No model is needed here: where an answer is, a scripted server gives it.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import pytest
from example_copy import copy_of
from example_copy import EXAMPLES
from example_copy import loaded

from pytest_evo.settings import load_settings

EXAMPLE = EXAMPLES / "local_model"
MODULES = ("tasks", "prompts", "server")
TARGETS = ("topics", "extraction")
SETTINGS = tomllib.loads((EXAMPLE / "pyproject.toml").read_text("utf-8"))
(RULE,) = SETTINGS["tool"]["pytest_evo"]["file"]
KNOBS = {knob["key"]: knob for knob in RULE["knob"]}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of("local_model", tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="module")
def example(project: Path) -> Iterator[dict[str, ModuleType]]:
    with loaded(project, MODULES) as modules:
        yield modules


def task_of(example: dict[str, ModuleType], target: str) -> Any:
    """The task of a target."""
    return getattr(example["tasks"], f"{target}_task")()


def prompt_file(directory: Path, target: str, **changes: object) -> Path:
    """A directory with the start's prompt file and other values for some knobs."""
    text = (EXAMPLE / target / "prompt.toml").read_text("utf-8")
    for name, value in changes.items():
        line = rf"(?m)^{name} = \S+"
        text, found = re.subn(line, f"{name} = {json.dumps(value)}", text)
        assert found == 1, name
    directory.mkdir(exist_ok=True)
    (directory / "prompt.toml").write_text(text, "utf-8")
    return directory


# -- the texts ---------------------------------------------------------------------


def test_topics_are_many_distinct_and_balanced(example):
    cases = example["tasks"].topic_cases()
    assert len(cases) >= 80
    assert len({case.id for case in cases}) == len(cases)
    assert len({case.text for case in cases}) == len(cases)
    topics = [case.topic for case in cases]
    assert {topics.count(topic) for topic in example["tasks"].TOPICS} == {30}


def test_people_are_many_distinct_and_stand_in_their_sentences(example):
    cases = example["tasks"].person_cases()
    assert len(cases) >= 80
    assert len({case.id for case in cases}) == len(cases)
    assert len({case.text for case in cases}) == len(cases)
    for case in cases:
        assert case.name in case.text
        assert re.search(rf"\b{case.age}\b|\b{case.age}(st|nd|rd|th)\b", case.text)
        assert case.city in case.text


@pytest.mark.parametrize("target", TARGETS)
def test_no_example_of_the_pool_is_a_case(example, target):
    tasks = example["tasks"]
    cases = tasks.topic_cases() if target == "topics" else tasks.person_cases()
    pool = task_of(example, target).examples
    assert list(pool) == [f"e{number:02}" for number in range(1, 17)]
    assert len({shown.text for shown in pool.values()}) == 16
    assert not {shown.text for shown in pool.values()} & {case.text for case in cases}


# -- grammars and scores -----------------------------------------------------------


def pattern(grammar: str) -> re.Pattern[str]:
    """A grammar without recursion as a regular expression."""
    rules = dict(line.split(" ::= ", 1) for line in grammar.splitlines())
    token = re.compile(
        r'("(?:\\.|[^"\\])*")|(\[(?:\\.|[^]\\])+\])|(\{\d+,\d+\})|([a-z]+)|(\s+)|(.)'
    )

    def expand(rule: str) -> str:
        parts = []
        for literal, letters, times, name, blank, sign in token.findall(rules[rule]):
            if literal:
                parts.append(f"(?:{re.escape(json.loads(literal))})")
            elif name:
                parts.append(f"(?:{expand(name)})")
            elif not blank:
                parts.append(letters or times or sign)
        return "".join(parts)

    return re.compile(expand("root"))


@pytest.mark.parametrize("target", TARGETS)
def test_grammar_allows_the_answers_of_the_pool(example, target):
    task = task_of(example, target)
    allowed = pattern(task.grammar)
    for shown in task.examples.values():
        assert allowed.fullmatch(shown.answer)
        assert allowed.fullmatch(f" {shown.answer}")


def test_grammar_allows_every_right_answer(example):
    tasks = example["tasks"]
    allowed = pattern(tasks.PERSON_GRAMMAR)
    for case in tasks.person_cases():
        right = {field: getattr(case, field) for field in tasks.FIELDS}
        assert allowed.fullmatch(json.dumps(right))
        assert tasks.right_fields(json.dumps(right), case) == tasks.FIELDS
    allowed = pattern(tasks.TOPIC_GRAMMAR)
    for case in tasks.topic_cases():
        assert allowed.fullmatch(case.topic)
        assert tasks.is_topic(case.topic, case)


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("topics", "weather"),
        ("topics", "sport and health"),
        ("topics", "\nsport"),
        ("topics", ""),
        ("extraction", '{"name": "A", "age": "3", "city": "B"}'),
        ("extraction", '{"name":\t"A", "age": 3, "city": "B"}'),
        ("extraction", '{"name": "A", "age": 3, "city": "B"} and more'),
        ("extraction", '{"name": "A", "age": 03, "city": "B"}'),
        ("extraction", '{"name": "A\n", "age": 3, "city": "B"}'),
    ],
)
def test_grammar_refuses_what_cannot_be_right(example, target, answer):
    assert not pattern(task_of(example, target).grammar).fullmatch(answer)


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        (" money", True),
        ("Money\n", True),
        ("money.", False),
        ("money and travel", False),
        ("sport", False),
        ("", False),
    ],
)
def test_topic_counts_only_as_the_whole_answer(example, answer, right):
    case = example["tasks"].TopicCase("a", "We are broke.", "money")
    assert example["tasks"].is_topic(answer, case) is right


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ('{"name": "Ada", "age": 36, "city": "Ely"}', "name age city"),
        (' {"city": "Ely", "name": "Ada", "age": 36, "job": "x"}\n', "name age city"),
        ('{"name": "Ada", "age": 37, "city": "Ely"}', "name city"),
        ('{"name": "Ada", "age": "36", "city": "Ely"}', "name city"),
        ('{"name": "ada", "age": 36.0}', ""),
        ('{"name": null, "age": true, "city": ["Ely"]}', ""),
        ('{"name": "Ada", "age": 36, "city": "Ely"', ""),
        ('"Ada"', ""),
        ("[]", ""),
        ("", ""),
    ],
)
def test_each_right_field_gets_credit(example, answer, right):
    case = example["tasks"].PersonCase("Ada, 36, of Ely.", "Ada", 36, "Ely")
    assert example["tasks"].right_fields(answer, case) == tuple(right.split())


# -- prompts and knobs -------------------------------------------------------------


def test_start_shows_an_instruction_and_the_text_only(example):
    task = task_of(example, "topics")
    body = example["prompts"].build_request(EXAMPLE / "topics", task, "We won.")
    assert body["prompt"] == (
        "Classify the text as sport, health, money or travel.\n\nText: We won.\nTopic:"
    )
    assert body["temperature"] == 0
    assert "grammar" not in body


def test_examples_are_shown_in_the_order_that_is_set(example, tmp_path):
    task = task_of(example, "topics")

    def shown(**changes: object) -> list[str]:
        where = prompt_file(tmp_path / "topics", "topics", **changes)
        prompt = example["prompts"].build_request(where, task, "We won.")["prompt"]
        places = {key: prompt.find(ex.text) for key, ex in task.examples.items()}
        return sorted((key for key in places if places[key] >= 0), key=places.get)

    def three(order: str) -> str:
        return " ".join(shown(number=3, order=order))

    assert three("listed") == "e01 e02 e03"
    assert three("reversed") == "e03 e02 e01"
    assert three("short_first") == "e02 e03 e01"
    assert three("long_first") == "e01 e03 e02"
    assert shown(number=2, pick_2="e16") == ["e01", "e16"]
    assert shown(number=3, pick_2="e01") == ["e01", "e03"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("key", KNOBS)
def test_every_value_of_a_knob_changes_what_is_sent(example, tmp_path, target, key):
    knob = KNOBS[key]
    if knob["type"] == "choice":
        values = knob["choices"]
    else:
        values = range(knob["low"], knob["high"] + 1, knob.get("step", 1))
    others: dict[str, object] = {"number": 8}
    if key.startswith("examples.pick"):
        others |= {f"pick_{place}": "e16" for place in range(1, 9)}
    sent = set()
    for value in values:
        changes = {**others, key.rpartition(".")[2]: value}
        where = prompt_file(tmp_path / target, target, **changes)
        body = example["prompts"].build_request(where, task_of(example, target), "So.")
        sent.add(json.dumps(body))
    assert len(sent) == len(values)


@pytest.mark.parametrize("target", TARGETS)
def test_prompts_with_text_and_answers_in_braces_are_not_expanded(
    example, tmp_path, target
):
    where = prompt_file(tmp_path / target, target, number=8)
    task = task_of(example, target)
    body = example["prompts"].build_request(where, task, "{answer} %s {0}")
    assert "{answer} %s {0}" in body["prompt"]
    assert "{text}" not in body["prompt"]
    for shown in list(task.examples.values())[:8]:
        assert shown.text in body["prompt"]
        assert shown.answer in body["prompt"]


def test_a_value_that_means_nothing_is_refused_by_name(example, tmp_path):
    where = prompt_file(tmp_path / "topics", "topics", template="sonnet")
    with pytest.raises(ValueError, match="template is 'sonnet'; write one of plain"):
        example["prompts"].build_request(where, task_of(example, "topics"), "So.")


# -- settings ----------------------------------------------------------------------


@pytest.mark.parametrize("target", TARGETS)
def test_settings_load_for_each_target_and_fit_its_file(project, target):
    settings = load_settings(project, {"target": target})
    assert settings.artifact == target
    assert settings.cases == (f"tests/test_{target}.py::*",)
    (rule,) = settings.file
    start = tomllib.loads((project / target / rule.path).read_text("utf-8"))
    for knob in rule.knob:
        value = start
        for part in knob.key.split("."):
            value = value[part]
        if knob.type == "choice":
            assert value in knob.choices
        else:
            assert knob.low <= value <= knob.high
    templates = next(knob for knob in rule.knob if knob.key == "template")
    assert set(templates.choices) == set(start["templates"])


# -- the sessions ------------------------------------------------------------------


@pytest.fixture
def scripted_server() -> Iterator[str]:
    """Stands for the model's server: everything is about money to it."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            answer = {
                "content": " money",
                "tokens_evaluated": 30,
                "tokens_predicted": 2,
                "timings": {"cache_n": 20},
            }
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def run_pytest(
    project: Path, *arguments: str, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run pytest in the example."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *arguments],
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_plain_pytest_runs_both_suites(project, scripted_server, tmp_path):
    report = tmp_path / "plain.xml"
    done = run_pytest(
        project,
        "-k",
        "payday or visa or elena",
        f"--junitxml={report}",
        LOCAL_MODEL_SERVERS=scripted_server,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    assert "2 failed" in done.stdout
    assert "travel was expected, not ' money'" in done.stdout
    assert "only nothing right in ' money'" in done.stdout
    assert report.read_text("utf-8").count("evo.score") == 1


@pytest.mark.parametrize(("target", "cases"), [("topics", 120), ("extraction", 96)])
def test_dry_run_finds_the_cases_and_knobs_of_a_target(
    project, scripted_server, target, cases
):
    done = run_pytest(
        project,
        "--evolve",
        f"--evo-target={target}",
        "--evo-dry-run",
        "--budget-rollouts=600",
        "-n0",
        LOCAL_MODEL_SERVERS=scripted_server,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{cases} (" in done.stdout
    assert f"artifact: {target}\n" in done.stdout


def test_missing_wheels_are_named_with_what_to_type(project, tmp_path):
    hidden = "import sys\n\nsys.modules['xllamacpp'] = None\n"
    (tmp_path / "without_wheels.py").write_text(hidden, "utf-8")
    done = run_pytest(
        project,
        "-p",
        "without_wheels",
        PYTHONPATH=str(tmp_path),
        LOCAL_MODEL_SERVERS="",
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "xllamacpp" in done.stderr
    assert "make demo-local" in done.stderr
    assert "Traceback" not in done.stderr


def test_workers_share_the_servers(example, monkeypatch):
    monkeypatch.setenv("LOCAL_MODEL_SERVERS", "http://a:1 http://b:2")
    found = []
    for worker in ("gw0", "gw1", "gw2"):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", worker)
        found.append(example["server"].own_address())
    assert found == ["http://a:1", "http://b:2", "http://a:1"]
    monkeypatch.delenv("PYTEST_XDIST_WORKER")
    assert example["server"].own_address() == "http://a:1"


def test_a_server_that_ends_at_once_is_an_error_with_its_log(example, project):
    (project / ".cache").mkdir(exist_ok=True)
    server = example["server"].Server(project / "no-model.gguf", 7)
    with pytest.raises(example["server"].LocalModelProblem, match=r"server-7\.log"):
        server.address()
