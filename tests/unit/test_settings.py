from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.errors import SettingsProblem
from pytest_evo.models import Kind
from pytest_evo.settings import load_settings
from pytest_evo.settings import Settings
from pytest_evo.settings_text import option_name

FULL = """\
[tool.pytest_evo]
artifact = "pipeline"
objective = "Rank the right passage first."
include = ["prompts/**", "agent.yml"]
batch = 8
budget_time = "1h30m"
timeout = 2.5
env_allow = []
scripted = ["one.patch", "two.patch"]
fingerprint_env = ["JUDGE_MODEL"]

[tool.pytest_evo.split]
val = ["tests/val/*"]
fractions = [0.4, 0.3, 0.3]

[[tool.pytest_evo.file]]
path = "pipeline.toml"
about = "stages"
kind = "config"
[[tool.pytest_evo.file.knob]]
key = "bm25.k1"
type = "float"
low = 0.4
high = 2.5

[[tool.pytest_evo.file]]
path = "steps/*.py"
kind = "script"
edit = false
max_bytes = 20000

[[tool.pytest_evo.limit]]
metric = "bytes"
max_ratio = 1.2

[[tool.pytest_evo.target]]
name = "search"
artifact = "search"
cases = ["tests/search/*"]
"""


@pytest.fixture
def load(tmp_path):
    def loader(text: str = "", **overrides: object) -> Settings:
        (tmp_path / "pyproject.toml").write_text(text)
        return load_settings(tmp_path, overrides)

    return loader


@pytest.fixture
def problem(load):
    def message(text: str = "", **overrides: object) -> str:
        with pytest.raises(SettingsProblem) as caught:
            load(text, **overrides)
        return str(caught.value)

    return message


def section(line: str) -> str:
    return f"[tool.pytest_evo]\n{line}\n"


# -- reading -------------------------------------------------------------------------


def test_no_settings_at_all_are_the_defaults(tmp_path):
    assert load_settings(tmp_path, {}) == Settings()
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    assert load_settings(tmp_path, {"artifact": None}) == Settings()


def test_every_kind_of_setting_is_read(load):
    settings = load(FULL)
    assert settings.artifact == "pipeline"
    assert settings.include == ("prompts/**", "agent.yml")
    assert settings.budget_time == 5400
    assert settings.timeout == 2.5
    assert settings.env_allow == ()
    assert settings.scripted == ("one.patch", "two.patch")
    assert settings.split.fractions == (0.4, 0.3, 0.3)
    assert settings.split.val == ("tests/val/*",)
    first, second = settings.file
    assert (first.kind, first.edit, first.knob[0].high) == (Kind.CONFIG, True, 2.5)
    assert (second.edit, second.max_bytes) == (False, 20000)
    assert settings.limit[0].max_ratio == 1.2
    assert settings.targets[0].artifact == "search"
    assert (settings.slots, settings.repeats, settings.target) == (None, None, None)


def test_settings_are_frozen(load):
    with pytest.raises(ValueError, match="frozen"):
        load(FULL).batch = 3


def test_the_command_line_wins(load):
    settings = load(FULL, batch="3", artifact="other", budget_usd=None, apply=True)
    assert (settings.batch, settings.artifact, settings.apply) == (3, "other", True)
    assert settings.timeout == 2.5


@pytest.mark.parametrize("prefix", ["", "tool.pytest_evo."])
def test_a_file_of_its_own_is_read_with_or_without_the_prefix(tmp_path, prefix):
    text = f"[[{prefix}file]]\npath = 'a.md'\n"
    (tmp_path / "pytest_evo.toml").write_text(text)
    assert load_settings(tmp_path, {}).file[0].path == "a.md"


def test_two_files_with_settings_are_refused_by_name(tmp_path):
    (tmp_path / "pytest_evo.toml").write_text("batch = 1\n")
    (tmp_path / "pyproject.toml").write_text(section("batch = 2"))
    with pytest.raises(SettingsProblem) as caught:
        load_settings(tmp_path, {})
    assert "pytest_evo.toml and [tool.pytest_evo] in pyproject.toml" in str(
        caught.value
    )
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nx = 2\n")
    assert load_settings(tmp_path, {}).batch == 1


def test_a_file_that_does_not_parse_is_named(tmp_path, problem):
    assert "pyproject.toml is not valid TOML" in problem("[tool")
    (tmp_path / "pytest_evo.toml").write_bytes(b"x = '\xff'")
    assert "pytest_evo.toml is not valid TOML" in problem("")
    assert "not a table" in problem_of(tmp_path, "tool.pytest_evo = 3")


def problem_of(folder: Path, text: str) -> str:
    (folder / "pytest_evo.toml").unlink(missing_ok=True)
    (folder / "pyproject.toml").write_text(text)
    with pytest.raises(SettingsProblem) as caught:
        load_settings(folder, {})
    return str(caught.value)


# -- refusing ------------------------------------------------------------------------

SOURCE = "pyproject.toml [tool.pytest_evo]: "


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("artefact = 'x'", "unknown key 'artefact'. Did you mean 'artifact'?"),
        ("budget-rollouts = 5", "'budget-rollouts'. Did you mean 'budget_rollouts'?"),
        ("evo_batch = 5", "unknown key 'evo_batch'. Did you mean 'batch'?"),
        ("qqqqqqqqqq = 5", "unknown key 'qqqqqqqqqq'. Remove it."),
        ("targets = []", "unknown key 'targets'. Write 'target'."),
        ("split.vall = []", "unknown key 'split.vall'. Did you mean 'val'?"),
        ("split.qq = []", "Known here: train, val, test, fractions."),
        ("file = [{pth = 'x'}]", "unknown key 'file[0].pth'. Did you mean 'path'?"),
        ("file = [{pth = 'x'}]", "file[0].path is missing. Write path = "),
        (
            "file = [{path='a.json', knob=[{key='a', type='bool', hihg=1}]}]",
            "unknown key 'file[0].knob[0].hihg'. Did you mean 'high'?",
        ),
        ("limit = [{metric='bytes', maxratio=1}]", "'limit[0].maxratio'. Did you mean"),
        ("target = [{name='x', artefact='y'}]", "'target[0].artefact'. Did you mean"),
        ("target = 'x'", "target is 'x', but it declares targets"),
    ],
)
def test_unknown_keys_are_refused_with_the_nearest_name(problem, line, message):
    told = problem(section(line))
    assert told.startswith(SOURCE)
    assert message in told


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("batch = '8'", "batch is '8': a whole number is needed"),
        ("batch = 0", "batch is 0: it should be greater than or equal to 1"),
        ("batch = 1.0", "batch is 1.0: a whole number is needed"),
        ("batch = true", "batch is True: a whole number is needed"),
        ("seed = -1", "seed is -1: it should be greater than or equal to 0"),
        ("artifact = ''", "artifact is ''"),
        ("artifact = 3", "artifact is 3"),
        ("include = '*.md'", 'Write include = ["prompts/**", "agent.yml"]'),
        ("noise = 'some'", "'auto', 'none' or 'repeats'. Write noise = \"auto\""),
        ("timeout = 0", "timeout is 0: it should be greater than 0"),
        ("budget_usd = nan", "budget_usd is nan: a number is needed"),
        ("budget_time = '1d'", "budget_time is '1d': a time is needed"),
        ("apply = 'yes'", "apply is 'yes'"),
        ("apply = 1", "apply is 1"),
        ("file = 'x'", "file is 'x': tables are needed"),
        ("file = [{path='a', kind='x'}]", "file[0].kind is 'x'"),
        ("limit = [{metric='bytes', max_ratio=0}]", "limit[0].max_ratio is 0"),
        ("split.fractions = [0.5, 0.6]", "fractions add up to 1.1, not to 1"),
        ("split.fractions = [1]", "two or three shares"),
        ("split.fractions = [1, 0]", "must be above 0"),
        ("scripted = [3]", "scripted is 3"),
        ("infrastructure = 'OSError'", 'Write infrastructure = ["httpx.ConnectError"]'),
        ("infrastructure = ['no type']", "the name of an exception type is needed"),
        ("infrastructure = ['builtins.AssertionError']", "a wrong answer raises that"),
    ],
)
def test_bad_values_are_told_with_file_key_and_what_to_type(problem, line, message):
    told = problem(section(line))
    assert told.startswith(SOURCE)
    assert message in told


@pytest.mark.parametrize(
    ("line", "better"),
    [
        ("file = [{path='a', kind='conf'}]", 'kind = "config"'),
        ("file = [{path='a', kind='Script'}]", 'kind = "script"'),
        (
            "file = [{path='a.toml', knob=[{key='k', type='integer'}]}]",
            'type = "int"',
        ),
        ("isolation = 'forked'", 'isolation = "fork"'),
        ("limit = [{metric='token', max_ratio=1}]", 'metric = "tokens"'),
    ],
)
def test_the_nearest_permitted_value_is_what_to_write(problem, line, better):
    assert f"Write {better}." in problem(section(line))


@pytest.mark.parametrize(
    "name", ["pytest-evo", "pytest_Evo", "pytestevo", "pytest_ev", "pytest-evolve"]
)
def test_a_table_of_nearly_our_name_is_refused(problem, name):
    told = problem(f"[tool.{name}]\nartifact = 'x'\n")
    assert told == (
        f"pyproject.toml: nobody reads [tool.{name}]. Write [tool.pytest_evo] instead."
    )
    assert name in problem(f"{section('')}[[tool.{name}.file]]\npath = 'x'\n")


@pytest.mark.parametrize("name", ["pytest", "pytest_env", "pytest-evals", "pytester"])
def test_tables_of_others_are_left_alone(load, name):
    assert load(f"[tool.{name}]\nx = 1\n").artifact is None


def test_a_file_of_nearly_our_name_is_refused(tmp_path):
    (tmp_path / "pytest-evo.toml").write_text("artifact = 'x'\n")
    assert "Call it pytest_evo.toml" in problem_of(tmp_path, "")


def test_all_problems_are_told_at_once(problem):
    told = problem(section("batch = 0\nslots = 'x'"), budget_rollouts="x")
    assert len(told.splitlines()) == 3
    assert "--budget-rollouts is 'x'" in told


@pytest.mark.parametrize("name", ["budget_rollouts", "slots", "seed", "concurrency"])
@pytest.mark.parametrize(
    "typed", ["-1", "1.5", "abc", "1e3", "", " 1", "+1", "0x1", "\u0661"]
)
def test_whole_numbers_on_the_command_line_are_strict(problem, name, typed):
    told = problem(**{name: typed})
    assert told.startswith(f"the command line: {option_name(name)} is {typed!r}")
    assert f"Type {option_name(name)}=" in told


@given(number=st.integers(0, 10**18 - 1))
def test_whole_numbers_in_digits_are_taken(number):
    nowhere = Path("/nonexistent")
    assert load_settings(nowhere, {"seed": str(number)}).seed == number
    assert load_settings(nowhere, {"seed": number}).seed == number


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("90m", 5400),
        ("2h", 7200),
        ("45s", 45),
        ("1h30m", 5400),
        ("1h1m1s", 3661),
        ("1.5h", 5400),
        ("90", 90),
        (90, 90),
        ("0", 0),
    ],
)
def test_times_are_read_as_people_write_them(load, typed, seconds):
    assert load(budget_time=typed).budget_time == seconds


@pytest.mark.parametrize(
    "typed", ["", "m", "1m1h", "-5", "1 h", "inf", "1e3", "2d", "h1"]
)
def test_other_times_are_refused(problem, typed):
    assert "Type --budget-time=90m" in problem(budget_time=typed)


def test_an_unknown_setting_from_the_command_line_is_named(problem):
    assert problem(bacth="3") == (
        "the command line: unknown setting 'bacth'. Did you mean 'batch'?"
    )


@pytest.mark.parametrize(
    ("knob", "message"),
    [
        ("type='float', low=1", "needs low and high"),
        ("type='float', low=2, high=1", "low below high"),
        ("type='float', low=0, high=1, log=true", "log needs low above 0"),
        ("type='int', low=0.5, high=2", "must be whole"),
        ("type='choice'", "goes with choices"),
        ("type='bool', choices=[true]", "goes with choices"),
        ("type='bool', low=1", "remove low, high, log, step"),
        ("type='real'", "knob[0].type is 'real'"),
    ],
)
def test_knobs_that_make_no_sense_are_refused(problem, knob, message):
    line = "file = [{path='a.yaml', knob=[{key='k', " + knob + "}]}]"
    assert message in problem(section(line))


def test_knobs_need_one_editable_file_of_a_known_kind(problem):
    knob = "knob=[{key='k', type='bool'}]"
    for path in ("*.toml", "a.txt", "a"):
        assert "one TOML, YAML or JSON file" in problem(
            section(f"file = [{{path='{path}', {knob}}}]")
        )
    assert "edit = false" in problem(
        section(f"file = [{{path='a.toml', edit=false, {knob}}}]")
    )


# -- targets and digest --------------------------------------------------------------


def test_a_chosen_target_gives_artifact_and_cases(load, problem):
    settings = load(FULL, target="search")
    assert settings.artifact == "search"
    assert settings.cases == ("tests/search/*",)
    assert load(FULL, target="search", artifact="mine").artifact == "mine"
    told = problem(FULL, target="serach")
    assert "--evo-target=serach" in told
    assert "declared: search" in told
    assert "Type --evo-target=search" in told


def test_two_targets_of_one_name_are_refused(problem):
    twice = FULL + FULL[FULL.index("[[tool.pytest_evo.target]]") :]
    assert "two targets have the same name" in problem(twice)


def test_digest_changes_with_what_a_run_finds_and_with_nothing_else(load):
    base = load(FULL).digest()
    assert load(FULL).digest() == base
    same = {"budget_rollouts": 5, "run_dir": "x", "apply": True, "resume": "last"}
    assert load(FULL, **same).digest() == base
    for name, value in {"seed": 1, "batch": 9, "strategy": "gepa", "slots": 2}.items():
        assert load(FULL, **{name: value}).digest() != base


@pytest.mark.parametrize(
    ("setting", "option"),
    [
        ("budget_train_rollouts", "--budget-train-rollouts"),
        ("top_n", "--evo-top-n"),
        ("gate", "--evo-gate"),
    ],
)
def test_option_name_is_the_contract_of_the_command_line(setting, option):
    assert option_name(setting) == option


def test_every_setting_has_its_place_in_the_reference():
    page = Path(__file__).parents[2] / "docs" / "reference" / "settings.md"
    text = page.read_text("utf-8")
    missing = [name for name in Settings.model_fields if f"`{name}`" not in text]
    assert missing == ["targets"]


def test_the_settings_load_no_model_library():
    code = "import pytest_evo.settings, sys; print('litellm' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n"
