"""Which cassette a run gets, and what is refused before anything is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_evo.chat import ChatRequest
from pytest_evo.chat import Message
from pytest_evo.chat import Speaker
from pytest_evo.errors import ModelFailed
from pytest_evo.errors import ModelProblem
from pytest_evo.errors import SettingsProblem
from pytest_evo.llm.cassettes import read_cassette
from pytest_evo.llm.exchanges import Cleaner
from pytest_evo.models import Usage
from pytest_evo.plugin.modelling import RunModels
from pytest_evo.plugin.taping import open_tape
from pytest_evo.plugin.taping import RecordTape
from pytest_evo.plugin.taping import ReplayTape
from pytest_evo.plugin.taping import resume_tape
from pytest_evo.plugin.taping import RunTape
from pytest_evo.settings import Settings
from pytest_evo.settings_model import ModelSettings
from pytest_evo.testing.models import ScriptedModel

HM = ChatRequest((Message(Speaker.USER, "hm"),))
FREE = Usage(calls=1, input_tokens=3, usd=0.0)
UNKNOWN = Usage(calls=1, input_tokens=3, usd=None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "art").mkdir()
    return tmp_path


def opened(root: Path, proposer: str = "llm", **settings: str) -> RunTape | None:
    chosen = Settings(**settings)  # type: ignore[arg-type]
    return open_tape(chosen, root, root / "art", proposer, Cleaner())


def resumed(
    root: Path, run: str, notices: list[str], *, typed: bool = False, **settings: str
) -> RunTape | None:
    chosen = Settings(**settings)  # type: ignore[arg-type]
    say = notices.append
    return resume_tape(chosen, root, "llm", Cleaner(), run, typed, say)


def record(root: Path, *answers: object, usage: Usage = FREE, run: str = "r1") -> Path:
    tape = opened(root, record="run.jsonl")
    assert isinstance(tape, RecordTape)
    model = tape.wrap(ScriptedModel(answers, usage=usage))  # type: ignore[arg-type]
    tape.begin(run, 3, 2)
    for _ in answers:
        model.ask(HM)
    tape.close()
    return root / "run.jsonl"


def replayed(root: Path) -> ReplayTape:
    tape = opened(root, replay="run.jsonl")
    assert isinstance(tape, ReplayTape)
    return tape


def test_no_cassette_is_the_default(root: Path) -> None:
    assert opened(root) is None
    assert resumed(root, "r1", []) is None


def test_cassette_knows_run_seed_and_slots(root: Path) -> None:
    header = read_cassette(record(root, "yes"), "--evo-replay").header
    assert (header.run, header.seed, header.slots) == ("r1", 3, 2)


@pytest.mark.parametrize("option", ["record", "replay"])
def test_agents_and_runs_without_a_model_are_refused(root: Path, option: str) -> None:
    record(root, "yes").rename(root / "old.jsonl")
    name = "new.jsonl" if option == "record" else "old.jsonl"
    with pytest.raises(SettingsProblem, match=r"coding agent.*--evo-proposer=scripted"):
        opened(root, "agent", **{option: name})
    tape = opened(root, "search", **{option: name})
    assert tape is not None
    with pytest.raises(SettingsProblem, match="no model of pytest-evo is asked"):
        tape.check([], 3, 2)
    tape.check(["m"], 3, 2)
    assert not (root / "new.jsonl").exists()  # nothing is made before the run


@pytest.mark.parametrize(
    ("seed", "slots", "said"), [(4, 2, "Type --evo-seed=3"), (3, 1, "--evo-slots=2")]
)
def test_other_seed_or_slots_are_told(
    root: Path, seed: int, slots: int, said: str
) -> None:
    record(root, "yes")
    with pytest.raises(SettingsProblem, match=said):
        replayed(root).check(["m"], seed, slots)


def test_money_can_be_limited_where_the_recording_has_prices(root: Path) -> None:
    path = record(root, "yes", usage=FREE)
    replayed(root).check_prices(1.0)
    path.unlink()
    record(root, "yes", usage=UNKNOWN)
    with pytest.raises(ModelProblem, match="--budget-usd=1 cannot be kept"):
        replayed(root).check_prices(1.0)


def test_run_that_never_began_leaves_what_others_made(root: Path) -> None:
    tape = opened(root, record="run.jsonl")
    assert isinstance(tape, RecordTape)
    path = record(root, "yes")  # somebody else was faster
    with pytest.raises(ModelProblem, match="not overwritten"):
        tape.begin("r2", 0, 1)
    tape.close()
    tape.discard()
    assert path.exists()


def test_end_of_a_replay_says_what_is_left_and_what_was_missed(root: Path) -> None:
    record(root, "one", "two")
    tape = replayed(root)
    model = tape.model("scripted-model")
    model.ask(HM)
    assert tape.remark(ended=True).startswith("1 of 2 model calls")
    assert tape.remark(ended=False) == ""
    model.ask(HM)
    assert tape.remark(ended=True) == ""
    with pytest.raises(ModelProblem) as missed:
        model.ask(HM)
    with pytest.raises(ModelProblem) as told:
        tape.remark(ended=True)
    assert str(told.value) == str(missed.value)


# -- resume ----------------------------------------------------------------------------


def test_recorded_run_goes_on_being_recorded(root: Path) -> None:
    path = record(root, "one")
    notices: list[str] = []
    tape = resumed(root, "r1", notices, record="run.jsonl")
    assert isinstance(tape, RecordTape)
    tape.begin("r1", 3, 2)
    tape.wrap(ScriptedModel(["again"])).ask(HM)
    tape.close()
    assert not notices
    cassette = read_cassette(path, "--evo-replay")
    assert cassette.sessions == 2
    assert replayed(root).model("scripted-model").ask(HM).text == "again"


@pytest.mark.parametrize("is_there", [False, True])
def test_run_goes_on_without_its_cassette_unless_recording_was_typed(
    root: Path, is_there: bool
) -> None:
    if is_there:
        record(root, "one", run="another")
    notices: list[str] = []
    assert resumed(root, "r1", notices, record="run.jsonl") is None
    assert "goes on without being recorded" in notices[0]
    with pytest.raises(ModelProblem, match="cannot be recorded from here on"):
        resumed(root, "r1", notices, typed=True, record="run.jsonl")


def test_resumed_replay_says_nothing_of_what_is_left(root: Path) -> None:
    record(root, "one")
    tape = resumed(root, "r2", [], replay="run.jsonl")
    assert isinstance(tape, ReplayTape)
    assert tape.remark(ended=True) == ""


# -- the models of a run ---------------------------------------------------------------


def test_replayed_models_need_no_key_and_are_not_probed(root: Path) -> None:
    record(root, "yes")
    models = RunModels({}, tape=replayed(root))
    model = models.model("scripted-model", ModelSettings(api_key_env="NOT_SET"))
    models.check()
    models.check_tape(3, 2)
    models.probe(budget_usd=1.0)
    models.begin_tape("r2", 3, 2)
    assert model.ask(HM).text == "yes"
    assert models.remark(ended=True) == ""
    models.close()


def test_key_of_any_name_is_taken_out_of_what_is_recorded(root: Path) -> None:
    tape = opened(root, record="run.jsonl")
    assert isinstance(tape, RecordTape)
    models = RunModels({"BADGE": "open-sesame-1"}, tape=tape)
    models.model("openai/scripted", ModelSettings(api_key_env="BADGE"))
    model = tape.wrap(ScriptedModel([ModelFailed("key open-sesame-1 is refused")]))
    tape.begin("r1", 0, 1)
    with pytest.raises(ModelFailed):
        model.ask(ChatRequest((Message(Speaker.USER, "I have open-sesame-1"),)))
    tape.close()
    text = (root / "run.jsonl").read_text("utf-8")
    assert "open-sesame-1" not in text
    assert text.count("[key]") == 2
