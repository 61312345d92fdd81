from __future__ import annotations

import json
import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from pytest_evo.artifact.knobs import knob_problem
from pytest_evo.artifact.knobs import read_knob
from pytest_evo.artifact.knobs import write_knob
from pytest_evo.errors import ArtifactProblem
from pytest_evo.models import Knob

TOML = """\
# stages, in order
title = "x"  # the name
[bm25]   # first stage
k1 = 1.2   # saturation
"odd.name" = 3
b=0.75
flags = { stem = true, stop = false }  # inline

[[stages]]
name = 'first'
k = 1

[[stages]]
name = "second"
k = 2  # two
"""

YAML_TEXT = """\
# stages, in order
title:   x   # the name
bm25:
    k1: 1.2   # saturation
    "odd.name": 3
    b:    .75
    flags: {stem: true, stop: false}  # flow
stages:
- name: 'first'
  k: 1
- name: "second"
  k: 2  # two
long: this line is longer than what a writer with a default width leaves alone
"""

JSON = """\
{ "title":"x",
  "bm25": {"k1" : 1.2, "odd.name":3,   "b": 7.5e-1, "flags":{"stem":true,"stop":false}},
  "stages": [ {"name": "first", "k": 1}, {"name": "second \\u00e9", "k": 2} ]
}
"""

TEXTS = {".toml": TOML, ".yaml": YAML_TEXT, ".yml": YAML_TEXT, ".json": JSON}


def packed(line: str) -> str:
    return re.sub(" +#", " #", line)


@pytest.mark.parametrize("suffix", TEXTS)
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("title", "x"),
        ("bm25.k1", 1.2),
        ('bm25."odd.name"', 3),
        ("bm25.b", 0.75),
        ("bm25.flags.stem", True),
        ("stages.0.name", "first"),
        ("stages.1.k", 2),
    ],
)
def test_read_knob_finds_values_by_dotted_keys(suffix, key, value):
    found = read_knob(TEXTS[suffix], suffix, key)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("suffix", TEXTS)
@pytest.mark.parametrize(
    ("key", "value", "old", "new"),
    [
        ("bm25.k1", 2.5, "1.2", "2.5"),
        ("bm25.flags.stop", True, "false", "true"),
        ("stages.1.k", 30, "2", "30"),
    ],
)
def test_write_knob_changes_one_value_and_nothing_else(suffix, key, value, old, new):
    before = TEXTS[suffix]
    after = write_knob(before, suffix, key, value)
    changed = [
        (was, now)
        for was, now in zip(before.splitlines(), after.splitlines(), strict=True)
        if was != now
    ]
    ((was, now),) = changed
    # the only difference is the text of the value itself, and blanks before a comment
    assert any(
        packed(was[:at] + new + was[at + len(old) :]) == packed(now)
        for at in range(len(was))
        if was.startswith(old, at)
    )


def test_write_knob_keeps_every_byte_when_the_value_is_the_same():
    for suffix, text in TEXTS.items():
        assert write_knob(text, suffix, "stages.1.k", 2) == text


def test_write_knob_writes_floats_that_yaml_1_1_reads_as_numbers():
    after = write_knob("a: 1.0\n", ".yaml", "a", 1e-5)
    assert after == "a: 1.0e-05\n"
    loader = YAML(typ="safe", pure=True)
    loader.version = (1, 1)
    assert loader.load(after)["a"] == 1e-5


@pytest.mark.parametrize("word", ["yes", "No", "on", "null", "1.5", "", "a: b", "#x"])
def test_write_knob_quotes_texts_that_yaml_would_misread(word):
    after = write_knob("a: plain # why\nb: 1\n", ".yaml", "a", word)
    loader = YAML(typ="safe", pure=True)
    loader.version = (1, 1)
    assert loader.load(after) == {"a": word, "b": 1}
    assert "# why" in after


scalars = st.one_of(
    st.booleans(),
    st.integers(-(10**12), 10**12),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=8),
)


@pytest.mark.parametrize(
    ("suffix", "before", "value", "after"),
    [
        (
            ".toml",
            "k = 1.2   # a\nl = 10    # b\n",
            1.25,
            "k = 1.25  # a\nl = 10    # b\n",
        ),
        (".toml", "k = 1.25  # a\n", 1, "k = 1     # a\n"),
        (".toml", "k = 1 # a\n", 100, "k = 100 # a\n"),
        (".toml", "k = 1  # a\n", 100, "k = 100 # a\n"),
        (".toml", "t = {k = 1, s = 'x  # y'}\n", 100, "t = {k = 100, s = 'x  # y'}\n"),
        (".yaml", "k: 5     # a\n", 15, "k: 15    # a\n"),
        (".yaml", "k: true  # a\n", False, "k: false # a\n"),
    ],
)
def test_comments_behind_a_value_stay_in_their_column(suffix, before, value, after):
    key = "t.k" if before.startswith("t") else "k"
    assert write_knob(before, suffix, key, value) == after


@pytest.mark.parametrize("suffix", [".toml", ".yaml", ".json"])
@given(value=scalars, key=st.sampled_from(["title", "bm25.b", "stages.0.name"]))
def test_write_knob_is_read_back_by_plain_parsers(suffix, value, key):
    after = write_knob(TEXTS[suffix], suffix, key, value)
    loaded = {
        ".toml": tomllib.loads,
        ".json": json.loads,
        ".yaml": YAML(typ="safe", pure=True).load,
    }[suffix](after)
    for part in key.split("."):
        loaded = loaded[int(part) if part.isdigit() else part]
    assert loaded == value
    assert type(loaded) is type(value)
    assert read_knob(after, suffix, "stages.1.k") == 2


@pytest.mark.parametrize("suffix", TEXTS)
@pytest.mark.parametrize("key", ["nope", "bm25.nope", "stages.2.k", "stages.x", "bm25"])
def test_read_knob_says_what_is_missing(suffix, key):
    with pytest.raises(ArtifactProblem, match=r"knob '"):
        read_knob(TEXTS[suffix], suffix, key)


@pytest.mark.parametrize("suffix", TEXTS)
def test_read_knob_says_what_a_key_holds_that_is_no_single_value(suffix):
    with pytest.raises(ArtifactProblem, match=r"'bm25' is a table, not a number"):
        read_knob(TEXTS[suffix], suffix, "bm25")


@pytest.mark.parametrize("key", ["", ".", "a.", ".a", "a..b", '"a', '"a"b'])
def test_read_knob_refuses_malformed_keys(key):
    with pytest.raises(ArtifactProblem, match="is no key"):
        read_knob(TOML, ".toml", key)


def test_write_knob_refuses_a_value_that_other_places_share():
    text = "base: &k 1.0\nother: *k\nlist: [&v 2, *v]\n"
    for key in ("base", "other", "list.1"):
        with pytest.raises(ArtifactProblem, match=r"alias|anchor"):
            write_knob(text, ".yaml", key, 2.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_write_knob_refuses_what_is_no_number(value):
    with pytest.raises(ArtifactProblem, match="cannot be"):
        write_knob(TOML, ".toml", "bm25.k1", value)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".toml", "a = "),
        (".yaml", "a: [1"),
        (".json", '{"a": 1,}'),
        (".json", "[" * 9999),
    ],
)
def test_read_knob_says_that_a_file_does_not_parse(suffix, text):
    with pytest.raises(ArtifactProblem, match="This is no"):
        read_knob(text, suffix, "a")


def test_read_knob_takes_the_last_of_two_equal_json_names():
    text = '{"a": 1, "a": 2}'
    assert read_knob(text, ".json", "a") == 2
    assert write_knob(text, ".json", "a", 3) == '{"a": 1, "a": 3}'


@pytest.mark.parametrize(
    ("knob", "good", "bad"),
    [
        (Knob("f", "k", "float", 0.0, 1.0), [0.0, 1, 0.5], [-0.1, 1.1, True, "1"]),
        (Knob("f", "k", "int", 1, 3), [1, 3], [0, 4, 1.5, 2.0, True]),
        (Knob("f", "k", "bool"), [True, False], [0, 1, "true"]),
        (Knob("f", "k", "choice", choices=("a", 1)), ["a", 1], ["b", 1.0, True]),
    ],
)
def test_knob_problem_knows_ranges_and_types(knob, good, bad):
    assert [knob_problem(knob, value) for value in good] == [None] * len(good)
    assert all(knob_problem(knob, value) for value in bad)
