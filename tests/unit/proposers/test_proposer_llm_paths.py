"""Names that a model may give to files: none leads out of the artifact."""

from __future__ import annotations

from pathlib import Path

import pytest
from llm_requests import call
from llm_requests import calls
from llm_requests import FILES
from llm_requests import finish
from llm_requests import held
from llm_requests import request_in

from pytest_evo.chat import Speaker
from pytest_evo.errors import ArtifactProblem
from pytest_evo.errors import ProposalRefused
from pytest_evo.proposers.llm.blocks import BlockWriter
from pytest_evo.proposers.llm.conversation import Conversation
from pytest_evo.proposers.llm.proposer import LlmProposer
from pytest_evo.proposers.llm.workbench import Workbench
from pytest_evo.settings_model import ModelSettings
from pytest_evo.testing.models import ScriptedModel

OUTSIDE = [
    "../tests/test_prompt.py",
    "../outside/secret.txt",
    "/etc/passwd",
    "{tmp}/escape.txt",
    "sub/../../outside/secret.txt",
    "link_out/secret.txt",
    "link_file",
    "dangling_out",
    "sub/link_up/../../outside/secret.txt",
    "~/escape.txt",
    "",
    ".",
    "..",
    "sub",
    "prompt.txt/",
    "prompt.txt/more.txt",
    "a\0b.txt",
    "new\nline.txt",
    "x" * 300 + ".txt",
    "d/" * 600 + "f.txt",
    "..\\tests\\test_prompt.py",
    "C:\\Windows\\win.ini",
    "file:///etc/passwd",
    "．．/outside/secret.txt",  # noqa: RUF001 - wide dots
    "../artifact/prompt.txt",
    "artifact/../../outside/secret.txt",
    "evidence/../../outside/secret.txt",
    "evidence/../artifact/prompt.txt",
    "./../outside/secret.txt",
    ".git/hooks/pre-commit",
    "conftest.py",
    "pytest.ini",
    "sitecustomize.py",
    "sub/x.pth",
    ".env",
    "half \ud83d pair.txt",
]
INSIDE = [
    ("prompt.txt", "prompt.txt"),
    ("sub/new.txt", "sub/new.txt"),
    ("./prompt.txt", "prompt.txt"),
    ("artifact/prompt.txt", "prompt.txt"),
    ("sub/../prompt.txt", "prompt.txt"),
    ("sub//deep.txt", "sub/deep.txt"),
    ("%2e%2e/outside/secret.txt", "%2e%2e/outside/secret.txt"),
]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace beside a file that nobody may touch, with links in the artifact."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("secret\n")
    workspace = tmp_path / "workspace"
    request_in(workspace)
    artifact = workspace / "artifact"
    (artifact / "link_out").symlink_to("../../outside")
    (artifact / "link_file").symlink_to("../../outside/secret.txt")
    (artifact / "dangling_out").symlink_to("../../outside/new.txt")
    (artifact / "sub" / "link_up").symlink_to("..")
    return workspace


def everything(root: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else None
        for path in root.rglob("*")
    }


@pytest.mark.parametrize("name", OUTSIDE, ids=lambda name: ascii(name)[:40])
def test_no_name_leads_out_by_any_tool(place: Path, tmp_path: Path, name: str) -> None:
    # a link that leads out is refused by itself, so it is there only for its names
    for link in ("link_out", "link_file", "dangling_out"):
        if not name.startswith(link):
            (place / "artifact" / link).unlink()
    name = name.replace("{tmp}", str(tmp_path))
    before = everything(tmp_path)
    try:
        bench = Workbench(place, request_in(place, {}).schema)
    except ProposalRefused:
        assert name.startswith(("link", "dangling"))
        return
    acts = [
        lambda: bench.write(name, "gotcha"),
        lambda: bench.read(name),
        lambda: bench.edit(name, "s", "gotcha"),
        lambda: bench.delete(name),
        lambda: bench.move(name, "stolen.txt"),
        lambda: bench.move("prompt.txt", name),
    ]
    for act in acts:
        with pytest.raises(ProposalRefused):
            act()
    assert everything(tmp_path) == before


@pytest.mark.parametrize(("name", "real"), INSIDE)
def test_names_inside_are_taken(tmp_path: Path, name: str, real: str) -> None:
    bench = Workbench(tmp_path, request_in(tmp_path).schema)
    bench.write(name, "new\n")
    assert held(tmp_path)[real] == "new\n"
    assert bench.read(name) == "new\n"


def test_link_made_between_look_and_act_is_not_followed(place: Path) -> None:
    for link in ("link_out", "link_file", "dangling_out"):
        (place / "artifact" / link).unlink()
    bench = Workbench(place, request_in(place, {}).schema)
    (place / "artifact" / "late").symlink_to("../../outside")
    with pytest.raises((ProposalRefused, ArtifactProblem)):
        bench.write("late/secret.txt", "gotcha")
    with pytest.raises((ProposalRefused, ArtifactProblem)):
        bench.read("late/secret.txt")
    assert (place.parent / "outside" / "secret.txt").read_text() == "secret\n"


def test_model_is_told_and_the_step_goes_on(tmp_path: Path) -> None:
    answers = [
        calls(
            call("write_file", path="../escape.txt", content="x"),
            call("read_file", path="/etc/passwd"),
            call("write_file", path="conftest.py", content="x"),
            call("write_file", path="prompt.txt", content="be brief, please\n"),
        ),
        calls(finish("prompt.txt")),
    ]
    model = ScriptedModel(answers)
    LlmProposer(model, ModelSettings()).propose(request_in(tmp_path / "w"))
    told = [m.text for m in model.requests[1].messages if m.speaker is Speaker.TOOL]
    assert [text.startswith("Not done") for text in told] == [True, True, True, False]
    assert not (tmp_path / "escape.txt").exists()
    assert held(tmp_path / "w")["prompt.txt"] == "be brief, please\n"


def test_blocks_with_a_bad_name_change_nothing(tmp_path: Path) -> None:
    text = (
        "```file prompt.txt\nbe brief, please\n```\n"
        "```file ../escape.txt\ngotcha\n```\n"
        '```changelog\n{"changelog": [{"file": "prompt.txt", "reason": "x"}]}\n```\n'
    )
    model = ScriptedModel([text] * 4)
    bench = Workbench(tmp_path / "w", request_in(tmp_path / "w").schema)
    conversation = Conversation(lambda budget: (), 50_000)
    with pytest.raises(ProposalRefused, match="escape"):
        BlockWriter(model.ask, bench, conversation).run()
    assert held(tmp_path / "w") == FILES
    assert not (tmp_path / "escape.txt").exists()
