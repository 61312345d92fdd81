from __future__ import annotations

import contextlib
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from pydantic import ConfigDict
from pydantic import Field

from pytest_evo.chat import ChatReply
from pytest_evo.chat import Finish
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import ModelFailed
from pytest_evo.models import Usage
from pytest_evo.replies import ask_structured
from pytest_evo.replies import parse_reply
from pytest_evo.replies import schema_of
from pytest_evo.testing.models import ScriptedModel

USAGE = Usage(calls=1, input_tokens=10, output_tokens=5)
ASKED = (Message(Speaker.USER, "which point?"),)


class Point(BaseModel):
    model_config = ConfigDict(extra="forbid")
    x: int
    name: str


def scripted(*answers: str | ChatReply | Exception) -> ScriptedModel:
    return ScriptedModel(answers, usage=USAGE)


@pytest.mark.parametrize(
    "text",
    [
        '{"x": 1, "name": "a"}',
        '  {"x": 1, "name": "a"}\n',
        'Here it is:\n```json\n{"x": 1, "name": "a"}\n```\nBye.',
        '```\n{"x": 1, "name": "a"}\n```',
        'I think {braces} matter: {"x": 1, "name": "a"} is it.',
        '{"x": 1, "other": 2} or rather {"x": 1, "name": "a"}',
    ],
)
def test_object_is_found_in_what_models_write_around_it(text: str) -> None:
    assert parse_reply(text, Point) == Point(x=1, name="a")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("no idea", "no JSON object"),
        ("[1, 2]", "no JSON object"),
        ('{"x": "much", "name": "a"}', "x: Input should be"),
        ('{"x": 1, "name": "a", "y": 2}', "y: Extra inputs"),
        ('{"x": 1', "no JSON object"),
        ('{"a":' * 3_000, "no JSON object"),
    ],
)
def test_reply_that_is_none_says_what_is_wrong(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_reply(text, Point)


@given(st.text(alphabet='{}[]":,x1 \n`', max_size=200))
def test_reply_of_any_text_is_a_value_or_a_value_error(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert isinstance(parse_reply(text, Point), Point)


def test_schema_goes_out_and_the_exchange_comes_back() -> None:
    model = scripted('{"x": 1, "name": "a"}')
    got = ask_structured(model, ASKED, Point, max_tokens=99)
    assert got.value == Point(x=1, name="a")
    assert (got.usage, got.problem) == (USAGE, "")
    assert [message.speaker for message in got.messages] == ["user", "assistant"]
    (request,) = model.requests
    assert request.max_tokens == 99
    assert request.schema is not None
    assert request.schema["additionalProperties"] is False


def test_malformed_reply_is_repaired_once_with_the_reason() -> None:
    model = scripted("hm", '{"x": 1, "name": "a"}')
    got = ask_structured(model, ASKED, Point)
    assert got.value == Point(x=1, name="a")
    assert got.usage == USAGE + USAGE
    assert "no JSON object" in model.requests[1].messages[-1].text


def test_second_malformed_reply_is_a_problem_that_keeps_its_cost() -> None:
    model = scripted("hm", "hm again", '{"x": 1, "name": "a"}')
    got = ask_structured(model, ASKED, Point)
    assert got.value is None
    assert "no usable reply" in got.problem
    assert got.usage == USAGE + USAGE
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    ("finish", "why"),
    [
        (Finish.LENGTH, "cut at its length"),
        (Finish.REFUSED, "refused"),
        (Finish.EMPTY, "empty"),
    ],
)
def test_reply_that_ended_wrongly_is_never_read(finish: Finish, why: str) -> None:
    whole = ChatReply('{"x": 1, "name": "a"}', finish, usage=USAGE)
    got = ask_structured(scripted(whole), ASKED, Point)
    assert got.value is None
    assert why in got.problem
    assert got.usage == USAGE


def test_failure_after_a_first_reply_keeps_what_was_spent() -> None:
    answers: Sequence[str | Exception] = ("hm", ModelFailed("503 three times"))
    got = ask_structured(scripted(*answers), ASKED, Point)
    assert got.value is None
    assert "503 three times" in got.problem
    assert got.usage == USAGE


class Deep(BaseModel):
    model_config = ConfigDict(extra="forbid")
    title: str = Field(min_length=1, max_length=10)
    points: list[Point] = Field(max_length=3)
    share: float = Field(ge=0, le=1)


def test_schema_is_the_shape_without_limits_and_keeps_fields_of_their_names() -> None:
    schema = schema_of(Deep)
    assert schema["properties"]["title"] == {"type": "string"}
    assert schema["properties"]["share"] == {"type": "number"}
    assert schema["properties"]["points"]["items"] == {"$ref": "#/$defs/Point"}
    assert schema["$defs"]["Point"]["additionalProperties"] is False
    assert schema["required"] == ["title", "points", "share"]


def test_request_that_is_too_long_says_so() -> None:
    got = ask_structured(scripted(ContextOverflow("8k")), ASKED, Point)
    assert (got.value, got.too_long) == (None, True)
