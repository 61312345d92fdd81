"""Keeps secrets out of what rollouts say.

Journals, reports and prompts are made of captured output and failures, and tests print
environments, connection errors and local variables. So values of variables that look
like secrets, and texts that look like well-known tokens, are replaced where a rollout
enters the controller. Scores and outcomes are not touched.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.parse import quote_plus
from urllib.parse import urlsplit

from pytest_evo.models import Json

SHORTEST = 8
"""Characters of a value that is taken for a secret, at least."""
_WORDS = frozenset(
    (
        "APIKEY",
        "COOKIE",
        "CREDENTIAL",
        "CREDENTIALS",
        "DSN",
        "KEY",
        "PASS",
        "PASSPHRASE",
        "PASSWD",
        "PASSWORD",
        "PAT",
        "SECRET",
        "TOKEN",
        "WEBHOOK",
    )
)
_TOKENS = tuple(
    (beginning, re.compile(re.escape(beginning) + rest, re.DOTALL))
    for beginning, rest in (
        ("sk-", r"[A-Za-z0-9_-]{20,}"),
        ("gh", r"[pousr]_[A-Za-z0-9]{20,}"),
        ("github_pat_", r"[A-Za-z0-9_]{20,}"),
        ("glpat-", r"[A-Za-z0-9_-]{20,}"),
        ("AKIA", r"[0-9A-Z]{16}"),
        ("AIza", r"[A-Za-z0-9_-]{35}"),
        ("xox", r"[abeprs]-[A-Za-z0-9-]{10,}"),
        (
            "-----BEGIN ",
            r"[A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
        ),
    )
)
_ASSIGNMENT = re.compile(r"^\s*(?:export\s+)?(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_LARGEST_FILE = 100_000


class Redaction:
    """Replaces secrets in plain data."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """Take secrets by name; ``secrets_of`` finds them."""
        forms = {
            form: f"[redacted {name}]"
            for name, value in secrets.items()
            for form in _forms(value)
        }
        # a value that is part of another one comes later
        self._forms = sorted(forms.items(), key=lambda pair: -len(pair[0]))
        self._escaped = [json.dumps(form)[1:-1] for form, _ in self._forms]

    def loads(self, payload: bytes) -> Any:
        """Parse JSON whose texts may hold secrets.

        Raises:
            ValueError: it is no JSON.
        """
        text = payload.decode()
        data = json.loads(text)
        return self._clean(data) if self._suspects(text) else data

    def text(self, text: str) -> str:
        """A text without secrets."""
        for form, instead in self._forms:
            if form in text:
                text = text.replace(form, instead)
        for beginning, pattern in _TOKENS:
            if beginning in text:  # most texts have none, and this is told quickly
                text = pattern.sub("[redacted]", text)
        return text

    def _suspects(self, text: str) -> bool:
        if any(form in text for form in self._escaped):
            return True
        return any(
            beginning in text and pattern.search(text) for beginning, pattern in _TOKENS
        )

    def _clean(self, data: Json) -> Json:
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {key: self._clean(value) for key, value in data.items()}
        if isinstance(data, (list, tuple)):
            return [self._clean(value) for value in data]
        return data


def secrets_of(environment: Mapping[str, str], artifact: Path) -> dict[str, str]:
    """Secrets by name: of the environment, and of ``.env`` files in the artifact."""
    found = dict(_secrets(environment.items()))
    for path in dotenv_files(artifact):
        try:
            text = path.read_text("utf-8", "replace")
        except OSError:
            continue
        pairs = _ASSIGNMENT.findall(text)
        found.update(_secrets((name, value.strip("\"'")) for name, value in pairs))
    return found


def dotenv_files(artifact: Path) -> list[Path]:
    """Files of the artifact that keep variables, by their names."""
    paths = {*artifact.rglob(".env"), *artifact.rglob(".env.*")}
    return sorted(
        path
        for path in paths
        if path.is_file() and path.stat().st_size <= _LARGEST_FILE
    )


def _secrets(pairs: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    for name, value in pairs:
        kept = value
        if _WORDS.isdisjoint(name.upper().split("_")):
            kept = _password(value)
        if len(kept) >= SHORTEST and not _is_path(kept) and not _is_word(kept):
            yield name, kept


def _password(value: str) -> str:
    """The password in a URL, empty where there is none."""
    if "://" not in value or "@" not in value:
        return ""
    try:
        return urlsplit(value).password or ""
    except ValueError:
        return ""


def _is_path(value: str) -> bool:
    return value.startswith(("/", "./", "~")) and len(value.split()) == 1


def _is_word(value: str) -> bool:
    """Whether texts hold it anyway, for reasons of their own."""
    return value.isalpha() and (value.islower() or value.istitle()) and len(value) < 12


def _forms(value: str) -> Iterable[str]:
    """A value as tests print it: itself, in a repr, in a URL, in base64."""
    yield value
    yield repr(value)[1:-1]
    yield quote(value, safe="")
    yield quote_plus(value)
    yield (
        base64.b64encode(value.encode("utf-8", "surrogateescape")).decode().rstrip("=")
    )
