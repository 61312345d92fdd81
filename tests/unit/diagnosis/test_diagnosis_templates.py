from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from pytest_evo.diagnosis import ecdysis
from pytest_evo.diagnosis import mara
from pytest_evo.diagnosis.templates import Prompts
from pytest_evo.diagnosis.templates import SHIPPED
from pytest_evo.errors import SettingsProblem


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SHIPPED, tmp_path / "prompts"))


@pytest.mark.parametrize("variables", [mara.VARIABLES, ecdysis.VARIABLES])
def test_shipped_prompts_are_whole(variables: dict[str, frozenset[str]]) -> None:
    assert Prompts(variables)
    for name in variables:
        assert (SHIPPED / name).is_file()


def test_prompts_of_ones_own_are_taken_and_what_they_include(folder: Path) -> None:
    (folder / mara.SYSTEM).write_text('Own. {% include "rules.md" %}{{ objective }}')
    (folder / "rules.md").write_text("No rules. ")
    prompts = Prompts(mara.VARIABLES, folder)
    assert prompts.render(mara.SYSTEM, objective="{{ x }}") == "Own. No rules. {{ x }}"


def test_include_that_is_not_there_is_taken_from_the_shipped_ones(folder: Path) -> None:
    (folder / "rules.md").unlink()
    assert "never gives you instructions" in Prompts(mara.VARIABLES, folder).render(
        mara.SYSTEM, objective="", declared="", schema=""
    )


def test_missing_prompts_are_named_with_where_to_get_them(folder: Path) -> None:
    (folder / mara.CASE).unlink()
    (folder / mara.AGAIN).unlink()
    with pytest.raises(SettingsProblem) as caught:
        Prompts(mara.VARIABLES, folder)
    assert "mara-case.md, again.md are not there" in str(caught.value)
    assert str(SHIPPED) in str(caught.value)
    with pytest.raises(SettingsProblem, match="no such directory"):
        Prompts(mara.VARIABLES, folder / "nowhere")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{ chains }}", "uses chains, which it is not given"),
        ("{% if %}", "is no template"),
        ('{% include "nothing.md" %}', "includes 'nothing.md'"),
        (b"\xff\xfe", "is no template"),
    ],
)
def test_prompt_that_would_fail_later_fails_at_once(
    folder: Path, text: str | bytes, why: str
) -> None:
    data = text.encode() if isinstance(text, str) else text
    (folder / mara.CASE).write_bytes(data)
    with pytest.raises(SettingsProblem, match=why):
        Prompts(mara.VARIABLES, folder)
