from __future__ import annotations

import pytest

from pytest_evo.errors import SettingsProblem
from pytest_evo.settings import load_settings
from pytest_evo.settings_model import ModelSettings

TABLE = "[tool.pytest_evo.model_options]\n"


def load(tmp_path, lines):
    (tmp_path / "pyproject.toml").write_text(TABLE + lines)
    return load_settings(tmp_path, {})


def test_options_are_read_with_their_defaults(tmp_path) -> None:
    found = load(tmp_path, 'api_base = "http://127.0.0.1:8000/v1"\nmax_wait = "2m"\n')
    assert found.model_options.api_base == "http://127.0.0.1:8000/v1"
    assert found.model_options.max_wait == 120
    assert found.model_options == ModelSettings(
        api_base="http://127.0.0.1:8000/v1", max_wait="2m"
    )


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("tempreature = 0.5", "temperature"),
        ("temperature = 3", "temperature"),
        ("prompt_bytes = 10", "prompt_bytes"),
        ("input_usd = 1.0", "go together"),
        ("cached_usd = 1.0", "needs input_usd"),
        ("extra = { model = 'x' }", "model cannot be set here"),
        ("extra = 'x'", "a table is needed"),
        ("tools = 'perhaps'", "auto"),
    ],
)
def test_wrong_options_are_told_with_their_key(tmp_path, lines, said) -> None:
    with pytest.raises(SettingsProblem, match="model_options") as caught:
        load(tmp_path, lines)
    assert said in str(caught.value)


def test_key_in_the_settings_is_refused_and_not_repeated(tmp_path) -> None:
    key = "sk-test-0123456789abcdefghij"
    for name in ("api_key_env", "api_key"):
        with pytest.raises(SettingsProblem) as caught:
            load(tmp_path, f'{name} = "{key}"\n')
        assert key[:8] not in str(caught.value)
        assert name in str(caught.value)


def test_address_and_patience_may_change_before_a_resume(tmp_path) -> None:
    plain = load(tmp_path, "temperature = 0.5\n").digest()
    tuned = "temperature = 0.5\ntimeout = 9\ninput_usd = 1\noutput_usd = 2\n"
    assert load(tmp_path, tuned).digest() == plain
    assert load(tmp_path, "temperature = 0.6\n").digest() != plain
