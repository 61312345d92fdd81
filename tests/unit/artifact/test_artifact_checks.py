from __future__ import annotations

import time
import warnings

import pytest

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.checks import check_start
from pytest_evo.artifact.checks import check_tree
from pytest_evo.artifact.trees import make_tree
from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import ProposalRefused
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import FileRule
from pytest_evo.models import Knob
from pytest_evo.models import Tree
from pytest_evo.models import TreeEntry

BLOBS = MemoryBlobs()
ANYTHING = ArtifactSchema("artifact")
DECLARED = ArtifactSchema(
    "artifact",
    files=(
        FileRule(
            "pipeline.toml",
            knobs=(
                Knob("pipeline.toml", "bm25.k1", "float", 0.4, 2.5),
                Knob("pipeline.toml", "stem", "choice", choices=("none", "porter")),
            ),
        ),
        FileRule("steps/*.py", max_bytes=40),
        FileRule("steps/fixed.py", edit=False),
        FileRule("help.md", edit=False),
    ),
    max_bytes=400,
    max_files=6,
)
PIPELINE = 'stem = "none"\n[bm25]\nk1 = 1.2\n'
START = {
    "pipeline.toml": PIPELINE,
    "steps/a.py": "x = 1\n",
    "steps/fixed.py": "y = 1\n",
    "help.md": "help\n",
}


def tree(files: dict[str, str | bytes], *folders: str) -> Tree:
    entries = []
    parents = {name.rpartition("/")[0] for name in files} - {""}
    for folder in {*folders, *parents}:
        entries.append(TreeEntry(folder, "dir", 0o755))
    for name, text in files.items():
        data = text.encode() if isinstance(text, str) else text
        entries.append(TreeEntry(name, "file", 0o644, BLOBS.put(data), len(data)))
    return make_tree(entries)


def refusal(before: dict, after: dict, schema: ArtifactSchema = ANYTHING) -> str:
    try:
        check_tree(tree(before), tree(after), BLOBS, schema)
    except ProposalRefused as error:
        return str(error)
    return ""


def test_a_sound_edit_passes():
    after = {
        **START,
        "steps/a.py": "x = 2\n",
        "steps/new.py": "",
        "pipeline.toml": PIPELINE.replace("1.2", "2.5"),
    }
    assert refusal(START, after, DECLARED) == ""


@pytest.mark.parametrize(
    ("after", "told"),
    [
        ({**START, "help.md": "x"}, "help.md: modified, and it is read-only"),
        (
            {**START, "steps/fixed.py": ""},
            "steps/fixed.py: modified, and it is read-only",
        ),
        (
            {**START, "other.md": ""},
            "other.md: added, and only these may change: pipeline.toml, steps/*.py",
        ),
        ({**START, "steps/a/b.py": ""}, "steps/a/b.py: added"),
        ({k: v for k, v in START.items() if k != "help.md"}, "help.md: deleted"),
        (
            {**START, "steps/a.py": "#" * 41},
            "steps/a.py: has 41 bytes; its max_bytes is 40",
        ),
        (
            {**START, "steps/a.py": "x ="},
            "steps/a.py: is no Python: invalid syntax (line 1)",
        ),
        ({**START, "steps/a.py": "x = '\0'"}, "steps/a.py: is no Python"),
        ({**START, "pipeline.toml": "x ="}, "pipeline.toml: cannot be parsed"),
        (
            {**START, "pipeline.toml": PIPELINE.replace("1.2", "9")},
            "pipeline.toml: bm25.k1 is 9, outside 0.4 to 2.5",
        ),
        (
            {**START, "pipeline.toml": PIPELINE.replace("none", "x")},
            "stem is 'x', not one of",
        ),
        ({**START, "pipeline.toml": "stem='none'"}, "there is no 'bm25'"),
        ({**START, "pipeline.toml": b"\xff"}, "pipeline.toml: cannot be parsed"),
        (
            {k: v for k, v in START.items() if k != "pipeline.toml"},
            "pipeline.toml: holds the knob 'bm25.k1' and is not there",
        ),
        (
            {**START, **{f"steps/{n}.py": "" for n in range(3)}},
            "there are 7 files; max_files is 6",
        ),
        ({**START, "pipeline.toml": PIPELINE + "#" * 400}, "max_bytes is 400"),
    ],
)
def test_an_edit_against_the_schema_is_refused(after, told):
    assert told in refusal(START, after, DECLARED)


def test_all_problems_are_in_one_message():
    after = {**START, "help.md": "x", "steps/a.py": "x =", "conftest.py": ""}
    told = refusal(START, after, DECLARED)
    assert [line[:12] for line in told.splitlines()[1:]] == [
        "- conftest.p",
        "- help.md: m",
        "- conftest.p",
        "- steps/a.py",
    ]


def test_a_flood_of_problems_is_cut():
    told = refusal({}, {f"{n}.py": "x =" for n in range(500)})
    assert "- and 480 more" in told
    assert len(told) < 3000


@pytest.mark.parametrize(
    "name",
    [
        "conftest.py",
        "a/conftest.py",
        "pytest.ini",
        ".pytest.ini",
        "sitecustomize.py",
        "usercustomize.py",
        "x.pth",
        "x.pyc",
        "pytest.py",
    ],
)
def test_files_that_act_by_themselves_are_refused_unless_unchanged(name):
    assert f"{name}: may not be added" in refusal({}, {name: ""})
    assert f"{name}: may not be modified" in refusal({name: ""}, {name: "#"})
    assert f"{name}: may not be deleted" in refusal({name: "", "p": ""}, {"p": "1"})
    assert refusal({name: "", "p": ""}, {name: "", "p": "1"}) == ""


def test_settings_of_pytest_are_refused_by_content():
    config = "[tool.pytest.ini_options]\naddopts = '-x'\n"
    assert "settings of pytest" in refusal({}, {"pyproject.toml": config})
    assert "settings of pytest" in refusal({"tox.ini": "[pytest]\n"}, {"tox.ini": ""})
    assert refusal({}, {"pyproject.toml": "[tool.ruff]\n"}) == ""


def test_a_link_may_not_have_a_forbidden_name():
    link = make_tree([TreeEntry("conftest.py", "link", 0o777, target="a.md")])
    with pytest.raises(ProposalRefused, match=r"conftest\.py: may not be added"):
        check_tree(make_tree([]), link, BLOBS, ANYTHING)


def test_include_is_the_edit_surface_where_no_file_is_declared():
    schema = ArtifactSchema("artifact", include=("prompts/**", "agent.yml"))
    start = {"prompts/a.md": "1", "agent.yml": "a: 1"}
    assert refusal(start, {**start, "prompts/b/c.md": "1"}, schema) == ""
    assert "x.md: added, and it is outside of prompts/**, agent.yml" in refusal(
        start, {**start, "x.md": ""}, schema
    )


def test_names_that_collide_on_other_file_systems_are_refused():
    start = {"Prompt.md": "1"}
    assert "are one name" in refusal(start, {**start, "PROMPT.md": "2"})
    accents = {"caf\u00e9": "1"}
    assert "are one name" in refusal(accents, {**accents, "cafe\u0301": "2"})
    both = {"a": "1", "A": "2"}
    assert refusal(both, {**both, "b": "3"}) == ""
    assert "control character" in refusal(start, {**start, "a\nb": "2"})


@pytest.mark.parametrize(
    ("name", "broken"),
    [("x.json", '{"a": 1 // no\n}'), ("x.yaml", "{{ name }}: ["), ("x.py", "print 1")],
)
def test_what_never_parsed_need_not_parse_now(name, broken):
    assert name in refusal({}, {name: broken})
    assert name in refusal({name: ""}, {name: broken}) or name == "x.json"
    assert refusal({name: broken}, {name: broken + "\n"}) == ""


def test_yaml_with_tags_and_several_documents_is_fine():
    assert refusal({}, {"a.yml": "---\na: !Ref b\n---\n- 1\n"}) == ""


def test_compiling_executes_nothing_and_warns_of_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        told = refusal({}, {"a.py": "open('ran', 'w')\nx = '\\d' is '1'\n"})
    assert told == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.py", "(" * 100_000),
        ("a.py", "-" * 200_000 + "1"),
        ("a.py", "a" + ".b" * 200_000),
        ("a.json", "[" * 100_000),
        ("a.toml", "a." * 50_000 + "b = 1"),
        ("a.toml", "x = {" + "'a b'." * 30_000 + "b = 1}"),
        ("a.toml", "a = " + "[" * 100_000),
        ("a.yaml", "- " * 5_000),
    ],
)
def test_hostile_nesting_is_refused_quickly(name, text):
    before = time.process_time()
    assert name in refusal({}, {name: text})
    assert time.process_time() - before < 5


def test_check_start_tells_what_does_not_fit():
    check_start(tree(START), BLOBS, DECLARED)
    files = {**START, "pipeline.toml": PIPELINE.replace("1.2", "9")}
    del files["help.md"]
    with pytest.raises(ArtifactProblem) as caught:
        check_start(tree(files), BLOBS, DECLARED)
    assert "help.md: declared in [[tool.pytest_evo.file]] and not there" in str(
        caught.value
    )
    assert "bm25.k1 is 9, outside 0.4 to 2.5" in str(caught.value)
