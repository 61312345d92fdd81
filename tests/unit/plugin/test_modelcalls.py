from __future__ import annotations

from types import SimpleNamespace as Plain

import pytest

from pytest_evo.models import Usage
from pytest_evo.plugin.modelcalls import ModelCall
from pytest_evo.plugin.modelcalls import new_call
from pytest_evo.plugin.outcomes import usage_of
from pytest_evo.plugin.recording import Notes


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Told(list):
    """All that a call told; the last counts."""

    @property
    def last(self) -> dict:
        return self[-1]


def chat(text: str, usage: object = None, **more: object) -> Plain:
    choice = Plain(message=Plain(content=text, tool_calls=None))
    return Plain(choices=[choice], usage=usage, model="m-2026", **more)


def call(**request: object) -> tuple[ModelCall, Told, Clock]:
    told, clock = Told(), Clock()
    made = ModelCall(told.append, request, clock)
    clock.now = 2.5
    return made, told, clock


CHAT = Plain(
    prompt_tokens=100,
    completion_tokens=7,
    prompt_tokens_details=Plain(cached_tokens=60),
)
RESPONSES = {
    "input_tokens": 100,
    "output_tokens": 7,
    "input_tokens_details": {"cached_tokens": 60},
}


@pytest.mark.parametrize("usage", [CHAT, RESPONSES])
def test_figures_of_both_forms_are_read(usage):
    made, told, _ = call(model="m", messages=[{"role": "user", "content": "hi"}])
    made.answered(chat("hello", usage, _hidden_params={"response_cost": 0.25}))
    assert made.usage() == Usage(1, 100, 60, 7, 0.25, 2.5)
    assert told.last == {
        "model": "m",
        "input_tokens": 100,
        "cached_tokens": 60,
        "output_tokens": 7,
        "seconds": 2.5,
        "usd": 0.25,
        "prompt": "user: hi",
        "answer": "hello",
    }


@pytest.mark.parametrize("price", [None, -1, float("nan"), float("inf"), True, "0.1"])
def test_a_price_that_is_none_is_unknown_not_zero(price):
    made, told, _ = call(model="m", prompt="x")
    made.answered(chat("y", CHAT, _hidden_params={"response_cost": price}))
    assert made.usage().usd is None
    assert "usd" not in told.last


def test_a_call_that_never_ends_counts_at_an_unknown_price():
    made, told, _ = call(model="m", input=["a", "b"])
    assert made.usage() == Usage(calls=1, usd=None)
    assert told.last["prompt"] == "a\nb"


def test_a_refused_call_costs_its_time_only():
    class Refused(Exception):
        status_code = 429

    made, told, _ = call(model="m", prompt="x")
    made.failed(Refused("slow down"))
    assert made.usage() == Usage(calls=1, usd=0.0, seconds=2.5)
    assert told.last["error"] == "Refused: slow down"


def test_nobody_knows_what_a_call_cost_whose_answer_was_lost():
    made, _, _ = call(model="m", prompt="x")
    made.failed(ConnectionError("reset"))
    assert made.usage() == Usage(calls=1, usd=None, seconds=2.5)


def test_an_answer_of_litellms_cache_costs_nothing():
    made, _, _ = call(model="m", prompt="x")
    made.answered(chat("y", CHAT, _hidden_params={"cache_hit": True}))
    assert made.usage() == Usage(calls=1, usd=0.0, seconds=2.5)


def test_streams_take_usage_from_where_it_comes_and_text_from_all_parts():
    made, told, _ = call(model="m", prompt="x")
    for text in ("hel", "lo", None):
        made.part(Plain(choices=[Plain(delta=Plain(content=text))], usage=None))
    made.part(Plain(choices=[], usage=CHAT))
    made.ended()
    assert made.usage() == Usage(1, 100, 60, 7, None, 2.5)
    assert told.last["answer"] == "hello"


def test_figures_that_litellm_adds_to_an_earlier_part_are_read_at_the_end():
    made, _, _ = call(model="m", prompt="x")
    hidden: dict = {}
    made.part(Plain(choices=[], usage=None, _hidden_params=hidden))
    hidden["usage"] = CHAT
    made.ended()
    assert made.usage().tokens == 107


def test_events_of_the_responses_form_are_read():
    made, told, _ = call(model="m", input="x", instructions="be short")
    made.part(Plain(type="response.output_text.delta", delta="yes"))
    made.part(Plain(type="response.function_call_arguments.delta", delta="{"))
    made.part(Plain(type="response.completed", response=Plain(usage=RESPONSES)))
    made.ended()
    assert made.usage().tokens == 107
    assert told.last["answer"] == "yes"
    assert told.last["prompt"] == "be short\nx"


def test_raw_responses_are_read_without_touching_them():
    body = b'{"usage": {"prompt_tokens": 3, "completion_tokens": 4}, "choices": []}'
    made, _, _ = call(model="m", prompt="x")
    made.answered(Plain(http_response=Plain(content=body)))
    assert made.usage().tokens == 7


@pytest.mark.parametrize("status", [408, 500, 503, None, "429"])
def test_a_status_that_is_no_refusal_leaves_the_price_open(status):
    error = ConnectionError("lost")
    error.status_code = status  # type: ignore[attr-defined]
    made, _, _ = call(model="m", prompt="x")
    made.failed(error)
    assert made.usage().usd is None


@pytest.mark.parametrize(
    "answer",
    [
        None,
        "text",
        Plain(choices=3, usage=Plain(prompt_tokens="many")),
        Plain(http_response=Plain(content=b"no json")),
        Plain(usage=Plain(prompt_tokens=-1, completion_tokens=True)),
    ],
)
def test_answers_of_any_shape_are_survived(answer):
    made, _, _ = call(model=object(), messages="?")
    made.answered(answer)
    made.part(answer)
    made.ended()
    assert made.usage() == Usage(calls=1, usd=None, seconds=2.5)


def test_an_answer_whose_attributes_raise_is_survived():
    class Hostile:
        def __getattribute__(self, name: str) -> object:
            raise RuntimeError("no")

    made, _, _ = call(model="m")
    made.answered(Hostile())
    assert made.usage().usd is None


def test_a_question_is_cut_and_nothing_else_of_a_request_is_kept():
    made, told, _ = call(model="m", prompt="x" * 9_000, api_key="sk-secret")
    made.answered(chat("y" * 9_000))
    assert len(told.last["prompt"]) < 2_000
    assert len(told.last["answer"]) < 2_000
    assert "sk-secret" not in str(told)


def test_counted_calls_are_added_to_what_the_test_says():
    notes = Notes(calls=1, input_tokens=10, usd=0.5)
    notes.step("before", {})
    made = new_call(notes, {"model": "m", "prompt": "x"})
    notes.step("after", {})
    made.answered(chat("y", CHAT, _hidden_params={"response_cost": 0.25}))
    used = usage_of(notes)
    assert (used.calls, used.input_tokens, used.usd) == (2, 110, 0.75)
    assert [name for name, _ in notes.steps] == ["before", "model call", "after"]
    assert notes.steps[1][1]["answer"] == "y"


def test_calls_beyond_the_last_step_still_count():
    notes = Notes()
    for _ in range(1_200):
        new_call(notes, {}).answered(chat("y", CHAT))
    assert usage_of(notes).calls == 1_200
    assert len(notes.steps) == 1_001
