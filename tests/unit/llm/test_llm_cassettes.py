"""What is asked and answered, on a cassette and back."""

from __future__ import annotations

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_evo.chat import AnswerFailed
from pytest_evo.chat import AnswerTooLong
from pytest_evo.chat import AskedInVain
from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Finish
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.chat import spent_on
from pytest_evo.chat import Tool
from pytest_evo.chat import ToolCall
from pytest_evo.chat import ToolsRefused
from pytest_evo.errors import ContextOverflow
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.llm.cassettes import CassetteFile
from pytest_evo.llm.cassettes import Header
from pytest_evo.llm.cassettes import read_cassette
from pytest_evo.llm.exchanges import Cleaner
from pytest_evo.llm.taping import Player
from pytest_evo.llm.taping import Recorder
from pytest_evo.llm.taping import Recording
from pytest_evo.llm.taping import Replaying
from pytest_evo.models import Usage
from pytest_evo.testing.models import ScriptedModel

HEADER = Header(run="20260101-aa", made_by="0.1.0", seed=0, slots=2)
USAGE = Usage(calls=2, input_tokens=30, output_tokens=4, usd=None, seconds=0.25)
SECRET = "sk-test-Canary0123456789abcdefghij"
LOOK = Tool("look", "Looks.", {"type": "object", "properties": {}})


def asked(*texts: str, asker: str = "", **more: object) -> ChatRequest:
    messages = tuple(Message(Speaker.USER, text) for text in texts)
    return ChatRequest(messages, asker=asker, **more)  # type: ignore[arg-type]


class Tape:
    """A cassette that is recorded, then replayed."""

    def __init__(self, path: Path, cleaner: Cleaner | None = None) -> None:
        self.path = path
        self.cleaner = cleaner or Cleaner()

    def record(self, model: ScriptedModel, *requests: ChatRequest) -> list[object]:
        recorder = Recorder(self.path, self.cleaner)
        if self.path.exists():
            recorder.begin(CassetteFile.go_on(read_cassette(self.path, "--evo-record")))
        else:
            recorder.begin(CassetteFile.create(self.path, HEADER))
        taped = Recording(model, recorder)
        ends = [outcome(taped, request) for request in requests]
        recorder.close()
        return ends

    def player(self, cleaner: Cleaner | None = None) -> Player:
        return Player(read_cassette(self.path, "--evo-replay"), cleaner or Cleaner())


def outcome(model: Recording | Replaying, request: ChatRequest) -> object:
    try:
        return model.ask(request)
    except (ModelFailed, ModelProblem) as error:
        return (type(error), str(error), spent_on(error))


@pytest.fixture
def tape(tmp_path: Path) -> Tape:
    return Tape(tmp_path / "run.jsonl")


# -- there and back --------------------------------------------------------------------


def test_replies_come_back_whole(tape: Tape) -> None:
    reply = ChatReply(
        "two\nlines \u00e9",
        Finish.TOOLS,
        (ToolCall("call_1", "look", '{"at": "x"}'),),
        USAGE,
    )
    request = asked("what?", tools=(LOOK,), schema={"type": "object"}, max_tokens=9)
    assert tape.record(ScriptedModel([reply]), request) == [reply]
    assert Replaying("scripted-model", tape.player()).ask(request) == reply


@pytest.mark.parametrize(
    "error",
    [
        AnswerFailed("m: no answer after 3 tries", USAGE),
        AnswerTooLong("m: too long", USAGE),
        AskedInVain("m: the provider refuses the key", USAGE),
        ToolsRefused("m takes no tools", USAGE),
        ModelFailed("m: broken"),
        ContextOverflow("m: too long"),
        ModelProblem("m: no key"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_failures_are_raised_again_with_type_and_cost(tape: Tape, error) -> None:
    told = tape.record(ScriptedModel([error]), asked("hm"))
    again = outcome(Replaying("scripted-model", tape.player()), asked("hm"))
    assert again == told[0] == (type(error), str(error), spent_on(error))


def test_equal_requests_are_answered_in_their_order(tape: Tape) -> None:
    tape.record(ScriptedModel(["one", "two", "three"]), *[asked("more")] * 3)
    model = Replaying("scripted-model", tape.player())
    assert [model.ask(asked("more")).text for _ in range(3)] == ["one", "two", "three"]


@given(st.permutations([f"c{i:04d}" for i in range(1, 5)]))
def test_slots_may_ask_in_any_order(tmp_path_factory, order: list[str]) -> None:
    tape = Tape(tmp_path_factory.mktemp("tape") / "run.jsonl")
    same = [asked("the same prompt", asker=f"c{i:04d}") for i in range(1, 5)]
    model = ScriptedModel(lambda request: f"for {request.asker}")
    tape.record(model, *same, *same)
    replayed = Replaying("scripted-model", tape.player())
    for asker in (*order, *reversed(order)):
        reply = replayed.ask(asked("the same prompt", asker=asker))
        assert reply.text == f"for {asker}"


def test_many_threads_record_and_replay(tape: Tape) -> None:
    recorder = Recorder(tape.path, tape.cleaner)
    recorder.begin(CassetteFile.create(tape.path, HEADER))
    model = Recording(ScriptedModel(lambda r: r.messages[-1].text), recorder)
    requests = [asked("start", f"part {i % 20}") for i in range(200)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(model.ask, requests))
    recorder.close()
    player = tape.player()
    replayed = Replaying("scripted-model", player)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(replayed.ask, requests))
    assert [reply.text for reply in replies] == [f"part {i % 20}" for i in range(200)]
    assert player.unused == 0


def test_room_for_the_answer_is_no_part_of_the_question(tape: Tape) -> None:
    tape.record(ScriptedModel(["yes"]), asked("hm", max_tokens=900))
    model = Replaying("scripted-model", tape.player())
    assert model.ask(asked("hm", max_tokens=700)).text == "yes"


def test_messages_that_repeat_stand_on_the_cassette_once(tape: Tape) -> None:
    long = "the files " * 500
    requests = [asked(long, *["next"] * i, tools=(LOOK,)) for i in range(6)]
    tape.record(ScriptedModel(lambda request: "ok"), *requests)
    text = tape.path.read_text("utf-8")
    assert text.count(long) == 1
    assert text.count("Looks.") == 1
    assert len(text.splitlines()) == 1 + 6


# -- what varies -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("see /tmp/pytest-evo-a1/w0/x.py:3", "see /tmp/pytest-evo-zz9/w1/y/x.py:3"),
        ("'/dev/shm/pytest-evo-q/art'", "'/tmp/pytest-evo-r/art'"),
        ("<Thing at 0x7f33a1b2c3d4>", "<Thing at 0x7f00ffeeddcc>"),
        ("1 failed in 0.12s", "1 failed in 11.07s"),
        ("took 3 ms, 12.5 seconds", "took 11 ms, 9 seconds"),
        ('{"seconds": 0.013, "x": 1}', '{"seconds": 0.2, "x": 1}'),
        ("at 2026-01-02T03:04:05.678Z", "at 2027-11-12 13:14:15+00:00"),
        (
            "id 5be750e9-d675-441a-9458-37f28a3bec22",
            "id 0661a26c-1c0a-4acd-a0bd-79af9db84f82",
        ),
    ],
)
def test_what_varies_between_runs_makes_no_other_question(
    tape: Tape, one: str, other: str
) -> None:
    assert tape.cleaner.steady(one) == tape.cleaner.steady(other) != one
    tape.record(ScriptedModel(["yes"]), asked(one))
    assert Replaying("scripted-model", tape.player()).ask(asked(other)).text == "yes"


def test_project_may_lie_elsewhere_at_the_replay(tmp_path: Path) -> None:
    tape = Tape(tmp_path / "run.jsonl", Cleaner(project="/home/ann/project"))
    tape.record(ScriptedModel(["yes"]), asked("/home/ann/project/test_a.py:3: Error"))
    model = Replaying("scripted-model", tape.player(Cleaner(project="/srv/checkout")))
    assert model.ask(asked("/srv/checkout/test_a.py:3: Error")).text == "yes"
    assert "/home/ann" not in tape.path.read_text("utf-8")


def test_what_matters_makes_another_question() -> None:
    cleaner = Cleaner()
    requests = [
        asked("level 3"),
        asked("level 4"),
        asked("level 3", asker="c0001"),
        asked("level 3", tools=(LOOK,)),
        asked("level 3", schema={"type": "object"}),
        asked("level 3", ""),
        ChatRequest((Message(Speaker.SYSTEM, "level 3"),)),
    ]
    keys = {cleaner.question("m", request).key for request in requests}
    assert len(keys) == len(requests)
    assert cleaner.question("n", requests[0]).key not in keys


# -- secrets ---------------------------------------------------------------------------


def test_no_secret_reaches_the_file_and_the_run_sees_what_the_replay_will(
    tmp_path: Path,
) -> None:
    spelled = 'pass"word\\with\u00e9'
    cleaner = Cleaner(lambda text: text.replace(spelled, "[redacted DB_PASS]"))
    cleaner.hide_too(SECRET)
    tape = Tape(tmp_path / "run.jsonl", cleaner)
    reply = ChatReply(
        f"the key is {SECRET}",
        Finish.TOOLS,
        (ToolCall("1", "write", json.dumps({"content": f"{SECRET} {spelled}"})),),
        USAGE,
    )
    failure = AnswerFailed(f"the provider said {SECRET}", USAGE)
    requests = (asked(f"I am {SECRET}, {spelled}"), asked("again"))
    live = tape.record(ScriptedModel([reply, failure]), *requests)
    text = tape.path.read_text("utf-8")
    assert SECRET not in text
    assert spelled not in text
    assert json.dumps(spelled)[1:-1] not in text
    assert "[redacted DB_PASS]" in text
    got = live[0]
    assert isinstance(got, ChatReply)
    assert json.loads(got.calls[0].arguments) == {"content": "[key] [redacted DB_PASS]"}
    model = Replaying("scripted-model", tape.player(cleaner))
    assert model.ask(requests[0]) == got


def test_short_dummy_keys_leave_words_alone() -> None:
    cleaner = Cleaner()
    cleaner.hide_too("test")
    assert cleaner.secretless("def test_it") == "def test_it"


def test_only_the_owner_can_read_a_cassette(tape: Tape) -> None:
    tape.record(ScriptedModel(["yes"]), asked("hm"))
    assert stat.S_IMODE(tape.path.stat().st_mode) == 0o600


def test_texts_that_no_encoding_carries_are_recorded(tape: Tape) -> None:
    request = asked("half a \ud83d pair")
    live = tape.record(ScriptedModel(["also \udc80"]), request)
    assert outcome(Replaying("scripted-model", tape.player()), request) == live[0]


# -- the file --------------------------------------------------------------------------


def test_existing_file_is_not_overwritten(tape: Tape) -> None:
    tape.path.write_text("precious")
    with pytest.raises(ModelProblem, match="not overwritten"):
        CassetteFile.create(tape.path, HEADER)
    assert tape.path.read_text() == "precious"


@given(st.data())
def test_torn_tail_is_dropped_wherever_it_is_torn(tmp_path_factory, data) -> None:
    tape = Tape(tmp_path_factory.mktemp("tape") / "run.jsonl")
    tape.record(ScriptedModel(["one", "two"]), asked("first"), asked("second"))
    whole = tape.path.read_bytes()
    last = whole.rstrip(b"\n").rindex(b"\n") + 1
    at = data.draw(st.integers(last, len(whole) - 1))
    tape.path.write_bytes(whole[:at])
    assert tape.player().unused == 1
    tape.record(ScriptedModel(["three"]), asked("second"))
    player = tape.player()
    model = Replaying("scripted-model", player)
    assert model.ask(asked("first")).text == "one"
    assert model.ask(asked("second")).text == "three"


def test_resumed_run_replaces_what_it_asks_again(tape: Tape) -> None:
    first = ScriptedModel(["kept", "lost", "lost too"])
    tape.record(first, asked("done"), asked("a", asker="c1"), asked("a", asker="c1"))
    tape.record(ScriptedModel(["new"]), asked("a", asker="c1"))
    player = tape.player()
    model = Replaying("scripted-model", player)
    assert model.ask(asked("a", asker="c1")).text == "new"
    assert model.ask(asked("done")).text == "kept"
    assert player.unused == 0


def test_damage_before_the_tail_is_said_with_its_line(tape: Tape) -> None:
    tape.record(ScriptedModel(["one", "two"]), asked("first"), asked("second"))
    lines = tape.path.read_text("utf-8").splitlines(keepends=True)
    lines[1] = lines[1].replace('"reply"', '"replied"')
    tape.path.write_text("".join(lines), "utf-8")
    with pytest.raises(ModelProblem, match="line 2 is damaged"):
        tape.player()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "no such cassette"),
        ("", "it is empty"),
        ("hello\n", "first line is not ours"),
        ('{"interactions": []}\n', "first line is not ours"),
        ('{"kind":"cassette","version":2,"made_by":"9.0"}\n', "is of version 2"),
        ('{"kind":"cassette","version":1}\n', "run: Field required"),
    ],
)
def test_what_is_no_cassette_is_said(tape: Tape, text: str | None, said: str) -> None:
    if text is not None:
        tape.path.write_text(text)
    with pytest.raises(ModelProblem, match=said):
        tape.player()


def test_nothing_is_kept_after_the_end(tape: Tape) -> None:
    recorder = Recorder(tape.path, tape.cleaner)
    recorder.begin(CassetteFile.create(tape.path, HEADER))
    recorder.close()
    broken_off = ScriptedModel([AnswerFailed("the run is ending")])
    with pytest.raises(AnswerFailed):
        Recording(broken_off, recorder).ask(asked("hm"))
    assert tape.player().unused == 0


def test_full_disk_says_so_and_what_the_answer_cost(tape: Tape) -> None:
    recorder = Recorder(Path("/dev/full"), tape.cleaner)
    with Path("/dev/full").open("wb", buffering=0) as full:
        recorder.begin(CassetteFile(Path("/dev/full"), full.fileno(), set()))
        model = Recording(ScriptedModel(["yes"], usage=USAGE), recorder)
        with pytest.raises(AskedInVain, match="No space left") as caught:
            model.ask(asked("hm"))
    assert spent_on(caught.value) == USAGE


# -- what is not there -----------------------------------------------------------------


def test_missing_request_is_told_by_the_first_line_that_differs(tape: Tape) -> None:
    tape.record(
        ScriptedModel(lambda request: "ok"),
        asked("about something else", asker="c0009"),
        asked("rules", "files:\nlevel 3\nend", asker="c0001"),
    )
    player = tape.player()
    model = Replaying("scripted-model", player)
    with pytest.raises(ModelProblem) as caught:
        model.ask(asked("rules", "files:\nlevel 4\nend", asker="c0002"))
    text = str(caught.value)
    assert "scripted-model is asked for c0002" in text
    assert "The closest is line 3 for c0001; message 2 differs in line 2" in text
    assert "recorded: level 3" in text
    assert "now:      level 4" in text
    assert f"pytest --evolve --evo-record={tape.path}" in text
    with pytest.raises(ModelProblem) as later:  # what follows is not to be trusted
        model.ask(asked("about something else", asker="c0009"))
    assert str(later.value) == text == player.missed


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (asked("hm", tools=(replace(LOOK, about="Sees."),)), "the tools .* differ"),
        (asked("hm", tools=(LOOK,), schema={"type": "array"}), "JSON schema"),
        (asked("hm", "more", tools=(LOOK,)), r"recorded: \(nothing\)"),
        (asked("hm", tools=(LOOK,), asker="c0002"), "not there"),
    ],
)
def test_every_kind_of_difference_has_words(tape: Tape, request_, said: str) -> None:
    tape.record(ScriptedModel(["yes"]), asked("hm", tools=(LOOK,)))
    with pytest.raises(ModelProblem, match=said):
        Replaying("scripted-model", tape.player()).ask(request_)


def test_other_model_once_too_often_and_empty_cassette_have_words(tape: Tape) -> None:
    tape.record(ScriptedModel([]))
    with pytest.raises(ModelProblem, match="It is empty"):
        Replaying("scripted-model", tape.player()).ask(asked("hm"))
    tape.record(ScriptedModel(["yes"]), asked("hm"))
    with pytest.raises(ModelProblem, match="asked of scripted-model, not of other"):
        Replaying("other", tape.player()).ask(asked("hm"))
    model = Replaying("scripted-model", tape.player())
    model.ask(asked("hm"))
    with pytest.raises(ModelProblem, match="asked once when it was recorded"):
        model.ask(asked("hm"))
