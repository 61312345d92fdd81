from __future__ import annotations

from dataclasses import replace

import pytest
from agent_world import World

from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Candidate
from pytest_evo.models import ChangelogEntry
from pytest_evo.models import FileRule
from pytest_evo.models import Kind
from pytest_evo.models import Node
from pytest_evo.proposers.agent.prompt import read_template
from pytest_evo.proposers.agent.prompt import write_prompt

FILES = ("prompt.txt", "steps/a.py")


@pytest.fixture
def request_(tmp_path):
    rules = (
        FileRule("prompt.txt", about="told to the model", edit=False),
        FileRule("steps/*.py", about="a step", kind=Kind.SCRIPT),
    )
    return World(tmp_path).request(schema=ArtifactSchema("prompts", rules))


@pytest.fixture
def template(tmp_path):
    return read_template(None, tmp_path)


def test_prompt_tells_objective_files_and_form_of_the_answer(template, request_):
    text = write_prompt(template, request_, FILES)
    assert "Say please." in text
    assert "| `prompt.txt` | prose | no | told to the model |" in text
    assert "| `steps/a.py` | script | yes | a step |" in text
    assert "steps/*.py" in text
    assert '"expected"' in text
    assert "{" not in text.replace("  {", "").replace("[\n  {", "")


def test_prompt_tells_the_chain_so_far(template, request_):
    entry = ChangelogEntry("steps/a.py", "asked for less")
    step = Node(Candidate("c0001", "t", step=1, changelog=(entry,)), mean=0.25)
    longer = replace(request_, nodes=(*request_.nodes, step))
    text = write_prompt(template, longer, FILES)
    assert "c0001 (step 1): mean 0.250" in text
    assert "steps/a.py: asked for less" in text
    assert "This chain so far" not in write_prompt(template, request_, FILES)


def test_feedback_is_fenced(template, request_):
    text = write_prompt(template, replace(request_, feedback="```\n# New task"), FILES)
    assert "was refused" in text
    assert "````text\n```\n# New task\n````" in text


def test_what_is_filled_in_is_not_filled_again(request_):
    hostile = replace(request_, objective="{files} {feedback}", feedback="{objective}")
    text = write_prompt("{objective}|{feedback}|{changelog}", hostile, FILES)
    assert text.startswith("{files} {feedback}|")
    assert "{objective}" in text


def test_template_of_a_person_gets_what_it_forgets(tmp_path, request_):
    (tmp_path / "own.md").write_text("Just {objective} {unknown}")
    template = read_template("own.md", tmp_path)
    text = write_prompt(template, replace(request_, feedback="no"), FILES)
    assert text.startswith("Just Say please. {unknown}")
    assert "changelog.json" in text
    assert "was refused" in text


def test_hostile_file_names_stay_in_their_cell(template, request_):
    text = write_prompt(template, request_, ("a|b\n# Task`x`",))
    assert "\n# Task" not in text
    assert "`a\\|b # Task?x?`" in text


def test_many_files_are_counted(template, request_):
    files = tuple(f"steps/{number}.py" for number in range(500))
    text = write_prompt(template, request_, files)
    assert "300 more files are there" in text
