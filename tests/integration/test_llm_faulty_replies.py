"""Malformed, empty, refused, cut and endless replies: the run goes on, nothing half."""

from __future__ import annotations

import pytest
from llm_world import FINISH
from llm_world import LlmWorld
from llm_world import PLEASE
from llm_world import START
from llm_world import WRITE

from pytest_evo.chat import Finish
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import Fault
from pytest_evo.testing.model_server import garbage
from pytest_evo.testing.model_server import ModelServer
from pytest_evo.testing.model_server import ScriptedCall


def raw(name: str, arguments: str, finish: Finish | None = None) -> Answer:
    return Answer(calls=(ScriptedCall(name, arguments),), finish=finish)


HALF = '{"path": "prompt.txt", "content": "be brief and kin'
SURROGATE = (
    '{"choices":[{"index":0,"finish_reason":"stop","message":'
    '{"role":"assistant","content":"\\ud83d broken"}}]}'
)
REPLIES = {
    "bad_json": raw("write_file", HALF),
    "json_trailing_comma": raw("write_file", '{"path": "prompt.txt", "content": "x",}'),
    "json_not_object": raw("write_file", "[1, 2, 3]"),
    "missing_argument": raw("write_file", '{"path": "prompt.txt"}'),
    "wrong_types": raw("write_file", '{"path": 5, "content": ["x"]}'),
    "unknown_tool": raw("run_shell", '{"command": "rm -rf ."}'),
    "one_bad_of_two": Answer(
        calls=(
            ScriptedCall("write_file", "{"),
            ScriptedCall("read_file", {"path": "prompt.txt"}),
        )
    ),
    "cut_inside_tool_call": raw("write_file", HALF, Finish.LENGTH),
    "cut_by_max_tokens": Answer("```\nbe brief and kin", finish=Finish.LENGTH),
    "only_thinking_then_length": Answer("", finish=Finish.LENGTH),
    "empty_text": Answer(""),
    "refusal": Answer("I can't help with that.", refusal="I can't help with that."),
    "content_filter": Answer("", finish=Finish.REFUSED),
    "prose_no_edit": Answer("The prompt looks good to me as it is."),
    "huge_reply": Answer("word " * 200_000),
    "surrogate_in_text": Fault(raw=SURROGATE),
    "body_is_empty": garbage(""),
    "body_is_html": garbage(),
    "no_choices": Fault(raw='{"id": "x", "object": "chat.completion", "choices": []}'),
    "error_with_200": Fault(raw='{"error": {"message": "overloaded"}}'),
}


@pytest.mark.parametrize("name", REPLIES)
def test_faulty_reply_costs_a_try_and_the_run_still_wins(tmp_path, name: str) -> None:
    with ModelServer([REPLIES[name], WRITE, FINISH]) as server:
        world = LlmWorld(tmp_path, server)
        end = world.run()
    assert end.stop.complete
    assert not server.problems
    assert world.files(end.winner.candidate.tree)["prompt.txt"].decode() == PLEASE
    assert world.prompts == {START, PLEASE}
    assert world.usage.calls == len(server.requests)
    assert max(request.size for request in server.requests) < 100_000


def test_calls_for_ever_end_and_are_counted(tmp_path) -> None:
    numbers = iter(range(10_000))

    def script(request):
        return raw("search_files", f'{{"text": "nothing {next(numbers)}"}}')

    with ModelServer(script) as server:
        world = LlmWorld(tmp_path, server, iterations=1, steps=6)
        end = world.run()
    assert end.stop.complete
    assert len(server.requests) == 12  # one answer and one more with feedback
    assert world.usage.tokens == 12 * 120
    assert all("6 answers" in (made.refusal or "") for made in world.proposals)
    assert world.prompts == {START}


def test_file_kept_beside_a_bad_call_is_there(tmp_path) -> None:
    both = Answer(
        calls=(
            ScriptedCall("write_file", "{"),
            ScriptedCall("write_file", {"path": "notes.txt", "content": "kept"}),
        )
    )
    entries = [{"file": name, "reason": "x"} for name in ("prompt.txt", "notes.txt")]
    done = Answer(calls=(ScriptedCall("finish", {"changelog": entries}),))
    with ModelServer([both, WRITE, done]) as server:
        world = LlmWorld(tmp_path, server, iterations=1)
        end = world.run()
    assert world.files(end.winner.candidate.tree) == {
        "notes.txt": b"kept",
        "prompt.txt": PLEASE.encode(),
    }


def test_refusals_say_what_happened(tmp_path) -> None:
    said = {}
    for number, name in enumerate(("cut_by_max_tokens", "empty_text", "refusal")):
        (tmp_path / str(number)).mkdir()
        with ModelServer([REPLIES[name]]) as server:
            world = LlmWorld(tmp_path / str(number), server, iterations=1)
            world.run()
        said[name] = world.proposals[0].refusal
        assert world.prompts == {START}
    assert "token limit" in said["cut_by_max_tokens"]
    assert "empty" in said["empty_text"]
    assert "refused" in said["refusal"]
