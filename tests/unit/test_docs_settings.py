"""The page of the settings against what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_evo.plugin.options import OPTIONS
from pytest_evo.settings import Settings
from pytest_evo.settings_text import option_name

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/settings.md"
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
NONE = "\N{EN DASH}"
APART = {"target", "targets"}  # described in a section of their own


def rows() -> dict[str, str]:
    """What the tables say: settings with the column on options."""
    found = {}
    for table in re.findall(
        r"(?m)^\| setting \| option \|.*\n((?:\|.*\n)+)", PAGE.read_text()
    ):
        for line in table.splitlines()[1:]:
            _, name, option, *_ = line.split("|", 3)
            found[name.strip(" `")] = option.strip(" `")
    return found


def test_page_names_the_option_of_each_setting_that_has_one():
    real = {
        name: option_name(name) if option_name(name) in OPTIONS else NONE
        for name in Settings.model_fields
        if name not in APART
    }
    assert rows() == real


def test_every_option_belongs_to_a_setting_of_the_page():
    described = {*rows().values(), "--evolve", "--evo-target"}
    assert set(OPTIONS) - described == set()
    assert "`--evo-target NAME`" in PAGE.read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_only_options_that_exist(page):
    named = set(re.findall(r"--(?:evo|budget)[a-z-]*[a-z]", page.read_text()))
    assert named - {*OPTIONS} == set()
