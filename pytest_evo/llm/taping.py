"""Models whose answers are written to a cassette, or come from one."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from itertools import zip_longest
from pathlib import Path

from pytest_evo.chat import AskedInVain
from pytest_evo.chat import ChatReply
from pytest_evo.chat import ChatRequest
from pytest_evo.errors import EvoError
from pytest_evo.errors import ModelProblem
from pytest_evo.hostile import one_line
from pytest_evo.llm.cassettes import Cassette
from pytest_evo.llm.cassettes import CassetteFile
from pytest_evo.llm.exchanges import Cleaner
from pytest_evo.llm.exchanges import Exchange
from pytest_evo.llm.exchanges import FailureRecord
from pytest_evo.llm.exchanges import MessageRecord
from pytest_evo.llm.exchanges import Question
from pytest_evo.llm.exchanges import ReplyRecord
from pytest_evo.llm.exchanges import texts_of
from pytest_evo.protocols import ChatModel

_SHOWN = 300  # characters of a line that differs


# -- recording ---------------------------------------------------------------------


class Recorder:
    """Writes what the models of a run are asked and answer; safe for threads.

    Args:
        path: of the cassette, for messages.
        cleaner: takes out secrets and what varies.
    """

    def __init__(self, path: Path, cleaner: Cleaner) -> None:
        self.path = path
        self.cleaner = cleaner
        self._lock = threading.Lock()
        self._file: CassetteFile | None = None
        self._asked: Counter[str] = Counter()
        self.count = 0
        """Exchanges that this session has written."""

    def begin(self, file: CassetteFile) -> None:
        """Write into a file from now on."""
        self._file = file

    def number(self, key: str) -> int:
        """How often the same was asked before."""
        with self._lock:
            self._asked[key] += 1
            return self._asked[key] - 1

    def keep(
        self, question: Question, nth: int, request: ChatRequest, back: Back
    ) -> None:
        """Write an exchange; after the end nothing is kept.

        Raises:
            ModelProblem: the disk refuses.
        """
        exchange = Exchange(
            key=question.key,
            nth=nth,
            model=question.model,
            asker=question.asker,
            messages=question.messages,
            tools=question.tools,
            form=question.form,
            max_tokens=request.max_tokens,
            said=question.said,
            forms=dict(question.forms),
            reply=back if isinstance(back, ReplyRecord) else None,
            failure=back if isinstance(back, FailureRecord) else None,
        )
        with self._lock:
            if self._file is not None:
                self._file.append(exchange)
                self.count += 1

    def close(self) -> None:
        """End the cassette: what is broken off from now on is no answer."""
        with self._lock:
            if self._file is not None:
                self._file.close()
            self._file = None


Back = ReplyRecord | FailureRecord
"""What came back from a model."""


class Recording:
    """A ``ChatModel`` whose exchanges are recorded.

    The caller gets each reply as it is on the cassette, without secrets, so that the
    run goes on as its replay will.
    """

    def __init__(self, model: ChatModel, recorder: Recorder) -> None:
        self._model = model
        self._recorder = recorder

    @property
    def name(self) -> str:
        """The model's name."""
        return self._model.name

    def ask(self, request: ChatRequest) -> ChatReply:
        """Ask the model and record the exchange.

        Raises:
            ModelProblem: asking again is vain, or the disk is full.
            ModelFailed: the model gave no answer.
        """
        recorder = self._recorder
        question = recorder.cleaner.question(self.name, request)
        nth = recorder.number(question.key)
        try:
            reply = self._model.ask(request)
        except EvoError as error:
            failed = recorder.cleaner.failure(error)
            recorder.keep(question, nth, request, failed)
            raise
        kept = recorder.cleaner.reply(reply)
        try:
            recorder.keep(question, nth, request, kept)
        except ModelProblem as error:
            raise AskedInVain(str(error), reply.usage) from error
        return kept.reply()


# -- replaying ---------------------------------------------------------------------


class Player:
    """Answers from a cassette; safe for threads.

    After the first question that is not there, every further one fails with the same
    words: what is asked then follows from an answer that nobody has given.
    """

    def __init__(self, cassette: Cassette, cleaner: Cleaner) -> None:
        self.cassette = cassette
        self.cleaner = cleaner
        self._lock = threading.Lock()
        self._asked: Counter[str] = Counter()
        self.missed = ""
        """What was said about the first question that is not on the cassette."""

    def answer(self, question: Question) -> Exchange:
        """The recorded exchange of a question.

        Raises:
            ModelProblem: it is not on the cassette; says what differs.
        """
        with self._lock:
            if not self.missed:
                found = self.cassette.answers.get(question.key, [])
                nth = self._asked[question.key]
                if nth < len(found):
                    self._asked[question.key] += 1
                    return found[nth]
                self.missed = explain_miss(self.cassette, question, nth)
            raise ModelProblem(self.missed)

    @property
    def unused(self) -> int:
        """Exchanges that nobody has asked for."""
        with self._lock:
            return self.cassette.count - self._asked.total()


class Replaying:
    """A ``ChatModel`` that answers from a cassette: no key, no network.

    Usage and failures are those of the recording.
    """

    def __init__(self, name: str, player: Player) -> None:
        self._name = name
        self._player = player

    @property
    def name(self) -> str:
        """The name of the model that was recorded."""
        return self._name

    def ask(self, request: ChatRequest) -> ChatReply:
        """Give the recorded answer.

        Raises:
            ModelProblem: the request is not on the cassette.
            EvoError: what the recorded model raised.
        """
        question = self._player.cleaner.question(self._name, request)
        exchange = self._player.answer(question)
        if exchange.failure is not None:
            raise exchange.failure.error()
        assert exchange.reply is not None  # one of both, as its record is checked
        return exchange.reply.reply()


# -- what differs ------------------------------------------------------------------


def explain_miss(cassette: Cassette, question: Question, nth: int) -> str:
    """Why a question is not on a cassette: the closest one, and what to type."""
    path = cassette.path
    who = f"{question.model} is asked" + (
        f" for {question.asker}" if question.asker else ""
    )
    return (
        f"--evo-replay={path}: {who} what is not on the cassette. "
        f"{_difference(cassette, question, nth)}\n"
        "Suite, artifact, settings and pytest-evo must be as they were. With a key, "
        f"record again: rm {path} && pytest --evolve --evo-record={path}"
    )


def _difference(cassette: Cassette, question: Question, nth: int) -> str:
    if nth:
        times = "once" if nth == 1 else f"{nth} times"
        return f"It was asked {times} when it was recorded, and now once more."
    if not cassette.exchanges:
        return "It is empty: nothing was asked when it was recorded."
    closest = max(
        range(len(cassette.exchanges)),
        key=lambda at: _likeness(cassette.exchanges[at], question),
    )
    exchange = cassette.exchanges[closest]
    asker = f" for {exchange.asker}" if exchange.asker else ""
    where = f"The closest is line {cassette.lines[closest]}{asker}"
    if exchange.model != question.model:
        return f"{where}: it was asked of {exchange.model}, not of {question.model}."
    common = _common(exchange.messages, question.messages)
    if common < max(len(exchange.messages), len(question.messages)):
        return f"{where}; " + _first_lines(
            common,
            _message(exchange.messages, common, cassette.messages),
            _message(question.messages, common, question.said),
        )
    if exchange.tools != question.tools:
        return f"{where}; the tools that the model is offered differ."
    if exchange.form != question.form:
        return f"{where}; the JSON schema of the reply differs."
    return f"{where}; the same was asked, but not there."


def _likeness(exchange: Exchange, question: Question) -> tuple[bool, bool, int, int]:
    apart = abs(len(exchange.messages) - len(question.messages))
    return (
        exchange.model == question.model,
        exchange.asker == question.asker,
        _common(exchange.messages, question.messages),
        -apart,
    )


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _message(
    digests: tuple[str, ...], at: int, known: Mapping[str, MessageRecord]
) -> list[str]:
    found = known.get(digests[at]) if at < len(digests) else None
    return [] if found is None else [*texts_of(found)]


def _first_lines(message: int, recorded: list[str], now: list[str]) -> str:
    for number, (was, is_) in enumerate(zip_longest(recorded, now)):
        if was != is_:
            return (
                f"message {message + 1} differs in line {number}:\n"
                f"  recorded: {_shown(was)}\n"
                f"  now:      {_shown(is_)}"
            )
    return f"message {message + 1} differs in what it answers."


def _shown(line: str | None) -> str:
    return "(nothing)" if line is None else one_line(line, _SHOWN)
