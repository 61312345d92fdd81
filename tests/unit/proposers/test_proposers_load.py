from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path
from random import Random

import pytest

from pytest_evo.errors import SettingsProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Candidate
from pytest_evo.models import FileRule
from pytest_evo.models import Knob
from pytest_evo.proposers.load import choose_proposer
from pytest_evo.proposers.load import load_proposer
from pytest_evo.proposers.scripted import PatchProposer
from pytest_evo.proposers.search import SearchProposer
from pytest_evo.protocols import ProposalRequest
from pytest_evo.settings import Settings

PLAIN = ArtifactSchema("artifact")
KNOBBED = ArtifactSchema(
    "artifact",
    (FileRule("p.toml", knobs=(Knob("p.toml", "k", "float", low=0.0, high=1.0),)),),
)


@pytest.fixture(autouse=True)
def untouched_imports(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("own_", "_pytest_evo_script_")):
            del sys.modules[name]


@pytest.fixture
def load(tmp_path):
    def load(name=None, schema=PLAIN, **more):
        return load_proposer(name, Settings(**more), schema, tmp_path)

    return load


def answer(proposer):
    request = ProposalRequest(
        1, 0, Path(), PLAIN, "", Candidate("c", "t"), (), (), (), None, Random(0), ()
    )
    found = proposer.propose(request)

    async def wait():
        return await found

    return asyncio.run(wait()) if inspect.isawaitable(found) else found


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({}, "search"),
        ({"model": "m"}, "llm"),
        ({"agent": "a"}, "agent"),
        ({"model": "m", "agent": "a"}, "llm"),
        ({"scripted": "s.py"}, "scripted"),
        ({"scripted": "s.py", "model": "m"}, "llm"),
        ({"proposer": "search", "model": "m"}, "search"),
    ],
)
def test_default_follows_from_the_other_settings(settings, name):
    assert choose_proposer(Settings(**settings)) == name


def test_search_needs_knobs_and_names_the_ways_out(load):
    assert isinstance(load(schema=KNOBBED), SearchProposer)
    with pytest.raises(SettingsProblem) as caught:
        load()
    for way in ("file.knob", "--evo-model", "--evo-agent", "scripted"):
        assert way in str(caught.value)


def test_search_without_optuna_says_what_to_install(load, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SettingsProblem, match=r'pip install "pytest-evo\[search\]"'):
        load(schema=KNOBBED)


def test_model_proposer_without_a_model_says_how_to_name_one(load):
    with pytest.raises(SettingsProblem, match="--evo-model=PROVIDER/NAME"):
        load("llm")


def test_agent_proposer_without_an_agent_names_those_there_are(load):
    with pytest.raises(SettingsProblem, match="claude, codex, opencode, pi"):
        load(name="agent")


def test_model_and_agent_together_are_worth_a_word(tmp_path):
    said = []
    for proposer in (None, "llm"):
        settings = Settings(model="openai/m", agent="claude", proposer=proposer)
        with pytest.raises(SettingsProblem):  # no model was made for it
            load_proposer(None, settings, PLAIN, tmp_path, notice=said.append)
    assert len(said) == 1
    assert "--evo-proposer=agent" in said[0]


def test_unknown_names_get_the_nearest_one(load):
    with pytest.raises(SettingsProblem, match="--evo-proposer=search"):
        load("serach")


MODULE = """
from dataclasses import dataclass
def propose(request): return "function"
async def later(request): return "async"
class Kind:
    def propose(self, request): return "class"
    def other(self, request): return "method"
class Needy:
    def __init__(self, thing): pass
thing = Kind()
number = 3
"""


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        (":propose", "function"),
        (":later", "async"),
        (":Kind", "class"),
        (":Kind.other", "method"),
        (":thing", "class"),
        (":thing.other", "method"),
    ],
)
def test_own_proposers_may_be_anything_that_proposes(load, tmp_path, attribute, said):
    (tmp_path / "own_parts.py").write_text(MODULE)
    assert answer(load(f"own_parts{attribute}")) == said
    assert answer(load(f"own_parts.py{attribute}")) == said
    assert answer(load("scripted", scripted=f"own_parts{attribute}")) == said
    assert answer(load("scripted", scripted=f"own_parts.py{attribute}")) == said


def test_script_without_a_name_is_its_propose(load, tmp_path):
    (tmp_path / "own_parts.py").write_text(MODULE)
    assert answer(load("own_parts.py")) == "function"
    assert answer(load(str(tmp_path / "own_parts.py"))) == "function"
    assert answer(load("scripted", scripted="own_parts.py")) == "function"
    assert answer(load("scripted", scripted="own_parts")) == "function"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("own_parts:nothing", "has no 'nothing'.*propose, later, Kind, Needy"),
        ("own_parts:number", "cannot propose"),
        ("own_parts:Needy", "without arguments"),
        ("own_missing:x", "cannot be imported"),
        ("own_broken:x", "ZeroDivisionError"),
        ("own_empty:", "cannot propose"),
    ],
)
def test_what_cannot_propose_is_named(load, tmp_path, name, said):
    (tmp_path / "own_parts.py").write_text(MODULE)
    (tmp_path / "own_broken.py").write_text("1 / 0")
    (tmp_path / "own_empty.py").write_text("")
    with pytest.raises(SettingsProblem, match=said):
        load(name)


def test_script_of_patches(load, tmp_path):
    (tmp_path / "01").mkdir()
    (tmp_path / "02.patch").write_text("--- a\n+++ a\n@@ -1 +1 @@\n-x\n+y\n")
    assert isinstance(load(scripted=("01", "02.patch")), PatchProposer)
    assert isinstance(load(scripted="02.patch"), PatchProposer)
    assert isinstance(load(scripted="01"), PatchProposer)


def test_script_that_is_missing_says_what_to_set(load):
    with pytest.raises(SettingsProblem, match="needs a script"):
        load("scripted")
    with pytest.raises(SettingsProblem, match="there is no file"):
        load("scripted", scripted="absent.py")
