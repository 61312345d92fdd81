from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.artifact.globs import covers
from pytest_evo.artifact.globs import is_plain
from pytest_evo.artifact.globs import matches


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("steps/*.py", "steps/a.py", True),
        ("steps/*.py", "steps/a/b.py", False),
        ("steps/*.py", "steps/a.pyx", False),
        ("*.md", "a.md", True),
        ("*.md", "d/a.md", False),
        ("**/*.md", "a.md", True),
        ("**/*.md", "d/e/a.md", True),
        ("d/**", "d/a", True),
        ("d/**", "d/e/a", True),
        ("d/**", "d", False),
        ("d/**/x", "d/x", True),
        ("d/**/x", "d/e/f/x", True),
        ("**", "a/b", True),
        ("./a//b", "a/b", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("[ab].md", "b.md", True),
        ("[!ab].md", "c.md", True),
        ("[!ab].md", "a.md", False),
        ("a[!b]c", "a/c", False),
        ("[^a]", "^", True),
        ("[]]", "]", True),
        ("[", "[", True),
        ("a.c", "abc", False),
        ("(a)+$", "(a)+$", True),
        ("*", "a\nb", True),
        ("[z-a]", "z", False),
    ],
)
def test_matches_whole_paths(pattern, path, fits):
    assert matches(pattern, path) is fits


def test_matches_many_stars_in_no_time():
    assert not matches("*a" * 12 + "b", "a" * 60)


def test_covers_takes_a_folder_for_what_is_in_it():
    assert covers("prompts", "prompts/a/b.md")
    assert covers("*.yml", "a.yml")
    assert not covers("prompts", "prompts2/a")


def test_is_plain_tells_names_from_globs():
    assert [is_plain(x) for x in ("a/b.py", "*.py", "a?", "[a]")] == [
        True,
        False,
        False,
        False,
    ]


def slow_and_plain(pattern: list[str], path: list[str]) -> bool:
    if not pattern:
        return not path
    if pattern[0] == "**":
        if len(pattern) == 1:
            return bool(path)
        return slow_and_plain(pattern[1:], path) or (
            bool(path) and slow_and_plain(pattern, path[1:])
        )
    return (
        bool(path)
        and fnmatchcase(path[0], pattern[0])
        and slow_and_plain(pattern[1:], path[1:])
    )


@given(
    pattern=st.lists(
        st.sampled_from(["a", "b", "*", "**", "a*", "*b*a", "?", "[!a]", "a*b"]),
        min_size=1,
        max_size=5,
    ),
    path=st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=5),
)
def test_matches_like_a_matcher_that_tries_everything(pattern, path):
    assert matches("/".join(pattern), "/".join(path)) is slow_and_plain(pattern, path)
