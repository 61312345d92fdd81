"""The tool-calling proposer with a scripted model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from llm_requests import call
from llm_requests import calls
from llm_requests import COST
from llm_requests import FILES
from llm_requests import finish
from llm_requests import held
from llm_requests import request_in

from pytest_evo.chat import AnswerFailed
from pytest_evo.chat import AnswerRefused
from pytest_evo.chat import AnswersOver
from pytest_evo.chat import AnswerTooLong
from pytest_evo.chat import AskedInVain
from pytest_evo.chat import ChatReply
from pytest_evo.chat import Finish
from pytest_evo.chat import size_of
from pytest_evo.chat import Speaker
from pytest_evo.chat import ToolCall
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import FileRule
from pytest_evo.models import Kind
from pytest_evo.models import Usage
from pytest_evo.proposers.archive import Archive
from pytest_evo.proposers.llm.proposer import LlmProposer
from pytest_evo.settings_model import ModelSettings
from pytest_evo.testing.models import ScriptedModel

WRITE = call("write_file", path="prompt.txt", content="be brief, please\n")
GOOD = [calls(WRITE), calls(finish("prompt.txt"))]


def proposer_of(answers, **options) -> tuple[LlmProposer, ScriptedModel]:
    model = ScriptedModel(answers)
    return LlmProposer(model, ModelSettings(**options)), model


def propose(tmp_path: Path, answers, files=None, schema=None, **fields):
    """The proposal, the files afterwards, and what the model was asked."""
    proposer, model = proposer_of(answers)
    request = request_in(tmp_path, files, schema, **fields)
    proposal = proposer.propose(request)
    return proposal, held(tmp_path), model.requests


def refused(tmp_path: Path, answers, **options) -> AnswerRefused:
    """How it ends where there is no proposal; nothing may have changed unasked."""
    proposer, model = proposer_of(answers, **options)
    with pytest.raises(AnswerRefused) as caught:
        proposer.propose(request_in(tmp_path))
    assert caught.value.usage.calls == len(model.requests)
    return caught.value


def told(requests, number: int = -1) -> str:
    """What the newest request says that the one before did not."""
    return requests[number].messages[-1].text


# -- what works ----------------------------------------------------------------------


def test_edits_are_made_and_the_changelog_comes_back(tmp_path) -> None:
    answers = [
        calls(call("list_files"), call("read_file", path="prompt.txt")),
        calls(call("edit_file", path="prompt.txt", old="brief", new="brief, please")),
        calls(call("write_file", path="new/notes.md", content="note\n")),
        calls(call("check")),
        calls(
            finish(
                "./prompt.txt",
                "artifact/new/notes.md",
                evidence=["t.py::a: rude"],
                expected="t.py::a passes",
            )
        ),
    ]
    proposal, files, requests = propose(tmp_path, answers)
    assert files["prompt.txt"] == "be brief, please\n"
    assert files["new/notes.md"] == "note\n"
    assert {e.file for e in proposal.changelog} == {"prompt.txt", "new/notes.md"}
    assert proposal.changelog[0].evidence == ("t.py::a: rude",)
    assert proposal.changelog[0].expected == "t.py::a passes"
    assert proposal.usage == Usage(5, 5_000, 0, 250, pytest.approx(0.05), 0.0)
    seen = "\n".join(message.text for message in requests[-1].messages)
    assert "All checks pass" in seen
    assert "9 bytes, prose" in seen


def test_start_of_the_prompt_is_the_same_in_every_step(tmp_path) -> None:
    first = propose(tmp_path / "a", GOOD)[2][0]
    second = propose(tmp_path / "b", GOOD, step=3, feedback="no")[2][0]
    assert first.messages[0] == second.messages[0]
    assert first.tools == second.tools
    one, other = first.messages[1].text, second.messages[1].text
    assert "Be polite." in one.split("# This step")[0]
    assert one.split("# This step")[0] == other.split("# This step")[0]
    assert "no" in other.rpartition("was not used")[2]


def test_prompt_explains_kinds_and_files(tmp_path) -> None:
    schema = ArtifactSchema(
        "artifact",
        (
            FileRule("prompt.txt", "what the model is told", Kind.PROSE),
            FileRule("sub/*.txt", "never change this", Kind.CONFIG, edit=False),
        ),
    )
    request = propose(tmp_path, GOOD, schema=schema)[2][0]
    text = "\n".join(message.text for message in request.messages)
    assert "sink it" in text
    assert "what the model is told" in text
    assert "`sub/*.txt` (config, read-only)" in text
    assert "be brief" in text


def test_move_and_delete(tmp_path) -> None:
    script = tmp_path / "artifact" / "run.sh"
    request_in(tmp_path, {**FILES, "run.sh": "echo\n"})
    script.chmod(0o755)
    answers = [
        calls(
            call("move_file", path="run.sh", target="bin/run.sh"),
            call("delete_file", path="sub/deep.txt"),
            call("search_files", text="BRIEF"),
        ),
        calls(finish("run.sh", "bin/run.sh", "sub/deep.txt")),
    ]
    proposal, files, requests = propose(tmp_path, answers, {})
    assert files == {"bin/run.sh": "echo\n", "prompt.txt": "be brief\n"}
    assert (tmp_path / "artifact/bin/run.sh").stat().st_mode & 0o777 == 0o755
    assert {e.file for e in proposal.changelog} == {
        "run.sh",
        "bin/run.sh",
        "sub/deep.txt",
    }
    assert "prompt.txt:1: be brief" in told(requests)


def test_evidence_can_be_read_and_not_changed(tmp_path) -> None:
    request = request_in(tmp_path)
    (tmp_path / "evidence" / "facts.md").write_text("a measured fact\n")
    answers = [
        calls(
            call("list_files", folder="evidence"),
            call("read_file", path="evidence/facts.md"),
            call("search_files", text="measured", folder="evidence"),
            call("write_file", path="evidence/facts.md", content="lies"),
            call("read_file", path="evidence/../artifact/prompt.txt"),
        ),
        *GOOD,
    ]
    proposer, model = proposer_of(answers)
    proposer.propose(request)
    answers_told = [m.text for m in model.requests[1].messages[-5:]]
    assert "evidence/facts.md" in answers_told[0]
    assert answers_told[1] == "a measured fact\n"
    assert "evidence/facts.md:1" in answers_told[2]
    assert "cannot be changed" in answers_told[3]
    assert "Not done" in answers_told[4]
    assert (tmp_path / "evidence" / "facts.md").read_text() == "a measured fact\n"


# -- answers that are none -----------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "said"),
    [
        (Finish.LENGTH, "cut at its token limit"),
        (Finish.REFUSED, "refused to answer"),
        (Finish.EMPTY, "empty"),
    ],
)
def test_cut_refused_and_empty_answers_are_told_apart(tmp_path, end, said) -> None:
    half = ChatReply("Here is", end, (WRITE,), COST)
    error = refused(tmp_path, [half])
    assert said in str(error)
    assert error.usage == COST
    assert held(tmp_path) == FILES


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (ToolCall("1", "write_file", '{"path": "prompt.txt", "content": "be'), "JSON"),
        (ToolCall("1", "write_file", '{"path": "x", "content": "x",}'), "JSON"),
        (ToolCall("1", "write_file", "[1, 2]"), "JSON object"),
        (ToolCall("1", "write_file", "null"), "JSON object"),
        (ToolCall("1", "write_file", "[" * 100_000), "JSON"),
        (ToolCall("1", "write_file", ""), "path"),
        (call("write_file", path="prompt.txt"), "content"),
        (call("write_file", path=["prompt.txt"], content=5), "string"),
        (call("write_file", path="prompt.txt", content="x", mode=1), "mode"),
        (call("shell", command="ls"), "There is no tool 'shell'"),
        (call("a tool\nof mine " + "x" * 500), "There is no tool"),
    ],
)
def test_bad_call_is_told_and_may_be_made_again(tmp_path, bad, said) -> None:
    answers = [calls(bad), *GOOD]
    _, files, requests = propose(tmp_path, answers)
    assert files["prompt.txt"] == "be brief, please\n"
    assert said in told(requests, 1)
    for request in requests:
        for message in request.messages:
            for back in message.calls:  # what a server would not take back
                assert isinstance(json.loads(back.arguments), dict)
                assert back.name.replace("_", "").isalnum()


def test_good_call_beside_a_bad_one_counts(tmp_path) -> None:
    bad = ToolCall("1", "write_file", "{")
    note = call("write_file", path="notes.txt", content="kept")
    answers = [calls(bad, note), calls(WRITE), calls(finish("prompt.txt", "notes.txt"))]
    _, files, _ = propose(tmp_path, answers)
    assert files["notes.txt"] == "kept"


def test_bad_calls_end_somewhere(tmp_path) -> None:
    error = refused(tmp_path, lambda r: calls(ToolCall("1", "x", f"{len(r.messages)}")))
    assert "too many calls were wrong" in str(error)
    assert held(tmp_path) == FILES


def test_the_same_call_for_ever_ends(tmp_path) -> None:
    again = call("write_file", path="prompt.txt", content="again")
    error = refused(tmp_path, lambda request: calls(again))
    assert "in a row" in str(error)
    assert error.usage.calls < 10


def test_calls_for_ever_end_at_the_steps(tmp_path) -> None:
    rng = Random(1)
    error = refused(
        tmp_path,
        lambda request: calls(call("search_files", text=str(rng.random()))),
        steps=7,
    )
    assert "7 answers" in str(error)
    assert error.usage.calls == 7


def test_talk_is_answered_once(tmp_path) -> None:
    talk = ChatReply("The prompt looks good.", Finish.STOP, usage=COST)
    assert "only talked" in str(refused(tmp_path / "a", [talk, talk]))
    _, files, requests = propose(tmp_path / "b", [talk, *GOOD])
    assert files["prompt.txt"] == "be brief, please\n"
    assert "Use the tools" in told(requests, 1)


def test_huge_talk_is_not_carried_along(tmp_path) -> None:
    talk = ChatReply("word " * 200_000, Finish.STOP, usage=COST)
    _, _, requests = propose(tmp_path, [talk, *GOOD])
    assert max(size_of(request) for request in requests) < 60_000


def test_missing_entry_is_asked_for_once(tmp_path) -> None:
    note = call("write_file", path="notes.txt", content="kept")
    short = [calls(WRITE, note), calls(finish("prompt.txt"))]
    error = refused(tmp_path / "a", [*short, calls(finish("prompt.txt"))])
    assert "notes.txt" in str(error)
    whole = calls(finish("prompt.txt", "notes.txt"))
    proposal, _, requests = propose(tmp_path / "b", [*short, whole])
    assert len(proposal.changelog) == 2
    assert "no entry with a reason for: notes.txt" in told(requests)


def test_nothing_changed_is_no_proposal(tmp_path) -> None:
    error = refused(tmp_path, lambda request: calls(finish("prompt.txt")))
    assert "changed" in str(error) or "in a row" in str(error)


def test_broken_syntax_is_told_before_the_end(tmp_path) -> None:
    broken = call("write_file", path="run.py", content="def f(:\n")
    fixed = call("write_file", path="run.py", content="def f(): ...\n")
    answers = [
        calls(broken),
        calls(finish("run.py")),
        calls(fixed),
        calls(finish("run.py")),
    ]
    _, files, requests = propose(tmp_path, answers)
    assert files["run.py"] == "def f(): ...\n"
    assert "is no Python" in told(requests, 2)


# -- edits -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 2])
def test_edit_needs_a_text_that_occurs_once(tmp_path, count) -> None:
    files = {"prompt.txt": "x\n" * count + "be brief\n"}
    edit = call("edit_file", path="prompt.txt", old="x\n", new="y\n")
    _, after, requests = propose(tmp_path, [calls(edit), *GOOD], files)
    assert f"occurs {count} times" in told(requests, 1)
    assert after["prompt.txt"] == "be brief, please\n"


def test_edit_keeps_the_line_ends_of_a_file(tmp_path) -> None:
    files = {"prompt.txt": b"one\r\ntwo\r\nthree\r\n"}
    edit = call("edit_file", path="prompt.txt", old="one\ntwo", new="1\n2")
    propose(tmp_path, [calls(edit), calls(finish("prompt.txt"))], files)
    assert (tmp_path / "artifact/prompt.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"


def test_protected_files_are_refused_at_once(tmp_path) -> None:
    schema = ArtifactSchema(
        "artifact", (FileRule("prompt.txt"), FileRule("sub/*", edit=False))
    )
    answers = [
        calls(
            call("write_file", path="sub/deep.txt", content="x"),
            call("delete_file", path="sub/deep.txt"),
            call("move_file", path="sub/deep.txt", target="prompt.txt"),
            call("write_file", path="other.txt", content="x"),
        ),
        *GOOD,
    ]
    _, files, requests = propose(tmp_path, answers, schema=schema)
    assert files["sub/deep.txt"] == FILES["sub/deep.txt"]
    assert "other.txt" not in files
    replies = [m.text for m in requests[1].messages if m.speaker is Speaker.TOOL]
    assert all("may not change" in text for text in replies)


def test_secrets_are_neither_shown_nor_written_over(tmp_path) -> None:
    files = {**FILES, ".env": "KEY=hush-hush-1\n", "conf.txt": "token: hush-hush-1\n"}
    model = ScriptedModel(
        [
            calls(
                call("list_files"),
                call("read_file", path=".env"),
                call("read_file", path="conf.txt"),
                call("search_files", text="hush"),
                call("write_file", path="conf.txt", content="token: [redacted KEY]\n"),
                call("write_file", path=".env", content="KEY=mine"),
                call("edit_file", path="conf.txt", old="token", new="key"),
            ),
            calls(finish("conf.txt")),
        ]
    )
    proposer = LlmProposer(
        model,
        ModelSettings(),
        archive=Archive(lambda text: text.replace("hush-hush-1", "[redacted KEY]")),
    )
    proposer.propose(request_in(tmp_path, files))
    said = "\n".join(m.text for r in model.requests for m in r.messages)
    assert "hush" not in said.replace("No line holds 'hush'", "")
    assert ".env" not in told(model.requests[:1])
    after = held(tmp_path)
    assert after[".env"] == "KEY=hush-hush-1\n"
    assert after["conf.txt"] == "key: hush-hush-1\n"


def test_binary_files_are_named_and_not_shown(tmp_path) -> None:
    files = {**FILES, "logo.png": b"\x89PNG\xff\x00"}
    read = calls(call("read_file", path="logo.png"), call("search_files", text="PNG"))
    _, _, requests = propose(tmp_path, [read, *GOOD], files)
    replies = [m.text for m in requests[1].messages if m.speaker is Speaker.TOOL]
    assert "is no text" in replies[0]
    assert "No line" in replies[1]
    assert "`logo.png` (prose), no text" in requests[0].messages[1].text


# -- size ------------------------------------------------------------------------------


def test_requests_stay_within_their_size(tmp_path) -> None:
    files = {f"f{n}.txt": f"line {n} \\ ä\n" * 2_000 for n in range(12)}
    reads = [calls(call("read_file", path=f"f{n}.txt")) for n in range(12)]
    done = [
        calls(call("write_file", path="f0.txt", content="x")),
        calls(finish("f0.txt")),
    ]
    proposer, model = proposer_of([*reads, *done], prompt_bytes=60_000)
    proposer.propose(request_in(tmp_path, files))
    assert max(size_of(request) for request in model.requests) <= 60_000
    last = [m.text for m in model.requests[-2].messages if m.speaker is Speaker.TOOL]
    assert "left out" in last[0]
    assert "line 11" in last[-1]
    openings = {request.messages[:2] for request in model.requests}
    assert len(openings) == 1


def test_answer_that_is_longer_than_a_request_does_not_end_the_talk(tmp_path) -> None:
    long = call("write_file", path="prompt.txt", content="please\n" * 20_000)
    reads = [call("read_file", path="prompt.txt", first=n * 300 + 1) for n in range(20)]
    answers = [calls(long), calls(*reads), calls(finish("prompt.txt"))]
    proposer, model = proposer_of(answers, prompt_bytes=30_000)
    proposer.propose(request_in(tmp_path))
    assert max(size_of(request) for request in model.requests) <= 30_000
    assert held(tmp_path)["prompt.txt"] == "please\n" * 20_000
    assert "please" in told(model.requests)


def test_overflow_cuts_and_asks_again(tmp_path) -> None:
    files = {f"f{n}.txt": "words and words\n" * 400 for n in range(12)}

    def answer(request):
        if size_of(request) > 20_000:
            return AnswerTooLong("too long", Usage(calls=1))
        if request.messages[-1].speaker is Speaker.TOOL:
            return calls(finish("f0.txt"))
        return calls(call("write_file", path="f0.txt", content="x"))

    proposer, model = proposer_of(answer, prompt_bytes=100_000)
    proposal = proposer.propose(request_in(tmp_path, files))
    sizes = [size_of(request) for request in model.requests]
    assert sizes[0] > 20_000 > sizes[-1]
    assert proposal.usage.calls == len(sizes)
    answers = [request.max_tokens for request in model.requests]
    assert answers[-1] < answers[0]


def test_overflow_for_ever_is_a_refusal(tmp_path) -> None:
    proposer, model = proposer_of(lambda r: AnswerTooLong("too long", Usage(calls=1)))
    with pytest.raises(AnswerRefused, match="Cutting did not help"):
        proposer.propose(request_in(tmp_path))
    assert len(model.requests) < 8


# -- budgets ---------------------------------------------------------------------------


def test_tokens_that_are_left_limit_the_answer_and_end_the_loop(tmp_path) -> None:
    reads = (calls(call("search_files", text=str(n))) for n in range(99))
    proposer, model = proposer_of(lambda request: next(reads))
    request = request_in(tmp_path, tokens_left=8_000)
    with pytest.raises(AnswersOver, match="--budget-tokens") as caught:
        proposer.propose(request)
    limits = [request.max_tokens for request in model.requests]
    assert 8_000 > limits[0] > limits[2] > limits[-1] >= 500
    assert 0 < caught.value.usage.tokens <= 8_000


def test_money_that_is_left_ends_the_loop(tmp_path) -> None:
    reads = (calls(call("search_files", text=str(n))) for n in range(99))
    proposer, _ = proposer_of(lambda request: next(reads))
    with pytest.raises(AnswersOver, match="--budget-usd") as caught:
        proposer.propose(request_in(tmp_path, usd_left=0.045))
    assert caught.value.usage.usd == pytest.approx(0.04)


def test_no_call_is_made_that_cannot_be_paid(tmp_path) -> None:
    proposer, model = proposer_of(GOOD)
    with pytest.raises(AnswersOver):
        proposer.propose(request_in(tmp_path, tokens_left=100))
    assert model.requests == []


def test_calls_of_other_slots_count(tmp_path) -> None:
    inner: list[BaseException] = []

    def answer(request):
        if not inner:
            try:
                inner.append(AnswersOver("tokens", "none"))
                proposer.propose(request_in(tmp_path / "b", tokens_left=6_000))
            except AnswersOver as error:
                inner[0] = error
        return calls(call("search_files", text=str(len(model.requests))))

    proposer, model = proposer_of(answer)
    with pytest.raises(AnswersOver) as caught:
        proposer.propose(request_in(tmp_path / "a", tokens_left=6_000))
    spent = caught.value.usage.tokens + inner[0].usage.tokens
    assert inner[0].usage.tokens > 0
    assert spent <= 6_000 + 1_050  # the call that was open while the other ran


def test_what_failed_calls_cost_is_not_lost(tmp_path) -> None:
    failed = AnswerFailed("no answer", Usage(calls=3))
    proposer, _ = proposer_of([calls(WRITE), failed])
    with pytest.raises(ModelFailed) as caught:
        proposer.propose(request_in(tmp_path / "a"))
    assert caught.value.usage.calls == 4
    assert caught.value.usage.tokens == COST.tokens
    proposer, _ = proposer_of([calls(WRITE), AskedInVain("no key", Usage(calls=1))])
    with pytest.raises(ModelProblem) as vain:
        proposer.propose(request_in(tmp_path / "b"))
    assert vain.value.usage.calls == 2


def test_finished_proposals_are_charged_only_once(tmp_path) -> None:
    proposer, _ = proposer_of([*GOOD, *GOOD])
    proposer.propose(request_in(tmp_path / "a", tokens_left=100_000))
    second = request_in(tmp_path / "b", tokens_left=100_000 - 2 * COST.tokens)
    proposal = proposer.propose(replace(second, iteration=2))
    assert proposal.usage.tokens == 2 * COST.tokens
