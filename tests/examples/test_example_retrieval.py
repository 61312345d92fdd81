"""The retrieval example: its corpus, questions, ranking and evals."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from example_copy import copy_of
from example_copy import EXAMPLES
from example_copy import loaded

EXAMPLE = EXAMPLES / "retrieval"
MODULES = ("corpus", "index", "metrics", "questions", "search")

np = pytest.importorskip("numpy", reason="the example needs its requirements.txt")
bm25s = pytest.importorskip("bm25s", reason="the example needs its requirements.txt")
pytest.importorskip("Stemmer", reason="the example needs its requirements.txt")


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_of("retrieval", tmp_path_factory.mktemp("example"))


@pytest.fixture(scope="module")
def example(project: Path) -> Iterator[dict[str, ModuleType]]:
    with loaded(project, MODULES) as modules:
        yield modules


def test_corpus_has_thousands_of_passages_with_unique_ids(example):
    passages = example["corpus"].load_passages()
    ids = [passage.id for passage in passages]
    assert len(ids) > 4_000
    assert ids == sorted(set(ids))
    assert {"json.loads", "topics:lambda", "topics:with#2", "io.StringIO"} < set(ids)
    assert {passage.kind for passage in passages} == {
        "module",
        "class",
        "function",
        "method",
        "topic",
    }
    assert not [passage.id for passage in passages if not passage.text.strip()]


def test_corpus_is_the_same_in_another_process_and_from_the_cache(example, project):
    code = (
        "import corpus, hashlib\n"
        "corpus.CACHE = corpus.Path('elsewhere')\n"
        "first = corpus.load_passages()\n"
        "corpus.load_passages.cache_clear()\n"
        "assert corpus.load_passages() == first\n"
        "print(hashlib.sha256(repr(first).encode()).hexdigest())\n"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    output = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = hashlib.sha256(repr(example["corpus"].load_passages()).encode()).hexdigest()
    assert output.strip() == here


def test_questions_are_many_distinct_and_have_gold_in_the_corpus(example):
    questions = example["questions"].load_questions()
    assert len(questions) >= 120
    assert len({question.text.casefold() for question in questions}) == len(questions)
    assert all(1 <= len(set(question.gold)) <= 4 for question in questions)
    assert all(len(set(q.gold)) == len(q.gold) for q in questions)
    modules = {gold.split(".")[0] for q in questions for gold in q.gold}
    assert len(modules) > 60


def test_questions_do_not_copy_their_answers(example):
    """No question repeats a run of six words of a passage that answers it."""
    texts = {passage.id: passage.text for passage in example["corpus"].load_passages()}
    for question in example["questions"].load_questions():
        words = question.text.casefold().split()
        runs = {" ".join(words[at : at + 6]) for at in range(len(words) - 5)}
        for gold in question.gold:
            passage = " ".join(texts[gold].casefold().split())
            assert not [run for run in runs if run in passage], question.id


@pytest.mark.parametrize("gold", ["json.loadz", "topics:lambda#9"])
def test_a_question_whose_answer_does_not_exist_is_refused(
    example, project, monkeypatch, tmp_path, gold
):
    table = f'[[question]]\nid = "a"\ntext = "b"\ngold = ["{gold}"]\n'
    (tmp_path / "questions.toml").write_text(table, encoding="utf-8")
    monkeypatch.setattr(
        example["questions"], "__file__", str(tmp_path / "questions.py")
    )
    with pytest.raises(ValueError, match=f"a: {gold}"):
        example["questions"].load_questions()


@pytest.mark.parametrize("method", ["lucene", "robertson", "atire", "bm25l", "bm25+"])
def test_scores_are_those_of_bm25s(example, method):
    documents = [
        ["read", "a", "json", "file"],
        ["write", "a", "file", "then", "another", "file"],
        ["json", "text", "json", "data", "json"],
        [],
        ["sort", "a", "list"],
    ]
    query = ["json", "file", "file", "unknown"]
    parameters = {"method": method, "k1": 1.2, "b": 0.6, "delta": 0.7}
    theirs = bm25s.BM25(**parameters)
    theirs.index(documents, show_progress=False)
    ours = example["index"].BM25(
        example["index"].Postings.build(documents), **parameters
    )
    expected = theirs.get_scores(query)
    np.testing.assert_allclose(ours.score(query), expected, rtol=1e-4, atol=1e-5)
    rows = np.array([ours.postings.row("json"), ours.postings.row("file")])
    weighted = ours.score_rows(rows, np.array([1.0, 2.0]))
    np.testing.assert_allclose(weighted, expected, rtol=1e-4, atol=1e-5)


def test_the_start_ranks_like_bm25s_with_its_defaults(example, project):
    passages = example["corpus"].load_passages()
    texts = [f"{passage.id}\n{passage.text}" for passage in passages]
    plain = bm25s.BM25()
    plain.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    questions = example["questions"].load_questions()[::40]
    for question in questions:
        tokens = bm25s.tokenize(question.text, return_ids=False, show_progress=False)
        scores = plain.get_scores(tokens[0])
        found = example["search"].search(project / "pipeline", question.text)
        number = {passage.id: place for place, passage in enumerate(passages)}
        best = np.sort(scores)[::-1][: len(found)]
        ours = [scores[number[passage]] for passage in found]
        np.testing.assert_allclose(ours, best, rtol=1e-4)


def test_every_knob_names_a_value_within_its_range(project):
    settings = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))
    rule = next(r for r in settings["tool"]["pytest_evo"]["file"] if "knob" in r)
    values = tomllib.loads((project / "pipeline" / rule["path"]).read_text("utf-8"))
    for knob in rule["knob"]:
        value = values
        for part in knob["key"].split("."):
            value = value[part]
        if knob["type"] == "choice":
            assert value in knob["choices"], knob["key"]
        else:
            assert knob["low"] <= value <= knob["high"], knob["key"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('stemmer = "none"', 'stemmer = "english"'),
        ('identifiers = "whole"', 'identifiers = "both"'),
        ('stop_words = "english"', 'stop_words = "english_plus"'),
        ("k1 = 1.5", "k1 = 0.4"),
        ("\nb = 0.75", "\nb = 0.1"),
        ("coverage = 0.0", "coverage = 1.0"),
        ("max_share = 1.0", "max_share = 0.02"),
        ("title = 0.0", "title = 1.0"),
        ("summary = 0.0", "summary = 1.0"),
        ("opening = 0.0", "opening = 1.0"),
        ("arguments = 0.0", "arguments = 1.0"),
        ("parent = 0.0", "parent = 1.0"),
        ("letters = 0.0", "letters = 1.0"),
        ("weight = 0.0", "weight = 0.5"),
        ("method = 1.0", "method = 0.5"),
        ("depth = 0.0", "depth = 0.5"),
    ],
)
def test_every_parameter_changes_some_ranking(example, project, tmp_path, old, new):
    directory = tmp_path / "pipeline"
    shutil.copytree(project / "pipeline", directory)
    text = (directory / "pipeline.toml").read_text("utf-8")
    assert old in text
    (directory / "pipeline.toml").write_text(text.replace(old, new), "utf-8")
    search = example["search"].search
    questions = [q.text for q in example["questions"].load_questions()[::12]]
    before = [search(project / "pipeline", text) for text in questions]
    assert [search(directory, text) for text in questions] != before


def test_postings_of_an_edited_tokeniser_are_not_those_of_the_old_one(
    example, project, tmp_path
):
    directory = tmp_path / "pipeline"
    shutil.copytree(project / "pipeline", directory)
    search = example["search"].search
    assert search(directory, "deepcopy")[0] == "copy.deepcopy"
    tokens = directory / "steps" / "tokens.py"
    source = tokens.read_text("utf-8")
    tokens.write_text(
        source + "\n\ndef tokens(texts, settings):\n"
        '    return [["x"] if "lambda_expr" in text else ["y"] for text in texts]\n',
        "utf-8",
    )
    assert search(directory, "lambda_expr")[0].startswith("topics:")


def test_stored_postings_are_bounded(example, tmp_path):
    index = example["index"]
    for number in range(index.KEPT + 3):
        index.Postings.build([["a"]]).store(tmp_path / f"key-{number}")
    index.Postings.build([["b"]]).store(tmp_path / "key-0")  # kept: the first wins
    assert index.Postings.load(tmp_path / "key-0").row("a") == 0
    index._drop_oldest(tmp_path)
    assert len(list(tmp_path.iterdir())) == index.KEPT


def test_metrics_reward_gold_near_the_top(example):
    ndcg = example["metrics"].ndcg
    recall = example["metrics"].recall
    assert ndcg(["a", "b"], ("a", "b")) == 1.0
    assert ndcg(["x", "a"], ("a",)) == pytest.approx(0.6309, abs=1e-4)
    assert ndcg(["a", "x", "b"], ("a", "b")) < 1.0
    assert ndcg([], ("a",)) == recall([], ("a",)) == 0.0
    assert recall(["x", "a"], ("a", "b")) == 0.5
    assert ndcg([*"0123456789", "a"], ("a",)) == 0.0


def test_plain_pytest_runs_the_evals(example, project):
    chosen = ["parse a json string", "how can I delete a directory"]
    ids = [
        question.id
        for question in example["questions"].load_questions()
        if question.text.startswith(tuple(chosen))
    ]
    found = [f"tests/test_search.py::test_answer_is_found[{name}]" for name in ids]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q", *found]
    report = project / "plain.xml"
    done = subprocess.run(
        [*command, f"--junitxml={report}"],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    text = report.read_text("utf-8")
    assert f'tests="{len(ids)}"' in text
    assert 'errors="0"' in text
    assert text.count("evo.score.ndcg@10") == len(ids) == 2
    assert text.count("evo.audit.recall@10") == len(ids)
