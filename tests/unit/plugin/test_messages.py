from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.errors import MessageRefused
from pytest_evo.models import CaseMark
from pytest_evo.models import Reach
from pytest_evo.models import Split
from pytest_evo.models import TreeEntry
from pytest_evo.plugin import messages
from pytest_evo.plugin.messages import decode
from pytest_evo.plugin.messages import encode

MARK = CaseMark("t.py::a", "t.py", 3, "f" * 8, split=Split.VAL, timeout=2.0)
RUN = messages.Run(
    id="r1",
    candidate="c0001",
    tree="ab" * 32,
    manifest=(TreeEntry("a.txt", "file", 0o755, "cd" * 32, 7),),
    runs=(("t.py::a", 0), ("t.py::b[\ud800]", 1)),
    timeouts=(60.0, 2.5),
    mode=messages.Mode.FRESH,
    mount=True,
    seed=4,
)
EXAMPLES = [
    RUN,
    messages.Blob("cd" * 32, b"\x00\xffcontent"),
    messages.Cancel("r1"),
    messages.Stop(now=True),
    messages.Configure(settings={"packages": ["numpy"], "n": None}),
    messages.Hello("gw0", 17, "box", (MARK,), "marked", ("t.py::a",), mount="why"),
    messages.Need("r1", ("cd" * 32,)),
    messages.Started("r1", "t.py::a", 0),
    messages.Finished(
        "r1", "t.py::a", 0, reach=Reach(("a.txt",), exact=False), payload=b"{}"
    ),
    messages.Done("r1", "a.txt was changed", more=True),
    messages.Log("gw0", "hm"),
]


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda m: m.kind)
def test_message_survives_the_wire(message):
    assert decode(encode(message)) == message


@given(
    st.text(st.characters(codec=None, exclude_categories=())),
    st.binary(max_size=50),
)
def test_any_text_and_bytes_survive(text, payload):
    message = messages.Finished("r", text, 2, payload=payload)
    assert decode(encode(message)) == message


@given(st.binary(max_size=200))
def test_noise_is_refused(data):
    with pytest.raises(MessageRefused):
        decode(data)


def _changed(**changes):
    data = encode(messages.Started("r1", "t.py::a", 0))
    header = json.loads(data[4:]) | changes
    header = {name: value for name, value in header.items() if value != "absent"}
    head = json.dumps(header).encode()
    return len(head).to_bytes(4, "big") + head


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"v": 2}, "version 1"),
        ({"kind": "shout"}, "no known kind"),
        ({"repeat": "0"}, "Started.repeat"),
        ({"repeat": True}, "Started.repeat"),
        ({"case": "absent"}, "without 'case'"),
        ({"extra": 1}, "no field 'extra'"),
    ],
)
def test_malformed_message_is_refused_with_the_field(changes, words):
    with pytest.raises(MessageRefused, match=words):
        decode(_changed(**changes))


def test_message_that_is_not_bytes_is_refused():
    with pytest.raises(MessageRefused, match="not as bytes"):
        decode({"v": 1})


def test_message_with_a_wrong_inner_value_names_it():
    data = encode(RUN)
    broken = data.replace(b'"file"', b"100000")
    with pytest.raises(MessageRefused, match=r"TreeEntry\.kind"):
        decode(broken)
