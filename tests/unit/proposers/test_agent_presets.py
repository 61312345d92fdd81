from __future__ import annotations

import json

import pytest

from pytest_evo.errors import SettingsProblem
from pytest_evo.proposers.agent.gateway_wire import Wire
from pytest_evo.proposers.agent.presets import fill
from pytest_evo.proposers.agent.presets import Job
from pytest_evo.proposers.agent.presets import PRESETS
from pytest_evo.proposers.agent.presets import split_command

JOB = Job(
    workspace="/w",
    home="/h",
    prompt="Do it.\nSECOND LINE",
    model="some-model",
    root="http://127.0.0.1:17171",
    token="token-of-the-gateway",
    files=("artifact/prompt.txt", "artifact/--yes"),
)


@pytest.fixture(params=sorted(PRESETS))
def preset(request):
    return PRESETS[request.param]


def test_presets_are_those_that_are_promised():
    assert set(PRESETS) == {
        "claude",
        "codex",
        "opencode",
        "pi",
        "qwen",
        "mini",
        "aider",
    }


def test_no_preset_gives_prompt_or_token_as_an_argument(preset):
    command = preset.build(JOB)
    assert command.words[0] == preset.program
    assert not [word for word in command.words if "SECOND LINE" in word]
    assert not [word for word in command.words if JOB.token in word]


def test_every_preset_is_told_the_prompt_in_one_way(preset):
    command = preset.build(JOB)
    by_file = JOB.prompt_file in command.words
    by_settings = any("SECOND LINE" in text for text in command.files.values())
    assert [command.stdin, by_file, by_settings].count(True) == 1


def test_every_preset_reaches_the_gateway_with_its_token_and_model(preset):
    command = preset.build(JOB)
    told = json.dumps([*command.words, command.environment, command.files])
    assert JOB.root in told
    assert JOB.token in told
    assert "some-model" in told
    if preset.wire is Wire.MESSAGES:
        assert command.environment["ANTHROPIC_BASE_URL"] == JOB.root
    else:
        assert JOB.base in told


def test_every_preset_works_in_the_workspace_and_writes_below_its_home(preset):
    command = preset.build(JOB)
    assert not any(name.startswith("/") or ".." in name for name in command.files)
    folders = [value for value in command.environment.values() if value[:1] == "/"]
    assert all(value.startswith("/h/") for value in folders)


def test_claude_and_codex_choose_a_model_where_none_is_set():
    for name in ("claude", "codex"):
        words = PRESETS[name].build(Job("/w", "/h", "x")).words
        assert not {"--model", "-m"} & {*words}
        assert not PRESETS[name].needs_model


def test_claude_command_line():
    command = PRESETS["claude"].build(JOB)
    assert command.words[:3] == ("claude", "-p", "--bare")
    assert "bypassPermissions" in command.words
    assert command.environment["IS_SANDBOX"] == "1"


def test_codex_command_line():
    words = PRESETS["codex"].build(JOB).words
    assert words[:3] == ("codex", "exec", "--json")
    assert words[-1] == "-"
    assert words[words.index("-C") + 1] == "/w"
    assert 'base_url="http://127.0.0.1:17171/v1"' in " ".join(words)


def test_opencode_settings_name_one_model_for_everything():
    text = PRESETS["opencode"].build(JOB).environment["OPENCODE_CONFIG_CONTENT"]
    settings = json.loads(text)
    assert settings["model"] == settings["small_model"] == "evo/some-model"
    assert settings["share"] == "disabled"


def test_mini_gets_its_task_from_a_file():
    command = PRESETS["mini"].build(JOB)
    assert json.loads(command.files["task.yaml"])["run"]["task"] == JOB.prompt
    assert command.words[-1] == "/h/task.yaml"


def test_aider_is_given_files_that_cannot_be_options():
    words = PRESETS["aider"].build(JOB).words
    assert words[-3:] == (
        "/w/changelog.json",
        "/w/artifact/prompt.txt",
        "/w/artifact/--yes",
    )


# -- any command -------------------------------------------------------------------


def test_placeholders_are_filled_in_and_nothing_is_split_again():
    words = split_command("run 'a b' --in={prompt_file} {workspace} {model} {base_url}")
    command = fill(words, JOB)
    assert command.words == (
        "run",
        "a b",
        "--in=/h/prompt.md",
        "/w",
        "some-model",
        "http://127.0.0.1:17171/v1",
    )
    assert not command.stdin


def test_command_without_a_prompt_file_gets_the_prompt_on_its_input():
    command = fill(split_command("run it"), JOB)
    assert command.stdin
    assert command.environment["OPENAI_BASE_URL"] == JOB.base
    assert command.environment["ANTHROPIC_API_KEY"] == JOB.token


def test_command_without_a_gateway_gets_no_variables():
    assert fill(("run",), Job("/w", "/h", "x")).environment == {}


@pytest.mark.parametrize("line", ["run 'open", "run {prompt}", "run {workspaces}"])
def test_unusable_command_lines_are_refused(line):
    with pytest.raises(SettingsProblem, match=r"agent = "):
        split_command(line)
