"""Counts calls of models that tests make through litellm or openai.

The public functions of both libraries are wrapped where they are defined, as soon as
something else imports them; nothing is imported here. A wrapper does nothing but note
the call while a rollout runs, and nothing at all otherwise. What the libraries call of
each other, or of themselves, is part of the call that was made from outside.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from collections.abc import Coroutine
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
from contextlib import contextmanager
from contextlib import suppress
from contextvars import ContextVar
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from pytest_evo.plugin.declared import declared
from pytest_evo.plugin.modelcalls import ModelCall
from pytest_evo.plugin.modelcalls import new_call
from pytest_evo.plugin.modelstreams import follow
from pytest_evo.plugin.modelstreams import is_stream
from pytest_evo.plugin.recording import Notes

SETTING = "count_model_calls"
_Function = Callable[..., Any]

_CREATE = ("create",)
_CREATE_PARSE = ("create", "parse")
_CHAT = {"Completions": _CREATE_PARSE, "AsyncCompletions": _CREATE_PARSE}


def _both(*names: str) -> dict[str, Sequence[str]]:
    return {"": [*names, *(f"a{name}" for name in names)]}


_WRAPPED: Mapping[str, Mapping[str, Sequence[str]]] = {
    # module: {class, or nothing for the module's own functions: names}
    "litellm.main": _both(
        "completion", "text_completion", "embedding", "transcription", "speech"
    ),
    "litellm.responses.main": _both("responses"),
    "litellm.chat_completions.dispatch": _both("completion"),
    "litellm.embeddings.dispatch": _both("embedding"),
    "litellm.responses.dispatch": _both("responses"),
    "litellm.images.main": _both("image_generation", "image_edit"),
    "litellm.rerank_api.main": _both("rerank"),
    "openai.resources.chat.completions": _CHAT,  # one module in older versions
    "openai.resources.chat.completions.completions": _CHAT,
    "openai.resources.beta.chat.completions": _CHAT,
    "openai.resources.completions": {
        "Completions": _CREATE,
        "AsyncCompletions": _CREATE,
    },
    "openai.resources.embeddings": {"Embeddings": _CREATE, "AsyncEmbeddings": _CREATE},
    "openai.resources.responses": {
        "Responses": _CREATE_PARSE,
        "AsyncResponses": _CREATE_PARSE,
    },
    "openai.resources.responses.responses": {
        "Responses": _CREATE_PARSE,
        "AsyncResponses": _CREATE_PARSE,
    },
    "openai.resources.images": {
        "Images": ("generate", "edit"),
        "AsyncImages": ("generate", "edit"),
    },
    "openai.resources.audio.transcriptions": {
        "Transcriptions": _CREATE,
        "AsyncTranscriptions": _CREATE,
    },
}
_LIBRARIES = ("litellm", "openai")

_inside: ContextVar[bool] = ContextVar("pytest_evo_model_call", default=False)
_wrappers: dict[int, _Function] = {}
"""By their ids; kept for good, as what they replaced is."""


class _Current:
    """Whose calls are counted now: a process runs one rollout at a time."""

    notes: Notes | None = None


@contextmanager
def counting(notes: Notes) -> Iterator[None]:
    """Add the calls that are made meanwhile, by whatever thread, to ``notes``."""
    _Current.notes = notes
    try:
        yield
    finally:
        _Current.notes = None


def watch_models(config: pytest.Config) -> None:
    """Wrap what is loaded of the libraries, and what gets loaded, unless it is set off.

    Names that other modules took from them earlier are replaced there too.
    """
    if declared(config).get(SETTING) is False:
        return
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    replaced: dict[int, _Function] = {}
    for name in _WRAPPED:
        module = sys.modules.get(name)
        if module is not None:
            replaced.update(wrap_module(name, module))
    if replaced:
        _replace_everywhere(replaced)


def wrap_module(name: str, module: ModuleType) -> dict[int, _Function]:
    """Wrap what a module defines; its functions' wrappers by the ids of those."""
    replaced: dict[int, _Function] = {}
    for owner_name, names in _WRAPPED[name].items():
        owner: Any = vars(module).get(owner_name) if owner_name else module
        for one in names if owner is not None else ():
            function = vars(owner).get(one)
            if inspect.isfunction(function) and id(function) not in _wrappers:
                waits = owner_name.startswith("Async") or (
                    not owner_name and one.startswith("a") and one[1:] in names
                )
                wrapper = _wrapper(function, waits=waits)
                _wrappers[id(wrapper)] = wrapper
                setattr(owner, one, wrapper)
                if not owner_name:
                    replaced[id(function)] = wrapper
    return replaced


def _replace_everywhere(replaced: Mapping[int, _Function]) -> None:
    """``from litellm import completion`` may have run before anything was wrapped."""
    loaded: list[Any] = list(sys.modules.values())  # anything may be put there
    for module in loaded:
        if not isinstance(module, ModuleType):
            continue
        # not through its own lookup, which loads a module that waits to be used
        names: dict[str, Any] = ModuleType.__getattribute__(module, "__dict__")
        for name, value in list(names.items()):
            wrapper = replaced.get(id(value))
            if wrapper is not None and wrapper.__wrapped__ is value:  # type: ignore[attr-defined]
                names[name] = wrapper


class _Finder:
    """Leaves the finding to others and wraps what they load."""

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Have a module's own loader wrap it afterwards."""
        if name.partition(".")[0] not in _LIBRARIES or name not in _WRAPPED:
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                _load_wrapped(name, spec)
                return spec
        return None


def _load_wrapped(name: str, spec: ModuleSpec) -> None:
    loader: Any = spec.loader
    if loader in sys.meta_path or not hasattr(loader, "exec_module"):
        return  # one loader of many modules: calls through this one are not seen
    execute = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        with suppress(AttributeError):
            del loader.exec_module
        execute(module)
        wrap_module(name, module)

    with suppress(AttributeError):  # a loader with slots
        loader.exec_module = exec_module


# -- wrappers --------------------------------------------------------------------------


def _wrapper(function: _Function, *, waits: bool) -> _Function:
    if not waits:
        return _plain_wrapper(function)
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaiting(*args: Any, **kwargs: Any) -> Any:
            __tracebackhide__ = True
            if _Current.notes is None or _inside.get():
                return await function(*args, **kwargs)
            answer = function(*args, **kwargs)
            return await _awaited(answer, lambda: _begun(function, args, kwargs))

        return awaiting

    @functools.wraps(function)  # of a decorator that is no coroutine function itself
    def returning(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        answer = function(*args, **kwargs)
        if _Current.notes is None or _inside.get() or not inspect.iscoroutine(answer):
            return answer
        return _awaited(answer, lambda: _begun(function, args, kwargs))

    return returning


def _plain_wrapper(function: _Function) -> _Function:
    @functools.wraps(function)
    def calling(*args: Any, **kwargs: Any) -> Any:
        __tracebackhide__ = True
        call = None if _inside.get() else _begun(function, args, kwargs)
        if call is None:
            return function(*args, **kwargs)
        _inside.set(True)
        try:
            answer = function(*args, **kwargs)
        except BaseException as error:
            call.failed(error)
            raise
        finally:
            _inside.set(False)
        if inspect.iscoroutine(answer):  # as completion(acompletion=True) gives
            return _awaited(answer, lambda: call)
        return _taken(call, answer)

    return calling


async def _awaited(
    answer: Coroutine[Any, Any, Any], begin: Callable[[], ModelCall | None]
) -> Any:
    __tracebackhide__ = True
    call = begin()
    if call is None:  # awaited when the rollout was over
        return await answer
    _inside.set(True)
    try:
        result = await answer
    except BaseException as error:
        call.failed(error)
        raise
    finally:
        _inside.set(False)
    return _taken(call, result)


def _taken(call: ModelCall, answer: Any) -> Any:
    if is_stream(answer):
        follow(answer, call)
    else:
        call.answered(answer)
    return answer


def _begun(
    function: _Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> ModelCall | None:
    notes = _Current.notes
    if notes is None:
        return None
    return new_call(notes, _request(function, args, kwargs))


def _request(
    function: _Function, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The arguments by name, as far as they have one."""
    if not args:
        return kwargs
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return kwargs
    return {**dict(zip(names, args, strict=False)), **kwargs}
