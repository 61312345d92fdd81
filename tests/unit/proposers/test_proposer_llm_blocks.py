"""The proposer without tools, with a scripted model that writes blocks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llm_requests import COST
from llm_requests import FILES
from llm_requests import held
from llm_requests import request_in

from pytest_evo.chat import AnswerRefused
from pytest_evo.chat import ChatReply
from pytest_evo.chat import Finish
from pytest_evo.chat import ToolsRefused
from pytest_evo.errors import ProposalRefused
from pytest_evo.models import Usage
from pytest_evo.proposers.llm.blocks import Block
from pytest_evo.proposers.llm.blocks import parse_blocks
from pytest_evo.proposers.llm.blocks import replacements
from pytest_evo.proposers.llm.proposer import LlmProposer
from pytest_evo.settings_model import ModelSettings
from pytest_evo.testing.models import ScriptedModel


def log(*files: str) -> str:
    rows = [{"file": file, "reason": "why not"} for file in files]
    return f"````changelog\n{json.dumps({'changelog': rows})}\n````\n"


EDIT = (
    "I make it polite.\n\n"
    "````edit prompt.txt\n<<<<<<< SEARCH\nbe brief\n=======\nbe brief, please\n"
    ">>>>>>> REPLACE\n````\n"
)
GOOD = EDIT + log("prompt.txt")


def propose(tmp_path: Path, answers, tools="never"):
    model = ScriptedModel(answers)
    proposer = LlmProposer(model, ModelSettings(tools=tools))
    return proposer.propose(request_in(tmp_path)), model.requests


def test_blocks_are_applied_with_their_changelog(tmp_path) -> None:
    whole = "````file new.md\n# New\n```py\nx\n```\n````\n"
    gone = "````delete sub/deep.txt\n````\n"
    answer = whole + gone + EDIT + log("prompt.txt", "new.md", "sub/deep.txt")
    proposal, requests = propose(tmp_path, [answer])
    assert held(tmp_path) == {
        "prompt.txt": "be brief, please\n",
        "new.md": "# New\n```py\nx\n```\n",
    }
    assert len(proposal.changelog) == 3
    assert requests[0].tools == ()
    assert "be brief" in requests[0].messages[1].text
    assert "SEARCH" in requests[0].messages[0].text


def test_model_that_takes_no_tools_is_asked_for_blocks(tmp_path) -> None:
    answers = [ToolsRefused("no tools", Usage(calls=1)), GOOD, GOOD]
    model = ScriptedModel(answers)
    proposer = LlmProposer(model, ModelSettings())
    proposal = proposer.propose(request_in(tmp_path / "a"))
    assert proposal.usage.calls == 2
    proposer.propose(request_in(tmp_path / "b"))
    assert [bool(request.tools) for request in model.requests] == [True, False, False]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ("I would say please.", "no block"),
        ("````file prompt.txt\nhalf of", "does not end"),
        (
            "````edit prompt.txt\n<<<<<<< SEARCH\nnope\n=======\nx\n>>>>>>> REPLACE\n"
            "````\n" + log("prompt.txt"),
            "occurs 0 times",
        ),
        ("````edit prompt.txt\njust text\n````\n" + log("prompt.txt"), "SEARCH"),
        ("````edit\n<<<<<<< SEARCH\n````\n", "names no file"),
        ("````file prompt.txt\nx\n````\n````changelog\n{nope\n````\n", "changelog"),
        ("````file prompt.txt\nx\n````\n```file run.py\ndef f(:\n```\n", "no Python"),
    ],
)
def test_bad_blocks_are_told_and_may_be_sent_again(tmp_path, bad, said) -> None:
    fixed = "```file run.py\nx = 1\n```\n" + log("run.py", "prompt.txt")
    better = fixed if "run.py" in bad else GOOD
    _, requests = propose(tmp_path, [bad, better])
    assert said in requests[1].messages[-1].text
    assert "please" in held(tmp_path)["prompt.txt"] or "run.py" in bad


def test_half_good_answer_changes_nothing(tmp_path) -> None:
    bad = EDIT + "````edit sub/deep.txt\nnothing\n````\n" + log("prompt.txt")
    with pytest.raises(AnswerRefused, match="SEARCH"):
        propose(tmp_path, [bad] * 4)
    assert held(tmp_path) == FILES


def test_missing_changelog_is_asked_for_once(tmp_path) -> None:
    _, requests = propose(tmp_path / "a", [EDIT, log("prompt.txt")])
    assert "no entry with a reason for: prompt.txt" in requests[1].messages[-1].text
    with pytest.raises(AnswerRefused, match=r"prompt\.txt"):
        propose(tmp_path / "b", [EDIT, "sorry", "sorry", "sorry"])


@pytest.mark.parametrize("end", [Finish.LENGTH, Finish.REFUSED, Finish.EMPTY])
def test_cut_answers_are_never_edits(tmp_path, end) -> None:
    with pytest.raises(AnswerRefused) as caught:
        propose(tmp_path, [ChatReply(GOOD, end, usage=COST)])
    assert caught.value.usage == COST
    assert held(tmp_path) == FILES


def test_replacements_may_follow_each_other() -> None:
    part = "<<<<<<< SEARCH\n{}\n=======\n{}\n>>>>>>> REPLACE\n"
    block = Block("edit", "x", part.format("a\n b", "c") + "\n" + part.format("d", ""))
    assert replacements(block) == [("a\n b", "c"), ("d", "")]


@pytest.mark.parametrize(
    "text", ["", "<<<<<<< SEARCH\na\n", "<<<<<<< SEARCH\na\n=======\nb\n", "=======\n"]
)
def test_unfinished_markers_are_refused(text) -> None:
    with pytest.raises(ProposalRefused):
        replacements(Block("edit", "x", text))


@given(st.text(max_size=300))
def test_any_answer_is_parsed_or_refused(text: str) -> None:
    try:
        blocks = parse_blocks("````file a.md\n" + text)
    except ProposalRefused:
        return
    assert all(block.kind for block in blocks)


@given(st.lists(st.text("ab`~ =<>#\n", max_size=30), max_size=5))
def test_whole_files_come_out_as_they_were_written(lines: list[str]) -> None:
    content = "\n".join(lines) + "\n"
    fence = "`" * (max(3, content.count("`")) + 1)
    parsed = parse_blocks(f"So:\n{fence}file a.md\n{content}{fence}\nDone.")
    assert parsed == [Block("file", "a.md", content)]
