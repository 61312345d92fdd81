from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    links = LINK.findall(re.sub(r"(?s)```.*?```", "", page.read_text()))
    # fragments become part of the changelog, which lies at the top
    fragment = page.parent.name == "changelog.d" and page.name != "README.md"
    folder = ROOT if fragment else page.parent
    targets = [folder / path for path, _ in links if path and ":" not in path]
    assert [str(path) for path in targets if not path.exists()] == []


def anchors(page: Path) -> set[str]:
    """What GitHub calls the headings of a page; one that is there twice is numbered."""
    text = re.sub(r"(?ms)^ *```.*?^ *```", "", page.read_text())
    found: list[str] = []
    for heading in re.findall(r"(?m)^#+ +(.+?)\s*$", text):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)
        found.append(re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-"))
    seen = [(name, found[:at].count(name)) for at, name in enumerate(found)]
    return {f"{name}-{before}" if before else name for name, before in seen}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_into_pages_lead_to_a_heading(page):
    links = LINK.findall(re.sub(r"(?s)```.*?```", "", page.read_text()))
    folder = ROOT if page.parent.name == "changelog.d" else page.parent
    inside = [
        (folder / path if path else page, name[1:])
        for path, name in links
        if name and ":" not in path
    ]
    lost = [
        f"{there.name}#{name}"
        for there, name in inside
        if there.suffix == ".md" and name not in anchors(there)
    ]
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_have_no_labels_that_only_sphinx_reads(page):
    assert re.findall(r"(?m)^\([\w-]+\)=$", page.read_text()) == []


def test_every_page_can_be_reached_from_the_overview():
    overview = (ROOT / "docs/README.md").read_text()
    folders = ("explanation", "how-to", "reference", "tutorials")
    pages = [path for name in folders for path in (ROOT / "docs" / name).glob("*.md")]
    names = [path.relative_to(ROOT / "docs").as_posix() for path in pages]
    assert [name for name in names if f"]({name})" not in overview] == []
