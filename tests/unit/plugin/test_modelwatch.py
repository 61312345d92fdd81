"""Counting through modules that have the shape of litellm and openai.

The stand-ins are real packages on disk: they are imported, wrapped and called as the
libraries are, and call each other as these do.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import inspect
import pickle
import sys
import textwrap
import threading
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest

from pytest_evo.models import Usage
from pytest_evo.plugin import modelwatch
from pytest_evo.plugin.declared import declared
from pytest_evo.plugin.modelwatch import counting
from pytest_evo.plugin.modelwatch import watch_models
from pytest_evo.plugin.outcomes import usage_of
from pytest_evo.plugin.recording import Notes

FILES = {
    "litellm/__init__.py": "from .main import *\n",
    "litellm/main.py": """
        import asyncio, contextvars, functools
        from types import SimpleNamespace as Plain
        import openai.resources.chat.completions.completions as chat

        def _answer(text, cost):
            usage = Plain(prompt_tokens=10, completion_tokens=2)
            choice = Plain(message=Plain(content=text, tool_calls=None))
            return Plain(choices=[choice], usage=usage, model="m",
                         _hidden_params={"response_cost": cost})

        class Wrapper:
            def __init__(self, parts): self.parts = iter(parts)
            def __iter__(self): return self
            def __next__(self): return next(self.parts)

        def completion(model, messages, stream=False, cost=0.5, **kwargs):
            "How to complete."
            if kwargs.pop("acompletion", False):
                return acompletion(model, messages, **kwargs)
            if kwargs.get("fail"):
                raise kwargs["fail"]
            answer = chat.Completions().create(model=model, messages=messages)
            if stream:
                part = Plain(delta=Plain(content="hi"))
                return Wrapper([Plain(choices=[part]), Plain(usage=answer.usage)])
            return _answer("hi", cost)

        async def acompletion(*args, **kwargs):
            context = contextvars.copy_context()
            call = functools.partial(context.run, completion, *args, **kwargs)
            return await asyncio.get_running_loop().run_in_executor(None, call)

        def embedding(model, input): return Plain(
            usage={"prompt_tokens": 4, "total_tokens": 4})
        """,
    "openai/__init__.py": "",
    "openai/resources/__init__.py": "",
    "openai/resources/chat/__init__.py": "",
    "openai/resources/chat/completions/__init__.py": """
        from .completions import AsyncCompletions, Completions
        """,
    "openai/resources/chat/completions/completions.py": """
        import functools
        from types import SimpleNamespace as Plain

        class Stream:
            def __init__(self, parts): self._iterator = iter(parts)
            def __next__(self): return self._iterator.__next__()
            def __iter__(self):
                for one in self._iterator:
                    yield one
            def close(self): self.closed = True

        class AsyncStream:
            def __init__(self, parts): self.parts = parts
            async def __aiter__(self):
                for one in self.parts:
                    yield one

        def required(function):
            @functools.wraps(function)
            def inner(*args, **kwargs):
                if "model" not in kwargs:
                    raise TypeError("Missing required argument: 'model'")
                return function(*args, **kwargs)
            return inner

        USAGE = Plain(prompt_tokens=20, completion_tokens=3)
        PARTS = [Plain(choices=[], usage=None), Plain(choices=[], usage=USAGE)]

        class Completions:
            @required
            def create(self, *, messages, model, stream=False):
                return Stream(PARTS) if stream else Plain(usage=USAGE, choices=[])
            def parse(self, **kwargs):
                return self.create(**kwargs)

        class AsyncCompletions:
            @required
            async def create(self, *, messages, model, stream=False):
                return AsyncStream(PARTS) if stream else Plain(usage=USAGE, choices=[])
        """,
}
ASK = {"model": "m", "messages": [{"role": "user", "content": "?"}]}


class Config:
    """As much of pytest's as is asked for."""

    def __init__(self, root: Path) -> None:
        self.rootpath = root
        self.stash = pytest.Stash()


@pytest.fixture
def libraries(tmp_path, monkeypatch):
    for name, text in FILES.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    before = {name: sys.modules.pop(name) for name in _loaded()}
    yield
    for name in _loaded():
        del sys.modules[name]
    sys.modules.update(before)


def _loaded() -> list[str]:
    found = ("litellm", "openai")
    return [name for name in sys.modules if name.partition(".")[0] in found]


@pytest.fixture
def litellm(libraries, tmp_path):
    watch_models(Config(tmp_path))
    return importlib.import_module("litellm")


@pytest.fixture
def chat(litellm):
    return importlib.import_module("openai.resources.chat.completions")


def spent(call) -> Usage:
    notes = Notes()
    with counting(notes):
        call()
    return usage_of(notes)


def test_nothing_is_imported_by_watching(libraries, tmp_path):
    watch_models(Config(tmp_path))
    assert _loaded() == []


def test_a_call_through_both_libraries_counts_once(litellm):
    used = spent(lambda: litellm.completion(**ASK))
    assert (used.calls, used.input_tokens, used.output_tokens) == (1, 10, 2)
    assert used.usd == 0.5
    assert used.seconds > 0


def test_positional_arguments_are_known_by_name(litellm):
    notes = Notes()
    with counting(notes):
        litellm.completion("m", [{"role": "user", "content": "why"}])
    [(name, data)] = notes.steps
    assert (name, data["model"], data["prompt"]) == ("model call", "m", "user: why")


def test_a_call_of_a_client_has_no_price(chat):
    used = spent(lambda: chat.Completions().create(**ASK))
    assert (used.calls, used.tokens, used.usd) == (1, 23, None)


def test_methods_that_call_each_other_count_once(chat):
    assert spent(lambda: chat.Completions().parse(**ASK)).calls == 1


def test_an_awaited_call_counts_once_though_a_thread_makes_it(litellm):
    used = spent(lambda: asyncio.run(litellm.acompletion(**ASK)))
    assert (used.calls, used.tokens) == (1, 12)


def test_a_plain_function_that_gives_something_to_await_counts_once(litellm):
    used = spent(lambda: asyncio.run(litellm.completion(**ASK, acompletion=True)))
    assert (used.calls, used.tokens, used.usd) == (1, 12, 0.5)


def test_awaited_calls_at_the_same_time_all_count(litellm, chat):
    async def many():
        calls = [litellm.acompletion(**ASK) for _ in range(5)]
        await asyncio.gather(*calls, chat.AsyncCompletions().create(**ASK))

    assert spent(lambda: asyncio.run(many())).calls == 6


def test_calls_of_threads_count(litellm):
    def threads():
        all_ = [
            threading.Thread(target=litellm.completion, kwargs=ASK) for _ in range(3)
        ]
        for one in all_:
            one.start()
        for one in all_:
            one.join()

    assert spent(threads).calls == 3


def test_a_call_that_is_never_awaited_is_none(chat):
    def forgets():
        chat.AsyncCompletions().create(**ASK).close()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        assert spent(forgets).calls == 0


def test_failures_count_and_are_raised_unchanged(litellm):
    error = ConnectionError("reset")

    def fails():
        with pytest.raises(ConnectionError) as caught:
            litellm.completion(**ASK, fail=error)
        assert caught.value is error
        assert error.__context__ is None

    used = spent(fails)
    assert (used.calls, used.usd) == (1, None)
    assert used.seconds > 0


def test_wrong_arguments_fail_as_they_did(chat):
    with pytest.raises(TypeError, match="Missing required argument: 'model'"):
        spent(lambda: chat.AsyncCompletions().create(messages=[]))


@pytest.mark.parametrize("read", [list, lambda stream: [next(stream), next(stream)]])
def test_streams_of_clients_are_read_as_they_were(chat, read):
    kind = sys.modules["openai.resources.chat.completions.completions"].Stream

    def streams():
        stream = chat.Completions().create(**ASK, stream=True)
        assert isinstance(stream, kind)
        assert type(stream).__name__ == "Stream"
        assert len(read(stream)) == 2
        stream.close()
        assert stream.closed

    assert spent(streams).tokens == 23


def test_streams_of_litellm_count_once(litellm):
    def streams():
        stream = litellm.completion(**ASK, stream=True)
        assert iter(stream) is stream
        assert len(list(stream)) == 2

    used = spent(streams)
    assert (used.calls, used.tokens, used.usd) == (1, 23, None)


def test_awaited_streams_are_read(chat):
    async def streams():
        stream = await chat.AsyncCompletions().create(**ASK, stream=True)
        assert len([part async for part in stream]) == 2

    assert spent(lambda: asyncio.run(streams())).tokens == 23


def test_a_stream_that_is_left_has_an_unknown_price(litellm):
    used = spent(lambda: next(litellm.completion(**ASK, stream=True)))
    assert (used.calls, used.usd) == (1, None)


def test_outside_of_rollouts_nothing_is_counted(litellm):
    notes = Notes()
    with counting(notes):
        pass
    assert litellm.completion(**ASK).usage.prompt_tokens == 10
    assert asyncio.run(litellm.acompletion(**ASK)).model == "m"
    assert notes.model_calls == []


def test_functions_look_as_they_did(litellm, chat):
    parameters = inspect.signature(litellm.completion).parameters
    assert list(parameters) == ["model", "messages", "stream", "cost", "kwargs"]
    assert litellm.completion.__doc__ == "How to complete."
    assert inspect.iscoroutinefunction(litellm.acompletion)
    assert not inspect.iscoroutinefunction(litellm.completion)
    assert pickle.loads(pickle.dumps(litellm.completion)) is litellm.completion
    assert litellm.main.completion is litellm.completion
    assert type(litellm.main.__loader__).__name__ == "SourceFileLoader"
    assert "exec_module" not in vars(litellm.main.__loader__)


def test_a_replaced_function_is_the_tests_own(litellm, monkeypatch):
    monkeypatch.setattr(litellm, "completion", lambda **_: "mine")
    assert spent(lambda: litellm.completion(**ASK)) == Usage()
    monkeypatch.undo()
    assert spent(lambda: litellm.completion(**ASK)).calls == 1


def test_what_was_imported_before_is_counted_too(libraries, tmp_path):
    early = importlib.import_module("litellm")
    user = SimpleNamespace()
    module = type(sys)("evo_user_of_litellm")
    module.ask = early.completion
    sys.modules[module.__name__] = module
    user.ask = early.completion  # no module: stays what it is
    try:
        watch_models(Config(tmp_path))
        assert spent(lambda: module.ask(**ASK)).tokens == 12
        assert spent(lambda: early.completion(**ASK)).tokens == 12
        assert user.ask is early.completion.__wrapped__
    finally:
        del sys.modules[module.__name__]


def test_modules_that_wait_to_be_used_go_on_waiting(libraries, tmp_path):
    importlib.import_module("litellm")
    (tmp_path / "site" / "evo_waiting.py").write_text("raise AssertionError\n")
    spec = importlib.util.find_spec("evo_waiting")
    spec.loader = importlib.util.LazyLoader(spec.loader)
    sys.modules["evo_waiting"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        watch_models(Config(tmp_path))
    finally:
        del sys.modules["evo_waiting"]


def test_watching_twice_wraps_once(litellm, tmp_path):
    wrapped = litellm.completion
    watch_models(Config(tmp_path))
    assert litellm.completion is wrapped
    assert sum(type(one) is modelwatch._Finder for one in sys.meta_path) == 1


def test_it_can_be_switched_off(libraries, tmp_path):
    (tmp_path / "pytest_evo.toml").write_text("count_model_calls = false\n")
    config = Config(tmp_path)
    assert declared(config) == {"count_model_calls": False}
    watch_models(config)
    litellm = importlib.import_module("litellm")
    assert spent(lambda: litellm.completion(**ASK)) == Usage()


def test_embeddings_count_their_input(litellm):
    assert spent(lambda: litellm.embedding("m", ["a"])).input_tokens == 4
