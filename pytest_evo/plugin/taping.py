"""The cassette of a run: made by ``--evo-record``, played by ``--evo-replay``."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence
from pathlib import Path

import pytest_evo
from pytest_evo.errors import ModelProblem
from pytest_evo.errors import SettingsProblem
from pytest_evo.llm.cassettes import Cassette
from pytest_evo.llm.cassettes import CassetteFile
from pytest_evo.llm.cassettes import exists
from pytest_evo.llm.cassettes import Header
from pytest_evo.llm.cassettes import read_cassette
from pytest_evo.llm.exchanges import Cleaner
from pytest_evo.llm.taping import Player
from pytest_evo.llm.taping import Recorder
from pytest_evo.llm.taping import Recording
from pytest_evo.llm.taping import Replaying
from pytest_evo.protocols import ChatModel
from pytest_evo.settings import Settings

RECORD = "--evo-record"
REPLAY = "--evo-replay"


class RecordTape:
    """What the models of a run say is written to a file.

    Args:
        path: of the file.
        cleaner: takes secrets out.
        before: what earlier sessions of the same run have written.
    """

    def __init__(
        self, path: Path, cleaner: Cleaner, before: Cassette | None = None
    ) -> None:
        self._path = path
        self._before = before
        self._made = False
        self._recorder = Recorder(path, cleaner)
        self.cleaner = cleaner

    def wrap(self, model: ChatModel) -> ChatModel:
        """The model, recorded."""
        return Recording(model, self._recorder)

    def check(self, models: Sequence[str], seed: int, slots: int) -> None:
        """Look whether there is anything to record.

        Raises:
            SettingsProblem: no model is asked.
        """
        _refuse_no_model(RECORD, self._path, models)

    def begin(self, run: str, seed: int, slots: int) -> None:
        """Make the file, or go on with it.

        Raises:
            ModelProblem: there is one already, or the disk refuses.
        """
        if self._before is not None:
            file = CassetteFile.go_on(self._before)
        else:
            made_by = pytest_evo.__version__
            header = Header(run=run, made_by=made_by, seed=seed, slots=slots)
            file = CassetteFile.create(self._path, header)
            self._made = True
        self._recorder.begin(file)

    def remark(self, *, ended: bool) -> str:
        """What a person should know at the end of the session."""
        count = self._recorder.count
        if not ended:
            return f"recording into {self._path} goes on with --evo-resume=last"
        return (
            f"{count} model calls are on {self._path}; to see the run again without "
            f"key and network: pytest --evolve {REPLAY}={self._path}"
        )

    def close(self) -> None:
        """End the file."""
        self._recorder.close()

    def discard(self) -> None:
        """Remove the file that this session has made."""
        if self._made:
            self._path.unlink(missing_ok=True)


class ReplayTape:
    """What the models of a run say comes from a file.

    Args:
        cassette: the file's content.
        cleaner: takes out what varies between runs.
        resumed: whether earlier sessions of the run have used a part of it.
    """

    def __init__(
        self, cassette: Cassette, cleaner: Cleaner, *, resumed: bool = False
    ) -> None:
        self._cassette = cassette
        self._partly = resumed or cassette.sessions > 1
        self._player = Player(cassette, cleaner)
        self.cleaner = cleaner

    def model(self, name: str) -> ChatModel:
        """The model of this name, as it was recorded."""
        return Replaying(name, self._player)

    def check(self, models: Sequence[str], seed: int, slots: int) -> None:
        """Look whether the run can be the recorded one.

        Raises:
            SettingsProblem: no model is asked, or seed or slots are other ones.
        """
        header, path = self._cassette.header, self._cassette.path
        _refuse_no_model(REPLAY, path, models)
        for option, then, now in (
            ("--evo-seed", header.seed, seed),
            ("--evo-slots", header.slots, slots),
        ):
            if then != now:
                raise SettingsProblem(
                    f"{REPLAY}={path}: it was recorded with {option}={then}, and now "
                    f"it is {now}: other questions would be asked. Type {option}={then}"
                )

    def check_prices(self, budget_usd: float) -> None:
        """Look whether a budget of money can be kept.

        Raises:
            ModelProblem: a price was not known when it was recorded.
        """
        for exchange in self._cassette.exchanges:
            back = exchange.reply or exchange.failure
            if back is not None and back.usage.usage().estimated_usd is None:
                raise ModelProblem(
                    f"--budget-usd={budget_usd:g} cannot be kept: prices are not on "
                    f"{self._cassette.path}. Leave the budget out, or record again "
                    "with input_usd and output_usd in [tool.pytest_evo.model_options]."
                )

    def begin(self, run: str, seed: int, slots: int) -> None:
        """Nothing has to be made."""

    def remark(self, *, ended: bool) -> str:
        """What a person should know at the end of the session.

        Raises:
            ModelProblem: something was asked that is not on the cassette.
        """
        if self._player.missed:
            raise ModelProblem(self._player.missed)
        unused = self._player.unused
        if not ended or self._partly or not unused:
            return ""
        return (
            f"{unused} of {self._cassette.count} model calls on {self._cassette.path} "
            "were not asked for: this run ended sooner than the recorded one"
        )

    def close(self) -> None:
        """Nothing is held."""

    def discard(self) -> None:
        """Nothing was made."""


RunTape = RecordTape | ReplayTape


def open_tape(
    settings: Settings,
    rootdir: Path,
    artifact: Path,
    proposer: str,
    cleaner: Cleaner,
) -> RunTape | None:
    """The cassette that the settings of a new run name; None where they name none.

    Raises:
        SettingsProblem: both are named, or the agent proposes, or the file would be
            a part of the artifact.
        ModelProblem: the cassette cannot be read, or would be overwritten.
    """
    option, path = _chosen(settings, rootdir, proposer)
    if path is None:
        return None
    if option == REPLAY:
        return ReplayTape(read_cassette(path, REPLAY), cleaner)
    _refuse_place(path, artifact)
    if path.exists():
        raise ModelProblem(exists(path))
    return RecordTape(path, cleaner)


def resume_tape(
    settings: Settings,
    rootdir: Path,
    proposer: str,
    cleaner: Cleaner,
    run: str,
    typed: bool,
    notice: Callable[[str], None],
) -> RunTape | None:
    """The cassette of a run that goes on.

    A run that was recorded goes on being recorded. If its cassette is gone it goes on
    without, unless recording was ``typed``.

    Raises:
        SettingsProblem: both are named, or the agent proposes.
        ModelProblem: the cassette cannot be read, or is another run's.
    """
    option, path = _chosen(settings, rootdir, proposer)
    if path is None:
        return None
    if option == REPLAY:
        return ReplayTape(read_cassette(path, REPLAY), cleaner, resumed=True)
    try:
        before = read_cassette(path, RECORD)
        if before.header.run != run:
            raise ModelProblem(
                f"{RECORD}={path}: it is the cassette of run {before.header.run}."
            )
    except ModelProblem as problem:
        if not typed:
            notice(f"the run goes on without being recorded: {problem}")
            return None
        raise ModelProblem(
            f"run {run} cannot be recorded from here on, the start of its cassette "
            f"is missing: {problem} Leave out {RECORD} to go on with the run."
        ) from problem
    return RecordTape(path, cleaner, before)


def _chosen(
    settings: Settings, rootdir: Path, proposer: str
) -> tuple[str, Path | None]:
    if settings.record is None and settings.replay is None:
        return "", None
    if settings.record is not None and settings.replay is not None:
        raise SettingsProblem(
            f"{RECORD}={settings.record} and {REPLAY}={settings.replay} exclude each "
            "other: a replayed run asks no model. Leave one out."
        )
    option = RECORD if settings.replay is None else REPLAY
    name = settings.record or settings.replay or ""
    if proposer == "agent":
        raise SettingsProblem(
            f"{option}={name}: the calls of a coding agent are not on cassettes, "
            "because what it does with its answers cannot be done again. To show a run "
            "of an agent again, export its candidates (pytest-evo export RUN "
            "CANDIDATE DIR) and propose them with scripted = [DIR, ...] and "
            "--evo-proposer=scripted."
        )
    return option, rootdir / name


def _refuse_place(path: Path, artifact: Path) -> None:
    if not path.parent.is_dir():
        raise ModelProblem(
            f"{RECORD}={path}: there is no directory {path.parent}. Type: "
            f"mkdir -p {path.parent}"
        )
    if path.resolve().is_relative_to(artifact.resolve()):
        raise SettingsProblem(
            f"{RECORD}={path}: this is inside the artifact, whose files are what "
            "candidates change. Name a file outside."
        )


def _refuse_no_model(option: str, path: Path, models: Sequence[str]) -> None:
    if not models:
        raise SettingsProblem(
            f"{option}={path}: no model of pytest-evo is asked in this run, neither by "
            "the proposer nor by a diagnoser. Set one with --evo-model=MODEL, or "
            f"leave {option} out."
        )
