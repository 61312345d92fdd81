"""Secrets do not get into what is stored and shown of rollouts."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.plugin.redaction import dotenv_files
from pytest_evo.plugin.redaction import Redaction
from pytest_evo.plugin.redaction import secrets_of

VALUE = "p/w \"x\" 'y' \\ zzz"


def payload(text: str) -> bytes:
    return json.dumps({"phases": [{"message": text, "seconds": 1.5}]}).encode()


def message(redaction: Redaction, text: str) -> str:
    data: Any = redaction.loads(payload(text))
    (phase,) = data["phases"]
    assert phase["seconds"] == 1.5
    return str(phase["message"])


@pytest.mark.parametrize(
    "shown",
    [
        VALUE,
        repr({"A": VALUE}),
        quote(VALUE, safe=""),
        base64.b64encode(VALUE.encode()).decode(),
    ],
)
def test_value_is_replaced_however_it_is_shown(shown: str) -> None:
    said = message(Redaction({"DB_PASSWORD": VALUE}), f"before {shown} after")
    assert "zzz" not in said
    assert "[redacted DB_PASSWORD]" in said
    assert said.startswith("before ")
    assert said.endswith(" after") or shown.startswith("{")


@pytest.mark.parametrize(
    "token",
    [
        "sk-proj-abcdefghijklmnopqrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwxyz0123",
        "AKIAABCDEFGHIJKLMNOP",
        "xoxb-1234567890-abcdef",
        "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_well_known_tokens_go_without_a_variable(token: str) -> None:
    assert message(Redaction({}), f"key={token};") == "key=[redacted];"


def test_longer_values_are_replaced_first() -> None:
    redaction = Redaction({"KEY": "abcdefgh", "LONG_KEY": "abcdefgh-ijkl"})
    assert redaction.text("abcdefgh-ijkl") == "[redacted LONG_KEY]"


def test_secrets_are_found_by_the_words_of_a_name(tmp_path: Path) -> None:
    environment = {
        "OPENAI_API_KEY": "abcdefghijkl",
        "KEYBOARD": "us-intl-with-dead",
        "PWD": "/home/somebody",
        "TOKEN_FILE": "/run/secrets/token",
        "SHORT_TOKEN": "abc",
        "DEMO_PASSWORD": "password",
        "DATABASE_URL": "postgres://me:much-secret@db/x",
        "HOMEPAGE_URL": "https://example.invalid/somewhere",
    }
    assert secrets_of(environment, tmp_path) == {
        "OPENAI_API_KEY": "abcdefghijkl",
        "DATABASE_URL": "much-secret",
    }


def test_files_of_variables_in_the_artifact_are_read(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / ".env").write_text("MODE=quick\nexport DB_PASSWORD='hunter2-hunter2'\n")
    (tmp_path / "sub" / ".env.local").write_text("API_TOKEN = 0123456789ab\n")
    assert secrets_of({}, tmp_path) == {
        "DB_PASSWORD": "hunter2-hunter2",
        "API_TOKEN": "0123456789ab",
    }
    assert len(dotenv_files(tmp_path)) == 2


@given(st.text(), st.text(min_size=8))
def test_data_stays_data(text: str, secret: str) -> None:
    redaction = Redaction({"SOME_KEY": secret})
    data: Any = redaction.loads(json.dumps([text, secret, 1, None]).encode())
    assert data[2:] == [1, None]
    assert secret not in str(data[1]) or secret in "[redacted SOME_KEY]"


def test_text_without_secrets_stays_as_it_is() -> None:
    redaction = Redaction({"SOME_KEY": "abcdefgh"})
    text = "nothing here but sk-learn, AKIA and xoxb"
    assert message(redaction, text) == text
