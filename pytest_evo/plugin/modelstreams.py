"""Follows streamed answers of models while a test reads them.

A stream stays the object that the library made, of a class derived from its own, so
that all its methods and ``isinstance`` do what they did.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from collections.abc import Callable
from collections.abc import Iterator
from typing import Any
from typing import TypeAlias

from pytest_evo.plugin.modelcalls import ModelCall

_CALL = "_pytest_evo_model_call"
_kinds: dict[type, type] = {}
_Members: TypeAlias = dict[str, Any]


def is_stream(answer: Any) -> bool:
    """Whether an answer comes in parts."""
    return any(
        hasattr(type(answer), name) for name in ("__next__", "__anext__", "__aiter__")
    )


def follow(stream: Any, call: ModelCall) -> None:
    """Tell ``call`` of every part that is read; one that cannot be followed is left."""
    kind = type(stream)
    try:
        setattr(stream, _CALL, call)
        if kind not in _kinds:
            _kinds[kind] = _followed(kind)
        stream.__class__ = _kinds[kind]
    except (AttributeError, TypeError):  # a generator, slots
        return


def _followed(kind: type) -> type:
    members: _Members = {
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
    }
    for name, make in _METHODS.items():
        method = getattr(kind, name, None)
        if method is not None:
            members[name] = make(method)
    return type(kind)(kind.__name__, (kind,), members)


def _next(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def __next__(self: Any) -> Any:
        __tracebackhide__ = True
        call: ModelCall = getattr(self, _CALL)
        try:
            part = method(self)
        except StopIteration:
            call.ended()
            raise
        except BaseException as error:
            call.failed(error)
            raise
        call.part(part)
        return part

    return __next__


def _anext(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    async def __anext__(self: Any) -> Any:
        __tracebackhide__ = True
        call: ModelCall = getattr(self, _CALL)
        try:
            part = await method(self)
        except StopAsyncIteration:
            call.ended()
            raise
        except BaseException as error:
            call.failed(error)
            raise
        call.part(part)
        return part

    return __anext__


def _iter(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def __iter__(self: Any) -> Any:
        parts = method(self)
        return parts if parts is self else _each(parts, getattr(self, _CALL))

    return __iter__


def _aiter(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def __aiter__(self: Any) -> Any:
        parts = method(self)
        return parts if parts is self else _aeach(parts, getattr(self, _CALL))

    return __aiter__


def _each(parts: Iterator[Any], call: ModelCall) -> Iterator[Any]:
    __tracebackhide__ = True
    while True:
        try:
            part = next(parts)
        except StopIteration:
            call.ended()
            return
        except BaseException as error:
            call.failed(error)
            raise
        call.part(part)
        yield part


async def _aeach(parts: AsyncIterator[Any], call: ModelCall) -> AsyncIterator[Any]:
    __tracebackhide__ = True
    while True:
        try:
            part = await anext(parts)
        except StopAsyncIteration:
            call.ended()
            return
        except BaseException as error:
            call.failed(error)
            raise
        call.part(part)
        yield part


_METHODS: dict[str, Callable[[Callable[[Any], Any]], Callable[[Any], Any]]] = {
    "__next__": _next,
    "__anext__": _anext,
    "__iter__": _iter,
    "__aiter__": _aiter,
}
