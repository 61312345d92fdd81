"""Scripted agents, with and without a sandbox: the honest and the others."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from agent_world import CHANGELOG
from agent_world import EDIT
from agent_world import need_sandbox
from agent_world import START
from agent_world import World

from pytest_evo.artifact.blobs import MemoryBlobs
from pytest_evo.artifact.blobs import MemoryTrees
from pytest_evo.artifact.trees import restore
from pytest_evo.artifact.trees import snapshot
from pytest_evo.artifact.workshop import DirectoryWorkshop
from pytest_evo.chat import AnswerRefused
from pytest_evo.errors import ProposalRefused
from pytest_evo.models import ArtifactSchema
from pytest_evo.models import Usage
from pytest_evo.plugin.redaction import Redaction
from pytest_evo.protocols import ProposalKey
from pytest_evo.testing.model_server import Answer
from pytest_evo.testing.model_server import ModelServer

SECRET = "sk-case-AAAAcanary0123456789abcdef"


@pytest.fixture(params=["never", "required"])
def world(request, tmp_path):
    if request.param == "required":
        need_sandbox()
    return World(tmp_path, request.param)


@pytest.fixture
def open_world(tmp_path):
    return World(tmp_path, "never")


@pytest.fixture
def closed_world(tmp_path):
    need_sandbox()
    return World(tmp_path, "required")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# -- honest ------------------------------------------------------------------------


def test_edit_with_a_changelog_is_an_answer(world):
    answer = world.ask(EDIT)
    assert world.text == "be brief, please\n"
    (entry,) = answer.changelog
    assert (entry.file, entry.reason) == ("prompt.txt", "it was rude")
    assert entry.evidence == ("t.py::a: no please",)
    facts = answer.data["agent"]
    assert facts["changed"] == ["modified prompt.txt"]
    assert (facts["ended"], facts["status"]) == ("itself", 0)


def test_prompt_is_on_the_input_or_in_the_file_that_is_asked_for(world):
    say = "print('say please' in text.lower(), 'changelog.json' in text)"
    answer = world.ask(EDIT + f"import sys; text = sys.stdin.read(); {say}")
    assert answer.changelog
    assert "True True" in world.kept()["output.txt"]
    code = "import sys; text = open(sys.argv[1]).read(); assert not sys.stdin.read(); "
    (world.artifact / "prompt.txt").write_text(START)
    world.ask(EDIT + code + say, "{prompt_file}")
    assert "True True" in world.kept()["output.txt"]


def test_workspace_holds_artifact_and_evidence_and_nothing_else(world):
    world.ask(f"import os, sys; print(sorted(os.listdir(sys.argv[1])))\n{EDIT}",
              "{workspace}")  # fmt: skip
    assert "['artifact', 'evidence']" in world.kept()["output.txt"]


def test_prompt_output_and_report_are_kept_for_the_owner_only(world):
    world.ask(EDIT)
    kept = world.kept()
    assert "Say please." in kept["prompt.md"]
    assert json.loads(kept["report.json"])["end"].endswith("with status 0")
    place = world.root / "kept" / "c0001"
    assert place.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in place.iterdir())


def test_second_attempt_is_told_what_was_wrong_with_the_first(world):
    proposer = world.proposer(world.script(EDIT))
    proposer.propose(world.request(feedback="no please in it"))
    assert "no please in it" in world.kept("c0001-again")["prompt.md"]


# -- nothing, failure, half of it --------------------------------------------------


def test_status_zero_without_an_edit_is_refused_with_what_was_said(world):
    with pytest.raises(AnswerRefused, match="nothing changed") as refused:
        world.ask("print('All done, the prompt is better now.')")
    assert "All done, the prompt is better now." in str(refused.value)


def test_question_that_nobody_can_answer_is_refused(world):
    code = "import sys; input('Allow? [y/N]') and sys.exit(0)"
    with pytest.raises(AnswerRefused):
        world.ask(code, "{prompt_file}")


@pytest.mark.parametrize("end", ["sys.exit(3)", "os.kill(os.getpid(), 9)"])
def test_half_an_edit_is_refused(world, end):
    code = "import os, sys; open('artifact/prompt.txt', 'w').write('half way'); "
    with pytest.raises(AnswerRefused, match=r"broke off|killed"):
        world.ask(code + end)


def test_status_one_after_good_edits_and_a_changelog_is_an_answer(world):
    assert world.ask(f"{EDIT}\nimport sys; sys.exit(1)").changelog


def test_error_event_is_refused_whatever_the_files_and_the_status_say(world):
    event = {"type": "result", "is_error": True, "result": "Invalid API key"}
    with pytest.raises(AnswerRefused, match="Invalid API key"):
        world.ask(f"{EDIT}\nprint({json.dumps(event)!r})")


def test_success_event_outweighs_the_status(world):
    event = {"type": "result", "is_error": False, "result": "Done.", "usage": {}}
    code = f"open('artifact/prompt.txt', 'w').write('x')\nprint({json.dumps(event)!r})"
    answer = world.ask(f"{code}\nimport sys; sys.exit(1)")
    assert answer.changelog == ()  # the engine asks for it


def test_time_limit_is_a_refusal(world):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    with pytest.raises(AnswerRefused, match="in time"):
        world.ask(EDIT + code, timeout=1.5)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '[{"file": "prompt.txt"}]',
        '[{"file": "prompt.txt", "reason": "x", "why": 1}]',
        '[{"file": "prompt.txt", "reason": "x", "evidence": "one"}]',
    ],
)
def test_changelog_of_another_form_is_refused_with_the_form(world, text):
    with pytest.raises(AnswerRefused, match=r"changelog\.json.*list of objects"):
        world.ask(EDIT + f"Path('changelog.json').write_text({text!r})")


@pytest.mark.parametrize(
    "code",
    [
        "os.mkfifo('changelog.json')",
        "os.symlink('/etc/passwd', 'changelog.json')",
        "os.mkdir('changelog.json')",
        "open('changelog.json', 'w').write('[' + ' ' * 2_000_000 + ']')",
    ],
)
def test_changelog_that_is_no_file_is_refused(world, code):
    edit = "import os; open('artifact/prompt.txt', 'w').write('x'); "
    with pytest.raises(AnswerRefused, match="no plain file"):
        world.ask(edit + code)


# -- what is left behind -----------------------------------------------------------


def test_daemon_is_ended_before_the_files_are_read(world):
    code = """
import os, time
open('artifact/prompt.txt', 'w').write('be brief, please')
if os.fork() == 0:
    os.setsid()
    while True:
        open('artifact/late.txt', 'w').write('late')
        time.sleep(0.02)
"""
    began = time.monotonic()
    answer = world.ask(code)
    assert time.monotonic() - began < 15
    late = world.artifact / "late.txt"
    late.unlink(missing_ok=True)
    time.sleep(0.2)
    assert not late.exists()
    assert "modified prompt.txt" in answer.data["agent"]["changed"]


def test_flood_is_kept_cut_and_bad_bytes_are_visible(world):
    code = r"""
import os
os.write(1, b"\xff\xfe\x00\x1b[2J first\n")
for _ in range(100):
    os.write(1, (b"thinking about it, " * 60 + b"\n") * 1_000)
os.write(2, b"\xed\xa0\x80 last\n")
"""
    answer = world.ask(EDIT + code)
    assert answer.changelog
    text = world.kept()["output.txt"]
    assert len(text) < 250_000
    assert "lines left out" in text
    assert "\x1b" not in text
    assert "\x00" not in text
    assert "last" in text


@pytest.mark.parametrize(
    "code",
    [
        "import subprocess; subprocess.run(['git', 'init', '-q', 'artifact'])",
        "import os; os.mkfifo('artifact/pipe')",
        "import socket; socket.socket(1).bind('artifact/socket')",
        "import os; os.symlink('/etc/passwd', 'artifact/link')",
        "import os; os.symlink('../../..', 'artifact/up')",
        "import shutil, os; shutil.rmtree('artifact'); os.symlink('/etc', 'artifact')",
        "import shutil; shutil.rmtree('artifact')",
        "open('artifact/conftest.py', 'w').write('import os')",
        "open('artifact/big', 'wb').truncate(200_000_000)",
        "import os; os.chmod('artifact', 0o500); os.chmod('artifact/prompt.txt', 0)",
        "import os; os.makedirs('artifact/a/b'); os.chmod('artifact/a', 0)",
    ],
)
def test_what_is_no_artifact_is_refused_by_the_workshop(tmp_path, world, code):
    blobs, trees = MemoryBlobs(), MemoryTrees()
    schema = ArtifactSchema("prompts", max_bytes=1_000_000)
    workshop = DirectoryWorkshop(tmp_path / "shop", blobs, trees, schema)
    base = workshop.register(snapshot(world.artifact, blobs))
    key = ProposalKey(1, 0, 0)
    workspace = workshop.open(key, base, (), ())
    proposer = world.proposer(world.script(EDIT + code))
    try:
        answer = proposer.propose(world.request(workspace=workspace, schema=schema))
        edit = workshop.close(key, base, answer)
    except ProposalRefused:
        workshop.discard(key)
    else:
        restore(trees.get(edit.tree), blobs, tmp_path / "new")
        assert sorted(p.name for p in (tmp_path / "new").iterdir()) == ["prompt.txt"]
    assert not workspace.exists()


# -- the sandbox -------------------------------------------------------------------


def test_sandbox_hides_the_project_and_everything_of_the_user(closed_world):
    world = closed_world
    (world.root / "secret.txt").write_text("hidden")
    world.ask(
        f"""
import os
for path in {[str(world.project), str(world.root), str(Path.home())]!r}:
    for name in ("test_val.py", "secret.txt", ".ssh", ".bashrc"):
        print(path, os.path.exists(os.path.join(path, name)))
    try:
        print(sorted(os.listdir(path)))
    except OSError:
        print("nothing there")
seen = [where for top in os.listdir("/") if top not in ("proc", "sys")
        for where, _, names in os.walk("/" + top) if "test_val.py" in names]
print(seen, os.getuid())
print(sorted(p for p in os.listdir("/proc") if p.isdigit())[-1])
{EDIT}"""
    )
    text = world.kept()["output.txt"]
    assert "True" not in text
    assert "['agent.py']" in text  # the command names it, so it is shown
    assert "[] 1000" in text


def test_sandbox_has_no_network_and_read_only_evidence(closed_world):
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    closed_world.ask(
        f"""
import socket
for address in (("127.0.0.1", {port}), ("192.0.2.1", 53)):
    try:
        socket.create_connection(address, 2)
        print("connected")
    except OSError as error:
        print("refused")
try:
    open("evidence/README.md", "w")
    print("written")
except OSError:
    print("read-only")
{EDIT}"""
    )
    listener.close()
    text = closed_world.kept()["output.txt"]
    assert "connected" not in text
    assert "read-only" in text


def test_what_an_agent_writes_outside_is_gone(closed_world):
    world = closed_world
    project = str(world.project)
    world.ask(
        f"""
import os, subprocess
for path in ("/tmp/beside", "/etc/beside", {project!r} + "/pytest.ini", "/usr/beside",
             os.path.expanduser("~/beside"), "../beside", "/evo/beside"):
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        open(path, "w").write("x")
    except OSError:
        pass
{EDIT}"""
    )
    assert names(world.project) == ["agent.py", "test_val.py"]
    assert not any(map(os.path.exists, ("/tmp/beside", "/etc/beside", "/usr/beside")))
    assert names(world.workspace.parent) == ["workspace"]


def test_environment_holds_no_key(world):
    world.environment |= {"CASE_API_KEY": SECRET, "GITHUB_TOKEN": SECRET, "ODD": SECRET}
    world.ask(f"import os; print(dict(os.environ))\n{EDIT}")
    assert "canary" not in world.kept()["output.txt"]
    assert "canary" not in json.dumps(world.kept())


def test_environment_passes_what_is_allowed(world):
    world.environment["MINE"] = "some value"
    world.ask(f"import os; print(os.environ['MINE'])\n{EDIT}", env_allow=["MINE"])
    assert "some value" in world.kept()["output.txt"]


def test_secrets_that_an_agent_finds_are_not_kept_nor_told(world):
    world.archive.redact = Redaction({"CASE_API_KEY": SECRET}).text
    said = f"print('found {SECRET}')"
    with pytest.raises(AnswerRefused) as refused:
        world.ask(said)
    assert SECRET not in str(refused.value)
    assert "[redacted CASE_API_KEY]" in str(refused.value)
    text = EDIT.replace("it was rude", f"because {SECRET}")
    answer = world.ask(f"{text}\n{said}")
    assert SECRET not in repr(answer)
    assert SECRET not in json.dumps(world.kept())


def test_files_that_are_named_to_be_shown_are_there(closed_world):
    tool = closed_world.root / "tool.txt"
    tool.write_text("a tool")
    closed_world.ask(f"print(open({str(tool)!r}).read())\n{EDIT}", show=[str(tool)])
    assert "a tool" in closed_world.kept()["output.txt"]


def test_missing_sandbox_is_said_loudly_and_once(open_world):
    proposer = open_world.proposer(open_world.script(EDIT))
    proposer.propose(open_world.request())
    assert len(open_world.notices) == 1
    assert "NO SANDBOX" in open_world.notices[0]


# -- the model ---------------------------------------------------------------------

CALL = """
import json, os, urllib.request
def call():
    request = urllib.request.Request(
        os.environ["OPENAI_BASE_URL"] + "/chat/completions",
        json.dumps({"model": "dear", "messages": []}).encode(),
        {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"],
         "content-type": "application/json"})
    return urllib.request.urlopen(request, timeout=10).read()
"""


def test_agent_reaches_the_model_through_the_gateway_and_sees_no_key(world):
    world.environment["MY_KEY_VARIABLE"] = SECRET
    with ModelServer([Answer("hello")]) as server:
        answer = world.ask(
            f"{CALL}\nprint(call(), dict(os.environ))\n{EDIT}",
            api_base=server.url,
            api_key_env="MY_KEY_VARIABLE",
            model="cheap",
        )
    assert (server.requests[0].key, server.requests[0].model) == (SECRET, "cheap")
    assert answer.usage == Usage(1, 100, 0, 20, None, answer.usage.seconds)
    kept = world.kept()
    assert "hello" in kept["output.txt"]
    assert SECRET not in json.dumps(kept)
    assert json.loads(kept["calls.jsonl"].splitlines()[0])["status"] == 200


def test_gateway_is_there_beside_a_network_too(closed_world):
    with ModelServer([Answer("hello")]) as server:
        options = {"api_base": server.url, "model": "cheap", "network": True}
        answer = closed_world.ask(f"{CALL}\nprint(call())\n{EDIT}", **options)
    assert answer.usage.tokens == 120
    assert "hello" in closed_world.kept()["output.txt"]


def test_used_up_budget_ends_the_agent_and_is_a_refusal_that_costs(world):
    loop = "while True:\n    try:\n        call()\n    except OSError:\n        pass"
    with ModelServer([Answer("hello")]) as server:
        options = {"api_base": server.url, "model": "cheap"}
        proposer = world.proposer(world.script(f"{EDIT}{CALL}\n{loop}"), **options)
        began = time.monotonic()
        with pytest.raises(AnswerRefused, match="token budget") as refused:
            proposer.propose(world.request(tokens_left=300))
        assert time.monotonic() - began < 20
    assert len(server.requests) == 3
    assert refused.value.usage.tokens == 360


def test_usage_is_what_the_agent_says_where_no_gateway_counts(world):
    usage = {"input_tokens": 200, "output_tokens": 40}
    event = {"type": "turn.completed", "usage": usage}
    answer = world.ask(f"{EDIT}\nprint({json.dumps(event)!r})")
    assert answer.usage == Usage(1, 200, 0, 40, None)


def test_usage_of_an_agent_that_could_reach_a_model_is_unknown(open_world):
    assert open_world.ask(EDIT).usage.usd is None


def test_usage_of_an_agent_that_could_reach_nothing_is_nothing(closed_world):
    assert closed_world.ask(EDIT).usage == Usage()


def test_several_agents_work_at_the_same_time(closed_world, tmp_path):
    world = closed_world
    proposer = world.proposer(world.script(EDIT + "import time; time.sleep(0.5)"))
    answers = []
    threads = []
    for number in range(3):
        workspace = tmp_path / str(number)
        (workspace / "artifact").mkdir(parents=True)
        (workspace / "artifact" / "prompt.txt").write_text(START)
        request = world.request(workspace=workspace, iteration=number + 1)
        threads.append(
            threading.Thread(
                target=lambda r=request: answers.append(proposer.propose(r))
            )
        )
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(answers) == 3


def test_no_temporary_file_is_left(world, tmp_path, monkeypatch):
    place = tmp_path / "t"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    world.ask(
        EDIT
        + """
import os
home = os.environ["HOME"]
os.makedirs(home + "/deep/er")
os.chmod(home + "/deep", 0)
"""
    )
    assert list(place.iterdir()) == []


def test_changelog_of_the_world_is_what_the_prompt_asks_for():
    assert {*json.loads(CHANGELOG)[0]} == {"file", "reason", "evidence", "expected"}


ENDING = """
import sys, threading, time
sys.path.insert(0, {here!r})
from agent_world import World
from pathlib import Path

world = World(Path({root!r}))
code = "import os, time; open('pid', 'w').write(str(os.getpid())); time.sleep(600)"
proposer = world.proposer(world.script(code))
threading.Thread(target=proposer.propose, args=[world.request()], daemon=True).start()
pid = world.workspace / "pid"
while not (pid.exists() and pid.read_text()):
    time.sleep(0.01)
print(pid.read_text())
"""


def test_agent_ends_with_the_process_that_wants_it_and_leaves_nothing(tmp_path):
    temporary = tmp_path / "t"
    temporary.mkdir()
    code = ENDING.format(here=str(Path(__file__).parent), root=str(tmp_path / "w"))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert not Path(f"/proc/{int(done.stdout)}").exists()
    assert list(temporary.iterdir()) == []
