"""Events in the shapes that the agents print; written by hand."""

from __future__ import annotations

import json
import os

import pytest

from pytest_evo.models import Usage
from pytest_evo.proposers.agent.listening import Hearing
from pytest_evo.proposers.agent.listening import read_plain


def heard(*events):
    hearing = Hearing()
    for event in events:
        hearing.hear(event if isinstance(event, str) else json.dumps(event))
    return hearing


# -- pi ----------------------------------------------------------------------------


def pi(reason, text="", tokens=100, **more):
    usage = {
        "input": tokens,
        "output": 20,
        "cacheRead": 7,
        "cacheWrite": 3,
        "totalTokens": tokens + 30,
        "cost": {"total": 0.002},
    }
    content = [{"type": "text", "text": text}] if text else []
    message = {"role": "assistant", "content": content, "usage": usage}
    return {"type": "message_end", "message": {**message, "stopReason": reason, **more}}


def test_pi_counts_each_message_once_and_ends_well():
    last = pi("stop", "Done.")
    hearing = heard(
        {"type": "session", "id": "x"},
        {"type": "message_end", "message": {"role": "user", "content": []}},
        pi("toolUse"),
        last,
        {**last, "type": "turn_end"},
        {"type": "agent_end", "messages": [last["message"]]},
    )
    assert hearing.usage == Usage(2, 220, 14, 40, 0.004)
    assert hearing.finished
    assert hearing.trouble is None
    assert hearing.said == "Done."
    assert hearing.last_lines == ()


def test_pi_tells_an_error_by_its_stop_reason_only():
    hearing = heard(pi("error", tokens=0, errorMessage="401 wrong key"))
    assert hearing.trouble == "401 wrong key"
    assert not hearing.finished


def test_an_error_that_was_followed_by_success_is_none():
    hearing = heard(pi("error", errorMessage="500"), pi("stop", "Done."))
    assert hearing.trouble is None


# -- codex -------------------------------------------------------------------------


def test_codex_turn_is_counted_and_ends_well():
    hearing = heard(
        {"type": "thread.started", "thread_id": "x"},
        {"type": "error", "message": "Reconnecting... 1/5"},
        {"type": "item.completed", "item": {"type": "error", "message": "no metadata"}},
        {"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}},
        {
            "type": "turn.completed",
            "usage": {
                "input_tokens": 200,
                "cached_input_tokens": 50,
                "output_tokens": 40,
                "reasoning_output_tokens": 9,
            },
        },
    )
    assert hearing.usage == Usage(1, 200, 50, 40, None)
    assert hearing.trouble is None
    assert hearing.said == "Done."


def test_codex_failed_turn_is_an_error():
    hearing = heard({"type": "turn.failed", "error": {"message": "401 Unauthorized"}})
    assert hearing.trouble == "401 Unauthorized"


# -- opencode ----------------------------------------------------------------------


def step(reason, cost=0.001):
    tokens = {"input": 90, "output": 15, "reasoning": 5, "cache": {"read": 10}}
    part = {"type": "step-finish", "reason": reason, "tokens": tokens, "cost": cost}
    return {"type": "step_finish", "part": part}


def test_opencode_steps_add_up():
    hearing = heard(
        step("tool-calls"),
        {"type": "text", "part": {"type": "text", "text": "Done."}},
        step("stop"),
    )
    assert hearing.usage == Usage(2, 200, 20, 40, 0.002)
    assert hearing.finished
    assert hearing.said == "Done."


def test_opencode_error_is_found_in_its_data():
    error = {"name": "APIError", "data": {"message": "bad gateway"}}
    assert heard({"type": "error", "error": error}).trouble == "bad gateway"


def test_cost_of_nothing_for_tokens_is_unknown_not_free():
    assert heard(step("stop", cost=0)).usage.usd is None


# -- claude and qwen ---------------------------------------------------------------


def test_claude_counts_cached_tokens_beside_the_others():
    hearing = heard(
        {"type": "system", "subtype": "init"},
        {"type": "assistant", "message": {"usage": {"input_tokens": 5}}},
        {
            "type": "result",
            "subtype": "success",
            "is_error": False,
            "result": "Done.",
            "num_turns": 2,
            "total_cost_usd": 0.02,
            "usage": {
                "input_tokens": 100,
                "cache_read_input_tokens": 60,
                "cache_creation_input_tokens": 40,
                "output_tokens": 30,
            },
        },
    )
    assert hearing.usage == Usage(2, 200, 60, 30, 0.02)
    assert hearing.finished


def test_qwen_counts_cached_tokens_among_the_others():
    usage = {"input_tokens": 200, "cache_read_input_tokens": 60, "output_tokens": 30}
    hearing = heard({"type": "result", "is_error": False, "usage": usage})
    assert hearing.usage == Usage(1, 200, 60, 30, None)


@pytest.mark.parametrize(
    "event",
    [
        {"subtype": "success", "is_error": True, "result": "Invalid API key"},
        {"subtype": "error_max_turns", "is_error": False},
        {"subtype": "error", "is_error": True, "error": {"message": "no"}},
    ],
)
def test_result_with_an_error_is_one_whatever_it_calls_itself(event):
    hearing = heard({"type": "result", **event})
    assert hearing.trouble
    assert not hearing.finished


# -- mini-swe-agent ----------------------------------------------------------------


def trajectory(status):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 30},
    }
    reply = {"role": "assistant", "extra": {"response": {"usage": usage}}}
    info = {"exit_status": status, "submission": "Done.", "model_stats": {}}
    return json.dumps({"info": info, "messages": [{"role": "user"}, reply, reply]})


def test_trajectory_is_counted_and_judged_by_its_status(tmp_path):
    path = tmp_path / "trajectory.json"
    for status, finished in (("Submitted", True), ("LimitsExceeded", False)):
        path.write_text(trajectory(status))
        hearing = Hearing()
        hearing.read_trajectory(path)
        assert hearing.usage == Usage(2, 200, 60, 40, None)
        assert hearing.finished is finished
        assert (hearing.trouble is None) is finished


@pytest.mark.parametrize("text", ["", "{", "[]", '{"messages": {}, "info": 3}'])
def test_broken_trajectory_says_nothing(tmp_path, text):
    path = tmp_path / "trajectory.json"
    path.write_text(text)
    hearing = Hearing()
    hearing.read_trajectory(path)
    assert hearing.usage is None
    assert hearing.trouble is None


def test_only_plain_files_of_a_limited_size_are_read(tmp_path):
    real = tmp_path / "real"
    real.write_bytes(b"12345")
    (tmp_path / "link").symlink_to(real)
    os.mkfifo(tmp_path / "pipe")
    assert read_plain(real, 5) == b"12345"
    assert read_plain(real, 4) is None
    for name in ("link", "pipe", "missing", "."):
        assert read_plain(tmp_path / name, 100) is None


# -- text --------------------------------------------------------------------------


def test_aider_tells_its_usage_in_words():
    hearing = heard(
        "Tokens: 2.7k sent, 1.1k cache hit, 40 received. "
        "Cost: $0.0012 message, $0.0030 session."
    )
    assert hearing.usage == Usage(1, 2700, 0, 40, 0.0012)


def test_aider_error_is_found_in_its_words():
    hearing = heard("litellm.AuthenticationError: AuthenticationError: wrong key")
    assert "wrong key" in (hearing.trouble or "")


def test_last_lines_are_visible_cut_and_not_events():
    hearing = heard(
        "\x1b[31mred\x1b[0m \x00 line", "x" * 9999, {"type": "turn_start"}, ""
    )
    assert hearing.last_lines[0] == r"red \x00 line"
    assert len(hearing.last_lines) == 2
    assert len(hearing.last_lines[1]) <= 400


@pytest.mark.parametrize(
    "line",
    [
        '{"type": "message_end", "message": 3}',
        '{"type": "message_end", "message": {"role": "assistant", "usage": []}}',
        '{"type": "step_finish", "part": {"tokens": {"input": "many"}}}',
        '{"type": "step_finish", "part": {"tokens": {"input": 1e300}, "cost": NaN}}',
        '{"type": "result", "usage": null, "num_turns": -3, "result": {}}',
        '{"type": "turn.completed"}',
        '{"type": "error", "error": "text"}',
        '{"type": []}',
        "{" * 100_000,
    ],
)
def test_malformed_events_do_no_harm(line):
    hearing = heard(line)
    assert hearing.usage is None or hearing.usage.tokens < 10**13
