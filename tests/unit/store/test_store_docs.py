from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from pytest_evo.events import Event
from pytest_evo.store.run_info import RunInfo

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "run-directory.md"


@pytest.mark.parametrize("kind", get_args(Event), ids=lambda kind: kind.__name__)
def test_page_names_every_kind_with_all_its_fields(kind: type) -> None:
    names = {field.name: field.default for field in fields(kind)}
    (row,) = (
        line
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith(f"| `{names['kind']}` |")
    )
    missing = [name for name in names if name != "kind" and f"`{name}`" not in row]
    assert missing == []


def test_page_names_all_of_run_json() -> None:
    text = PAGE.read_text(encoding="utf-8").partition("## run.json")[2]
    assert [name for name in RunInfo.model_fields if f"`{name}`" not in text] == []
